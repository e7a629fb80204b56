// The module of spgnn.spmm's loops. Python's lock is released in every loop.

#include "parallel.h"

#include <pybind11/stl.h>

int best_isa() {
#ifdef SPGNN_DISPATCH
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

int chosen_isa(const std::string& name) {
    static const int best = best_isa();
    if (name.empty()) return best;
    const int isa = name == "avx512" ? 2 : name == "avx2" ? 1 : name == "base" ? 0 : -1;
    if (isa < 0 || isa > best) throw std::invalid_argument("instruction set '" + name + "' is not available here");
    return isa;
}

PYBIND11_MODULE(_kernels, m) {
    m.doc() = "Loops of spgnn.spmm; call them through spgnn.spmm.kernels.csr, which checks its arguments.";
    define_spmm(m);
    define_dense(m);
    define_panels(m);
    define_tiling(m);
    define_wire(m);
    define_attention(m);
    define_attention2(m);
    define_edges(m);
    define_maximum(m);
    m.def(
        "instruction_sets",
        [] {
            std::vector<std::string> names{"base", "avx2", "avx512"};
            names.resize(best_isa() + 1);
            return names;
        },
        "Instruction sets that this processor has, the last is the one used.");
}

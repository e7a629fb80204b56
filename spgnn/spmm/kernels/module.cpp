// The module of spgnn.spmm's loops.

#define SPGNN_MODULE

#include <nanobind/stl/vector.h>

#include "bindings.h"

NB_MODULE(_kernels, m) {
    spgnn::import_numpy();
    m.doc() =
        "Loops of spgnn.spmm, private: shapes, types and indices are checked. Call them through spgnn.spmm.kernels.";
    spgnn::define_products(m);
    spgnn::define_dense(m);
    spgnn::define_edges(m);
    spgnn::define_gemm(m);
    m.def(
        "instruction_sets",
        [] {
            std::vector<std::string> names;
            for (int isa = 0; isa <= spgnn::best_isa(); ++isa)
                if (spgnn::has_isa(isa)) names.push_back(spgnn::NAMES[isa]);
            return names;
        },
        "Instruction sets that this processor and this build have, the last is the one used.");
    m.def(
        "wanted_isa", [] { return spgnn::NAMES[spgnn::wanted_isa()]; },
        "The best that this processor has and SPGNN_ISA allows.");
}

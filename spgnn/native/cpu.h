// Instruction sets of this processor: 0 baseline, 1 AVX2, 2 AVX-512. One build runs everywhere and uses the best one.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SPGNN_DISPATCH 1
#endif

namespace spgnn {

// The number of a name, -1 of one that is not known.
inline int isa_of(const std::string& name) {
    return name == "avx512" ? 2 : name == "avx2" ? 1 : name == "base" ? 0 : -1;
}

// The best that this processor has, and that the variable SPGNN_ISA allows.
inline int best_isa() {
#ifdef SPGNN_DISPATCH
    static const int best = [] {
        const char* most = std::getenv("SPGNN_ISA");
        const int allowed = most && *most ? isa_of(most) : 2;
        if (allowed < 0)
            throw std::invalid_argument("SPGNN_ISA = '" + std::string(most) + "'; expected base, avx2 or avx512");
        __builtin_cpu_init();
        if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt") &&
              __builtin_cpu_supports("bmi")))
            return 0;
        return std::min(allowed, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                                         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
                                     ? 2
                                     : 1);
    }();
    return best;
#else
    return 0;
#endif
}

// The instruction set of a name, "" the best one.
inline int chosen_isa(const std::string& name) {
    if (name.empty()) return best_isa();
    const int isa = isa_of(name);
    if (isa < 0 || isa > best_isa())
        throw std::invalid_argument("instruction set '" + name + "' is not available here");
    return isa;
}

}  // namespace spgnn

// Call a function of the namespace of an instruction set: ON(isa, rows(p, begin, end)).
#ifdef SPGNN_DISPATCH
#define ON(isa, ...) ((isa) == 2 ? avx512::__VA_ARGS__ : (isa) == 1 ? avx2::__VA_ARGS__ : base::__VA_ARGS__)
#else
#define ON(isa, ...) (base::__VA_ARGS__)
#endif

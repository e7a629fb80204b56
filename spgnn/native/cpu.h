// Instruction sets: 0 baseline, 1 AVX2, 2 AVX-512. One build runs everywhere and uses the best that it has.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SPGNN_DISPATCH 1
#endif

// The instruction sets that this file's loops are compiled for, a bit for each; setup.py says so.
#ifndef SPGNN_BUILT
#define SPGNN_BUILT 7
#endif

namespace spgnn {

constexpr const char* NAMES[] = {"base", "avx2", "avx512"};

// The number of a name, -1 of one that is not known.
inline int isa_of(const std::string& name) {
    for (int isa = 0; isa < 3; ++isa)
        if (name == NAMES[isa]) return isa;
    return -1;
}

// The best that this processor has.
inline int processor_isa() {
#ifdef SPGNN_DISPATCH
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt") &&
          __builtin_cpu_supports("bmi")))
        return 0;
    const bool is_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    return is_avx512 ? 2 : 1;
#else
    return 0;
#endif
}

// Whether this build has the loops of an instruction set, and this processor runs them.
inline bool has_isa(int isa) { return isa >= 0 && isa <= processor_isa() && (SPGNN_BUILT >> isa & 1); }

// The best that this processor has, and that the variable SPGNN_ISA allows.
inline int wanted_isa() {
    static const int wanted = [] {
        const char* most = std::getenv("SPGNN_ISA");
        const int allowed = most && *most ? isa_of(most) : 2;
        if (allowed < 0)
            throw std::invalid_argument("SPGNN_ISA = '" + std::string(most) + "'; expected base, avx2 or avx512");
        return std::min(allowed, processor_isa());
    }();
    return wanted;
}

// The best of those that this build has.
inline int best_isa() {
    int isa = wanted_isa();
    while (!(SPGNN_BUILT >> isa & 1)) --isa;
    return isa;
}

// The instruction set of a name, "" the best one.
inline int chosen_isa(const std::string& name) {
    if (name.empty()) return best_isa();
    const int isa = isa_of(name);
    if (isa > best_isa() || !has_isa(isa))
        throw std::invalid_argument("instruction set '" + name + "' is not available here");
    return isa;
}

}  // namespace spgnn

// Call a function of the namespace of an instruction set: ON(isa, rows(p, begin, end)).
#ifndef SPGNN_DISPATCH
#define ON(isa, ...) ((void)(isa), base::__VA_ARGS__)
#elif SPGNN_BUILT == 7
#define ON(isa, ...) ((isa) == 2 ? avx512::__VA_ARGS__ : (isa) == 1 ? avx2::__VA_ARGS__ : base::__VA_ARGS__)
#elif SPGNN_BUILT == 5
#define ON(isa, ...) ((isa) == 2 ? avx512::__VA_ARGS__ : base::__VA_ARGS__)
#elif SPGNN_BUILT == 3
#define ON(isa, ...) ((isa) == 1 ? avx2::__VA_ARGS__ : base::__VA_ARGS__)
#else
#define ON(isa, ...) ((void)(isa), base::__VA_ARGS__)
#endif

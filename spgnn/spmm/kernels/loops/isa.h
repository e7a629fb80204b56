// The instruction set that a file of loops is compiled for, SPGNN_ISA: 0 baseline, 1 AVX2, 2 AVX-512. setup.py compiles
// each file once for every one, and each has a namespace of its own. Included first. No function of the standard
// library may be left in these objects, as the linker keeps one copy for all: tests/spmm/test_instruction_sets.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "../../../native/cpu.h"
#include "../../../native/mix.h"
#include "arguments.h"

// SPGNN_BYTES: the width of a register; SPGNN_TILE: the number of accumulators that stay in registers.
#if !defined(SPGNN_DISPATCH) || !defined(SPGNN_ISA) || SPGNN_ISA == 0
#define SPGNN_SET base
#define SPGNN_BYTES 16
#define SPGNN_TILE 4
#elif SPGNN_ISA == 1
#define SPGNN_SET avx2
#define SPGNN_BYTES 32
#define SPGNN_TILE 8
#else
#define SPGNN_SET avx512
#define SPGNN_BYTES 64
#define SPGNN_TILE 16
#endif

#ifdef SPGNN_DISPATCH
#include <immintrin.h>
#if SPGNN_BYTES == 32
#pragma GCC target("avx2,fma")
#elif SPGNN_BYTES == 64
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,fma,prefer-vector-width=512")
#endif
#endif

namespace spgnn::SPGNN_SET {
#include "declarations.h"
}  // namespace spgnn::SPGNN_SET

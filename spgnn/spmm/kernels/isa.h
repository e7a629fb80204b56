// Includes SPGNN_LOOPS, a header of loops, once for each instruction set, in namespaces base, avx2 and
// avx512: one build for every machine, the best that the processor has is chosen at run time.
// Needs parallel.h.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "storage.h"

#ifdef SPGNN_DISPATCH
#include <immintrin.h>
#endif

namespace base {
#define SPGNN_BYTES 16
#define SPGNN_TILE 8
#include "lanes.h"
#include SPGNN_LOOPS
#undef SPGNN_BYTES
#undef SPGNN_TILE
}  // namespace base

#ifdef SPGNN_DISPATCH
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define SPGNN_BYTES 32
#define SPGNN_TILE 8
#include "lanes.h"
#include SPGNN_LOOPS
#undef SPGNN_BYTES
#undef SPGNN_TILE
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,fma,prefer-vector-width=512")
namespace avx512 {
#define SPGNN_BYTES 64
#define SPGNN_TILE 16
#include "lanes.h"
#include SPGNN_LOOPS
#undef SPGNN_BYTES
#undef SPGNN_TILE
}  // namespace avx512
#pragma GCC pop_options
#endif

// Call the same function of the chosen instruction set.
#ifdef SPGNN_DISPATCH
#define ON(isa, ...) ((isa) == 2 ? avx512::__VA_ARGS__ : (isa) == 1 ? avx2::__VA_ARGS__ : base::__VA_ARGS__)
#else
#define ON(isa, ...) (base::__VA_ARGS__)
#endif

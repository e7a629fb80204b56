// What the files of the module share.
#pragma once

#include <nanobind/stl/vector.h>

#include "../native/arrays.h"

namespace spgnn {

// Weights of nonzeros: float32, float64, or None for 1.
struct Weights {
    explicit Weights(const Given& array) : single(data_or_null<float>(array)), twice(data_or_null<double>(array)) {
        require(array.is_none() || single || twice,
                "weights must be a contiguous vector of float32 or float64, or None");
    }
    double operator[](int64_t e) const { return single ? double(single[e]) : twice ? twice[e] : 1.0; }
    const float* single;
    const double* twice;
};

constexpr int64_t ROWS_AHEAD = 8;  // rows by which reads are prefetched

// Prefetches the first four cache lines of a row of A. Its entry of indptr is read, and has to be in the cache.
inline void prefetch_row(const int64_t* indptr, const int32_t* indices, int64_t row) {
    const int64_t end = indptr[row + 1] < indptr[row] + 64 ? indptr[row + 1] : indptr[row] + 64;
    for (int64_t e = indptr[row]; e < end; e += 16) __builtin_prefetch(indices + e);
}

void define_induce(nb::module_& m);
void define_operators(nb::module_& m);
void define_draws(nb::module_& m);
void define_frontier(nb::module_& m);
void define_blocks(nb::module_& m);

}  // namespace spgnn

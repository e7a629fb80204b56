// What the files of the module share.
#pragma once

#include "../native/arrays.h"

namespace spgnn {

// Weights of nonzeros: float32, float64, or None for 1.
struct Weights {
    explicit Weights(const py::object& array) : single(data_or_null<float>(array)), twice(data_or_null<double>(array)) {
        require(array.is_none() || single || twice,
                "weights must be a contiguous vector of float32 or float64, or None");
    }
    double operator[](int64_t e) const { return single ? double(single[e]) : twice ? twice[e] : 1.0; }
    const float* single;
    const double* twice;
};

void define_induce(py::module_& m);
void define_operators(py::module_& m);
void define_draws(py::module_& m);
void define_frontier(py::module_& m);
void define_blocks(py::module_& m);
void define_shadow(py::module_& m);

}  // namespace spgnn

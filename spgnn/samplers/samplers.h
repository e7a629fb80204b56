// What the files of the module share.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "../partition/arrays.h"

namespace py = pybind11;

namespace spgnn {

// Return f(pointer) of the indices of a graph, int32 or int64.
template <class F>
auto on_indices(const py::array& indices, F f) {
    if (py::isinstance<Array<int32_t>>(indices)) return f(static_cast<const int32_t*>(indices.data()));
    check(py::isinstance<Array<int64_t>>(indices), "indices must be a contiguous vector of int32 or int64");
    return f(static_cast<const int64_t*>(indices.data()));
}

// An array that may be missing: its data, or nullptr for None or for another dtype.
template <class T>
const T* data_or_null(const py::object& array) {
    return py::isinstance<Array<T>>(array) ? py::reinterpret_borrow<Array<T>>(array).data() : nullptr;
}

// Weights of nonzeros: float32, float64, or None for 1.
struct Weights {
    explicit Weights(const py::object& array) : single(data_or_null<float>(array)), twice(data_or_null<double>(array)) {
        check(array.is_none() || single || twice, "weights must be a contiguous vector of float32 or float64, or None");
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

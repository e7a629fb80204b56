// What the bindings of this folder take: contiguous arrays, and checks whose message becomes a ValueError.
#pragma once

#include <pybind11/numpy.h>

#include <stdexcept>

namespace spgnn {

template <class T>
using Array = pybind11::array_t<T, pybind11::array::c_style>;

inline void check(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

}  // namespace spgnn

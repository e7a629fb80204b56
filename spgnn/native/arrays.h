// Arrays that bindings take and return, and checks whose message becomes a ValueError.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

namespace spgnn {

namespace py = pybind11;

template <class T>
using Array = py::array_t<T, py::array::c_style>;

inline void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

template <class T>
bool has_shape(const Array<T>& M, int64_t rows, int64_t columns) {
    return M.ndim() == 2 && M.shape(0) == rows && M.shape(1) == columns;
}

// An array of this very type, contiguous; it may be written in place.
template <class T>
Array<T> exactly(const py::object& array) {
    require(py::isinstance<Array<T>>(array), "an array is of another type than the others, or not contiguous");
    return py::reinterpret_borrow<Array<T>>(array);
}

// The data of an array of this type; null for None and for another type.
template <class T>
const T* data_or_null(const py::object& array) {
    return py::isinstance<Array<T>>(array) ? py::reinterpret_borrow<Array<T>>(array).data() : nullptr;
}

// f(pointer) of indices, int32 or int64.
template <class F>
auto on_indices(const py::array& indices, F f) {
    if (const auto* narrow = data_or_null<int32_t>(indices)) return f(narrow);
    const auto* wide = data_or_null<int64_t>(indices);
    require(wide != nullptr, "indices must be a contiguous vector of int32 or int64");
    return f(wide);
}

template <class Index>
void check_csr(const Array<int64_t>& indptr, const Array<Index>& indices, int64_t columns) {
    require(indptr.ndim() == 1 && indices.ndim() == 1 && indptr.size() > 0, "indptr and indices must be vectors");
    const int64_t *p = indptr.data(), n = indptr.size() - 1;
    require(p[0] == 0 && p[n] == indices.size(), "indptr must rise from 0 to the number of nonzeros");
    for (int64_t i = 0; i < n; ++i) require(p[i] <= p[i + 1], "indptr must rise from 0 to the number of nonzeros");
    const Index* j = indices.data();
    bool in_range = true;
    for (int64_t e = 0; e < indices.size(); ++e) in_range &= j[e] >= 0 && j[e] < columns;
    require(in_range, "a column index is out of range");
    require(n < std::numeric_limits<int32_t>::max() && columns < std::numeric_limits<int32_t>::max(),
            "2^31 rows or columns are too many");
}

template <class T, class Memory>
py::array_t<T> array_of(const std::vector<T, Memory>& values) {
    return py::array_t<T>(py::ssize_t(values.size()), values.data());
}

// An array that NumPy will own; it is filled without Python's lock.
template <class T>
struct Owned {
    Owned() = default;
    explicit Owned(int64_t size) : data(new T[size_t(size)]), size(size) {}

    py::array_t<T> release() {
        T* held = data.release();
        return py::array_t<T>(size, held, py::capsule(held, [](void* memory) { delete[] static_cast<T*>(memory); }));
    }

    std::unique_ptr<T[]> data;
    int64_t size = 0;
};

}  // namespace spgnn

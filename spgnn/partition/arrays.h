// What the bindings of spgnn.partition take and return: contiguous arrays, and checks whose message becomes a
// ValueError.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

namespace spgnn {

template <class T>
using Array = pybind11::array_t<T, pybind11::array::c_style>;

inline void check(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

template <class Index>
void check_csr(const Array<int64_t>& indptr, const Array<Index>& indices, int64_t columns) {
    check(indptr.ndim() == 1 && indices.ndim() == 1 && indptr.size() > 0, "indptr and indices must be vectors");
    const int64_t *p = indptr.data(), n = indptr.size() - 1;
    check(p[0] == 0 && p[n] == indices.size(), "indptr must rise from 0 to the number of nonzeros");
    for (int64_t i = 0; i < n; ++i) check(p[i] <= p[i + 1], "indptr must rise from 0 to the number of nonzeros");
    const Index* j = indices.data();
    bool in_range = true;
    for (int64_t e = 0; e < indices.size(); ++e) in_range &= j[e] >= 0 && j[e] < columns;
    check(in_range, "a column index is out of range");
    check(n < std::numeric_limits<int32_t>::max() && columns < std::numeric_limits<int32_t>::max(),
          "2^31 rows or columns are too many");
}

template <class T, class Memory>
pybind11::array_t<T> array_of(const std::vector<T, Memory>& values) {
    return pybind11::array_t<T>(pybind11::ssize_t(values.size()), values.data());
}

}  // namespace spgnn

// What the bindings of spgnn.spmm's loops share: checks of the arrays of a call.
#pragma once

#include <string>

#include "../../native/arrays.h"
#include "../../native/parallel.h"
#include "loops/loops.h"

namespace spgnn {

inline Pattern pattern_of(const Array<int64_t>& indptr, const py::array& indices) {
    require(indptr.ndim() == 1 && indptr.shape(0) > 0, "indptr must have a row count + 1 entries");
    const int64_t n = indptr.shape(0) - 1, nnz = indptr.data()[n];
    require(indices.ndim() == 1 && nnz == indices.shape(0), "indptr must end at the number of indices");
    return on_indices(indices, [&](const auto* j) { return Pattern{indptr.data(), j, sizeof(*j) == 8, n, nnz}; });
}

inline uint32_t drop_threshold(double rate) {
    require(rate >= 0 && rate < 1, "dropout: the rate must be in [0, 1)");
    return uint32_t(std::min(rate * 4294967296.0, 4294967295.0));
}

// drop: None or (key, rate, ids of the n rows, ids of the c columns).
inline EdgeDrop edge_drop(const py::object& drop, int64_t n, int64_t c) {
    if (drop.is_none()) return {};
    const auto parts = py::cast<py::tuple>(drop);
    require(parts.size() == 4, "drop: (key, rate, ids of rows, ids of columns)");
    const auto ids = [&](int i, int64_t count) {
        const auto array = exactly<int64_t>(parts[i]);
        require(array.ndim() == 1 && array.shape(0) == count, "drop: one id per row and column");
        return array.data();
    };
    const double rate = py::cast<double>(parts[1]);
    return {true, py::cast<uint64_t>(parts[0]), drop_threshold(rate), 1 / (1 - rate), ids(2, n), ids(3, c)};
}

// body(begin, end, number) over chunks of rows that cost their nonzeros times the width.
template <class Body>
void over_rows(const int64_t* indptr, int64_t n, int64_t width, int threads, const Body& body) {
    over_chunks(balanced(indptr, n, indptr[n] * width < (1 << 15) ? 1 : 64 * threads), threads, body);
}
void define_products(py::module_& m);
void define_dense(py::module_& m);
void define_edges(py::module_& m);
void define_gemm(py::module_& m);

}  // namespace spgnn

// What the bindings of spgnn.spmm's loops share: checks of the arrays of a call.
#pragma once

#include <nanobind/stl/string.h>

#include <string>

#include "../../native/arrays.h"
#include "../../native/parallel.h"
#include "loops/loops.h"

namespace spgnn {

inline Pattern pattern_of(const Array<int64_t>& indptr, const AnyArray& indices) {
    require(indptr.ndim() == 1 && indptr.shape(0) > 0, "indptr must have a row count + 1 entries");
    const int64_t n = indptr.shape(0) - 1, nnz = indptr.data()[n];
    require(indices.ndim() == 1 && nnz == indices.shape(0), "indptr must end at the number of indices");
    return on_indices(indices, [&](const auto* j) { return Pattern{indptr.data(), j, sizeof(*j) == 8, n, nnz}; });
}

inline uint32_t drop_threshold(double rate) {
    require(rate >= 0 && rate < 1, "dropout: the rate must be in [0, 1)");
    return uint32_t(std::min(rate * 4294967296.0, 4294967295.0));
}

// A matrix of this shape, or the empty array for None.
template <class T>
Array<T> matrix_of(nb::handle given, int64_t rows, int64_t columns, const char* message) {
    auto array = exactly_or_none<T>(given);
    require(given.is_none() || has_shape(array, rows, columns), message);
    return array;
}

// A vector of this length, or the empty array for None.
template <class T>
Array<T> vector_of(nb::handle given, int64_t size, const char* message) {
    auto array = exactly_or_none<T>(given);
    require(given.is_none() || (array.ndim() == 1 && array.size() == size), message);
    return array;
}

// drop: None or (key, rate, ids of the n rows, ids of the c columns).
inline EdgeDrop edge_drop(const Given& drop, int64_t n, int64_t c) {
    if (drop.is_none()) return {};
    require(nb::isinstance<nb::tuple>(drop) && nb::len(drop) == 4, "drop: (key, rate, ids of rows, ids of columns)");
    const auto parts = nb::cast<nb::tuple>(drop);
    const auto ids = [&](int i, int64_t count) {
        const auto array = exactly<int64_t>(parts[i]);
        require(array.ndim() == 1 && array.shape(0) == count, "drop: one id per row and column");
        return array.data();
    };
    const double rate = nb::cast<double>(parts[1]);
    return {true, nb::cast<uint64_t>(parts[0]), drop_threshold(rate), 1 / (1 - rate), ids(2, n), ids(3, c)};
}

constexpr int64_t ANY_COLUMN = std::numeric_limits<int64_t>::max();

// Raises where rows [begin, end) are not rows of a CSR with this number of columns.
inline void check_rows(const Pattern& A, int64_t columns, int isa, int64_t begin, int64_t end) {
    require(ON(isa, rise(A.indptr, begin, end, A.nnz)), "indptr must rise from 0 to the number of nonzeros");
    const int64_t first = A.indptr[begin], count = A.indptr[end] - first;
    require(columns == ANY_COLUMN ||
                (A.is_wide ? ON(isa, are_below(static_cast<const int64_t*>(A.indices) + first, count, columns))
                           : ON(isa, are_below(static_cast<const int32_t*>(A.indices) + first, count, columns))),
            "a column index is out of range");
}

// body(isa, begin, end, number) over chunks, by the loops of a named instruction set, without Python's lock.
template <class Body>
void in_chunks(const std::vector<int64_t>& bounds, int threads, const std::string& isa_name, const Body& body) {
    const int isa = chosen_isa(isa_name);
    nb::gil_scoped_release unlocked;
    over_chunks(bounds, chosen_threads(threads),
                [&](int64_t begin, int64_t end, int64_t number) { body(isa, begin, end, number); });
}

// The same over chunks of rows that cost their nonzeros times the width. Each chunk is checked just before the pass
// that reads it, which then finds it in the cache.
template <class Body>
void over_rows(const Pattern& A, int64_t columns, int64_t width, int threads, const std::string& isa_name,
               const Body& body) {
    const int64_t chunks = A.nnz * width < (1 << 15) ? 1 : 64 * chosen_threads(threads);
    in_chunks(balanced(A.indptr, A.n, chunks), threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t) {
        check_rows(A, columns, isa, begin, end);
        body(isa, begin, end);
    });
}

// The sums over chunks, one row of `width` for each, in order.
inline Array<double> total_of(const std::vector<std::vector<double>>& parts, int64_t width) {
    Array<double> sums(width);
    double* total = sums.mutable_data();
    std::fill_n(total, width, 0.0);
    for (const auto& part : parts)
        for (size_t f = 0; f < part.size(); ++f) total[f] += part[f];
    return sums;
}

void define_products(nb::module_& m);
void define_dense(nb::module_& m);
void define_edges(nb::module_& m);
void define_gemm(nb::module_& m);

}  // namespace spgnn

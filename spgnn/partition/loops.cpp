// The loops of spgnn.partition, checked and bound. std::thread, not OpenMP: torch brings an OpenMP of
// its own. Python's lock is released in every loop.

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "cover.h"
#include "locality.h"
#include "similarity.h"

namespace py = pybind11;

namespace {

using spgnn::Array;
using spgnn::Block;
using spgnn::Buckets;
using spgnn::by_degree;
using spgnn::check;
using spgnn::Communities;
using spgnn::in_parallel;
using spgnn::NONE;
using spgnn::reading_cost;

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

template <class T>
py::array_t<T> vector_of(const std::vector<T>& values) {
    return py::array_t<T>(py::ssize_t(values.size()), values.data());
}

// Covers of the ranges bounds[b] .. bounds[b + 1] - 1 of the columns:
// (is a column in its cover, rows range after range, where each range's rows start, nonzeros that move).
template <class Index>
py::tuple range_covers(const Array<int64_t>& indptr, const Array<Index>& indices, int64_t columns,
                       const Array<int64_t>& bounds, int threads) {
    py::array_t<bool> is_cover(columns);
    std::vector<int64_t> rows, rows_ptr(1, 0), moved, nonempty;
    bool* mark = is_cover.mutable_data();
    {
        py::gil_scoped_release free;
        check_csr(indptr, indices, columns);
        check(bounds.ndim() == 1 && bounds.size() > 0, "bounds must be a vector");
        const int64_t ranges = bounds.size() - 1, n = indptr.size() - 1;
        const int64_t* bound = bounds.data();
        check(bound[0] == 0 && bound[ranges] == columns, "bounds must rise from 0 to the number of columns");
        for (int64_t b = 0; b < ranges; ++b)
            check(bound[b] <= bound[b + 1], "bounds must rise from 0 to the number of columns");
        std::vector<int32_t> range_of(columns);
        for (int64_t b = 0; b < ranges; ++b)
            std::fill(range_of.begin() + bound[b], range_of.begin() + bound[b + 1], int32_t(b));
        Buckets all;
        all.fill(
            indptr.data(), indices.data(), n, [](int64_t i) { return i; },
            [&](int64_t j) { return int64_t(range_of[j]); }, ranges);
        std::fill(mark, mark + columns, false);
        std::vector<std::vector<int32_t>> rows_of(ranges);
        moved.resize(ranges);
        nonempty.resize(ranges);
        in_parallel(
            ranges, threads, [&] { return Block(columns, n); },
            [&](Block& block, int64_t b) {
                block.solve(all.column.data() + all.start[b], all.row.data() + all.start[b],
                            all.start[b + 1] - all.start[b]);
                for (int32_t j : block.cover_columns) mark[j] = true;
                rows_of[b] = block.cover_rows;
                moved[b] = block.moved;
                nonempty[b] = block.columns;
            });
        for (const auto& of_range : rows_of) {
            rows.insert(rows.end(), of_range.begin(), of_range.end());
            rows_ptr.push_back(int64_t(rows.size()));
        }
    }
    return py::make_tuple(is_cover, vector_of(rows), vector_of(rows_ptr), vector_of(moved), vector_of(nonempty));
}

// (3, k, k): columns in the cover, rows in it and nonzeros that move, of the block (q owns, p reads).
// order: nodes by part; ends[p]: where part p ends in it.
template <class Index>
py::array_t<int64_t> pair_covers(const Array<int64_t>& indptr, const Array<Index>& indices, const Array<int32_t>& owner,
                                 const Array<int64_t>& order, const Array<int64_t>& ends, int threads) {
    const int64_t n = indptr.size() - 1, k = ends.size();
    py::array_t<int64_t> table({int64_t(3), k, k});
    int64_t* out = table.mutable_data();
    py::gil_scoped_release free;
    check_csr(indptr, indices, n);
    check(owner.size() == n && order.size() == n && (k == 0 || ends.data()[k - 1] == n),
          "owner, order and ends do not fit the matrix");
    for (int64_t i = 0; i < n; ++i) {
        check(owner.data()[i] >= 0 && owner.data()[i] < k, "an owner is not a part");
        check(order.data()[i] >= 0 && order.data()[i] < n, "order names a node that does not exist");
    }
    for (int64_t p = 0; p < k; ++p) check(ends.data()[p] >= (p ? ends.data()[p - 1] : 0), "ends must rise");
    std::fill(out, out + 3 * k * k, 0);
    auto make = [&] { return std::make_pair(Block(n, n), Buckets()); };
    in_parallel(k, threads, make, [&](std::pair<Block, Buckets>& state, int64_t p) {
        auto& [block, mine] = state;
        const int64_t first = p ? ends.data()[p - 1] : 0;
        const int64_t* rows = order.data() + first;
        auto owner_of = [&](int64_t j) { return owner.data()[j] == p ? int64_t(NONE) : int64_t(owner.data()[j]); };
        mine.fill(
            indptr.data(), indices.data(), ends.data()[p] - first, [&](int64_t i) { return rows[i]; }, owner_of, k);
        for (int64_t q = 0; q < k; ++q) {
            if (mine.start[q] == mine.start[q + 1]) continue;
            block.solve(mine.column.data() + mine.start[q], mine.row.data() + mine.start[q],
                        mine.start[q + 1] - mine.start[q]);
            out[q * k + p] = int64_t(block.cover_columns.size());
            out[(k + q) * k + p] = int64_t(block.cover_rows.size());
            out[(2 * k + q) * k + p] = block.moved;
        }
    });
    return table;
}

// The cheapest of the orders in locality.h, empty where none costs at most `enough` of what the rows as they stand do;
// what reading costs as they stand, and in that order.
template <class Index>
py::tuple local_order(const Array<int64_t>& indptr, const Array<Index>& indices, double enough) {
    const int64_t n = indptr.size() - 1, *starts = indptr.data();
    const Index* columns = indices.data();
    std::vector<int32_t> best;
    int64_t now = 0, least = 0;
    {
        py::gil_scoped_release free;
        check_csr(indptr, indices, n);
        now = least = reading_cost(starts, columns, n, nullptr);
        auto compare = [&](std::vector<int32_t> order) {
            const int64_t cost = reading_cost(starts, columns, n, order.data());
            if (double(cost) <= enough * double(now) && cost < least) least = cost, best = std::move(order);
        };
        compare(by_degree(starts, n));
        compare(Communities().order(starts, columns, n));
    }
    return py::make_tuple(vector_of(best), now, least);
}

// x_i . x_j for each nonzero (i, j) of a pattern with sorted int64 indices; x (n, f).
template <class Real>
py::array_t<double> dense_dots(const Array<int64_t>& indptr, const Array<int64_t>& indices, const Array<Real>& x,
                               int threads) {
    py::array_t<double> dots(indices.size());
    double* out = dots.mutable_data();
    py::gil_scoped_release free;
    check(x.ndim() == 2 && x.shape(0) == indptr.size() - 1, "x must have a row for each row of the pattern");
    check_csr(indptr, indices, x.shape(0));
    spgnn::dense_dots(indptr.data(), indices.data(), x.shape(0), x.data(), x.shape(1), out, threads);
    return dots;
}

// The same for x in CSR.
template <class Index, class Real>
py::array_t<double> sparse_dots(const Array<int64_t>& indptr, const Array<int64_t>& indices,
                                const Array<int64_t>& x_indptr, const Array<Index>& x_indices,
                                const Array<Real>& x_data, int64_t features, int threads) {
    py::array_t<double> dots(indices.size());
    double* out = dots.mutable_data();
    py::gil_scoped_release free;
    check(x_indptr.size() == indptr.size() && x_data.size() == x_indices.size(),
          "x must have a row for each row of the pattern");
    check_csr(indptr, indices, indptr.size() - 1);
    check_csr(x_indptr, x_indices, features);
    spgnn::sparse_dots(indptr.data(), indices.data(), indptr.size() - 1, x_indptr.data(), x_indices.data(),
                       x_data.data(), features, out, threads);
    return dots;
}

template <class Index, class Real>
void define_sparse_dots(py::module_& m) {
    m.def("sparse_dots", &sparse_dots<Index, Real>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("x_indptr").noconvert(), py::arg("x_indices").noconvert(), py::arg("x_data").noconvert(),
          py::arg("features"), py::arg("threads"));
}

template <class Real>
void define_dots(py::module_& m) {
    m.def("dense_dots", &dense_dots<Real>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("x").noconvert(), py::arg("threads"));
    define_sparse_dots<int32_t, Real>(m);
    define_sparse_dots<int64_t, Real>(m);
}

template <class Index>
void define(py::module_& m) {
    m.def("range_covers", &range_covers<Index>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("columns"), py::arg("bounds").noconvert(), py::arg("threads"));
    m.def("pair_covers", &pair_covers<Index>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("owner").noconvert(), py::arg("order").noconvert(), py::arg("ends").noconvert(), py::arg("threads"));
    m.def("local_order", &local_order<Index>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("enough"));
}

}  // namespace

PYBIND11_MODULE(_loops, m) {
    m.doc() =
        "Loops of spgnn.partition; call them through spgnn.partition's cover, entropy and locality, which make their "
        "arguments.";
    define<int32_t>(m);
    define<int64_t>(m);
    define_dots<float>(m);
    define_dots<double>(m);
}

// The extension of spgnn.partition: arguments checked, loops on several threads, Python's lock released.
// std::thread, not OpenMP: torch brings an OpenMP of its own.

#define SPGNN_MODULE

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "../native/arrays.h"
#include "cover.h"
#include "locality.h"
#include "similarity.h"

namespace spgnn {
namespace {

// Covers of the ranges bounds[b] .. bounds[b + 1] - 1 of the columns:
// (is a column in its cover, rows range after range, where each range's rows start, nonzeros that move).
nb::tuple range_covers(const Array<int64_t>& indptr, const Array<int32_t>& indices, int64_t columns,
                       const Array<int64_t>& bounds, int threads) {
    Array<bool> is_cover(columns);
    std::vector<int64_t> rows, rows_ptr(1, 0), moved;
    bool* mark = is_cover.mutable_data();
    {
        nb::gil_scoped_release free;
        check_csr(indptr, indices, columns);
        require(bounds.ndim() == 1 && bounds.size() > 0, "bounds must be a vector");
        const int64_t ranges = bounds.size() - 1, n = indptr.size() - 1;
        const int64_t* bound = bounds.data();
        require(bound[0] == 0 && bound[ranges] == columns, "bounds must rise from 0 to the number of columns");
        for (int64_t b = 0; b < ranges; ++b)
            require(bound[b] <= bound[b + 1], "bounds must rise from 0 to the number of columns");
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
        in_parallel(
            ranges, threads, [&] { return Block(columns, n); },
            [&](Block& block, int64_t b) {
                block.solve(all.column.data() + all.start[b], all.row.data() + all.start[b],
                            all.start[b + 1] - all.start[b]);
                for (int32_t j : block.cover_columns) mark[j] = true;
                rows_of[b] = block.cover_rows;
                moved[b] = block.moved;
            });
        for (const auto& of_range : rows_of) {
            rows.insert(rows.end(), of_range.begin(), of_range.end());
            rows_ptr.push_back(int64_t(rows.size()));
        }
    }
    return nb::make_tuple(is_cover, array_of(rows), array_of(rows_ptr), array_of(moved));
}

// (3, k, k): columns in the cover, rows in it and nonzeros that move, of the block (q owns, p reads).
Array<int64_t> pair_covers(const Array<int64_t>& indptr, const Array<int32_t>& indices, const Array<int32_t>& owner,
                           int64_t k, int threads) {
    const int64_t n = indptr.size() - 1;
    Array<int64_t> table({3, k, k});
    int64_t* out = table.mutable_data();
    nb::gil_scoped_release free;
    check_csr(indptr, indices, n);
    require(owner.size() == n, "owners do not fit the matrix");
    for (int64_t i = 0; i < n; ++i) require(owner.data()[i] >= 0 && owner.data()[i] < k, "an owner is not a part");
    const ByPart nodes(owner.data(), n, k);
    std::fill(out, out + 3 * k * k, 0);
    auto make = [&] { return std::make_pair(Block(n, n), Buckets()); };
    in_parallel(k, threads, make, [&](std::pair<Block, Buckets>& state, int64_t p) {
        auto& [block, mine] = state;
        auto owner_of = [&](int64_t j) { return owner.data()[j] == p ? int64_t(NONE) : int64_t(owner.data()[j]); };
        mine.fill(
            indptr.data(), indices.data(), nodes.count(p), [&](int64_t i) { return nodes.of(p)[i]; }, owner_of, k);
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

// Return (cheapest order of locality.h, cost of the present order, cost of the cheapest). The order is empty unless it
// costs at most `enough` times the present one.
nb::tuple local_order(const Array<int64_t>& indptr, const Array<int32_t>& indices, double enough, int threads) {
    const int64_t n = indptr.size() - 1, *starts = indptr.data();
    const int32_t* columns = indices.data();
    std::vector<int32_t> best;
    int64_t now = 0, least = 0;
    {
        nb::gil_scoped_release free;
        check_csr(indptr, indices, n);
        auto cost_of = [&](const int32_t* order) { return reading_cost(starts, columns, n, order); };
        std::vector<int32_t> falling;
        int64_t of_falling = 0;
        auto others = std::async(threads > 1 ? std::launch::async : std::launch::deferred, [&] {
            now = cost_of(nullptr);
            falling = by_degree(starts, n);
            of_falling = cost_of(falling.data());
        });
        std::vector<int32_t> near = Communities().order(starts, columns, n);
        const int64_t of_near = cost_of(near.data());
        others.get();
        least = now;
        auto compare = [&](std::vector<int32_t>& order, int64_t cost) {
            if (double(cost) <= enough * double(now) && cost < least) least = cost, best = std::move(order);
        };
        compare(falling, of_falling);
        compare(near, of_near);
    }
    return nb::make_tuple(array_of(best), now, least);
}

// x_i . x_j for each nonzero (i, j) of a pattern with sorted int64 indices; x (n, f).
template <class Real>
Array<double> dense_dots(const Array<int64_t>& indptr, const Array<int64_t>& indices, const Array<Real>& x,
                         int threads) {
    Array<double> dots(indices.size());
    double* out = dots.mutable_data();
    nb::gil_scoped_release free;
    require(x.ndim() == 2 && x.shape(0) == indptr.size() - 1, "x must have a row for each row of the pattern");
    check_csr(indptr, indices, x.shape(0));
    spgnn::dense_dots(indptr.data(), indices.data(), x.shape(0), x.data(), x.shape(1), out, threads);
    return dots;
}

// The same for x in CSR.
template <class Real>
Array<double> sparse_dots(const Array<int64_t>& indptr, const Array<int64_t>& indices, const Array<int64_t>& x_indptr,
                          const Array<int32_t>& x_indices, const Array<Real>& x_data, int64_t features, int threads) {
    Array<double> dots(indices.size());
    double* out = dots.mutable_data();
    nb::gil_scoped_release free;
    require(x_indptr.size() == indptr.size() && x_data.size() == x_indices.size(),
            "x must have a row for each row of the pattern");
    check_csr(indptr, indices, indptr.size() - 1);
    check_csr(x_indptr, x_indices, features);
    spgnn::sparse_dots(indptr.data(), indices.data(), indptr.size() - 1, x_indptr.data(), x_indices.data(),
                       x_data.data(), features, out, threads);
    return dots;
}

template <class Real>
void define_dots(nb::module_& m) {
    m.def("dense_dots", &dense_dots<Real>, nb::arg("indptr"), nb::arg("indices"), nb::arg("x"), nb::arg("threads"));
    m.def("sparse_dots", &sparse_dots<Real>, nb::arg("indptr"), nb::arg("indices"), nb::arg("x_indptr"),
          nb::arg("x_indices"), nb::arg("x_data"), nb::arg("features"), nb::arg("threads"));
}

}  // namespace
}  // namespace spgnn

namespace nb = nanobind;

NB_MODULE(_loops, m) {
    spgnn::import_numpy();
    m.doc() = "Loops of spgnn.partition; its cover, locality and entropy make their arguments.";
    m.def("range_covers", &spgnn::range_covers, nb::arg("indptr"), nb::arg("indices"), nb::arg("columns"),
          nb::arg("bounds"), nb::arg("threads"));
    m.def("pair_covers", &spgnn::pair_covers, nb::arg("indptr"), nb::arg("indices"), nb::arg("owner"), nb::arg("k"),
          nb::arg("threads"));
    m.def("local_order", &spgnn::local_order, nb::arg("indptr"), nb::arg("indices"), nb::arg("enough"),
          nb::arg("threads") = 1);
    spgnn::define_dots<float>(m);
    spgnn::define_dots<double>(m);
}

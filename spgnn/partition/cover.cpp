// Minimum covers of the blocks of a matrix: arguments checked, blocks on several threads, Python's lock released.

#include <pybind11/pybind11.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "../native/arrays.h"
#include "cover.h"
#include "loops.h"

namespace py = pybind11;

namespace spgnn {

// Covers of the ranges bounds[b] .. bounds[b + 1] - 1 of the columns:
// (is a column in its cover, rows range after range, where each range's rows start, nonzeros that move).
static py::tuple range_covers(const Array<int64_t>& indptr, const Array<int32_t>& indices, int64_t columns,
                              const Array<int64_t>& bounds, int threads) {
    py::array_t<bool> is_cover(columns);
    std::vector<int64_t> rows, rows_ptr(1, 0), moved;
    bool* mark = is_cover.mutable_data();
    {
        py::gil_scoped_release free;
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
    return py::make_tuple(is_cover, array_of(rows), array_of(rows_ptr), array_of(moved));
}

// (3, k, k): columns in the cover, rows in it and nonzeros that move, of the block (q owns, p reads).
// order: nodes by part; ends[p]: where part p ends in it.
static py::array_t<int64_t> pair_covers(const Array<int64_t>& indptr, const Array<int32_t>& indices,
                                        const Array<int32_t>& owner, const Array<int64_t>& order,
                                        const Array<int64_t>& ends, int threads) {
    const int64_t n = indptr.size() - 1, k = ends.size();
    py::array_t<int64_t> table({int64_t(3), k, k});
    int64_t* out = table.mutable_data();
    py::gil_scoped_release free;
    check_csr(indptr, indices, n);
    require(owner.size() == n && order.size() == n && (k == 0 || ends.data()[k - 1] == n),
            "owner, order and ends do not fit the matrix");
    for (int64_t i = 0; i < n; ++i) {
        require(owner.data()[i] >= 0 && owner.data()[i] < k, "an owner is not a part");
        require(order.data()[i] >= 0 && order.data()[i] < n, "order names a node that does not exist");
    }
    for (int64_t p = 0; p < k; ++p) require(ends.data()[p] >= (p ? ends.data()[p - 1] : 0), "ends must rise");
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

void define_cover(py::module_& m) {
    m.def("range_covers", &range_covers, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("columns"), py::arg("bounds").noconvert(), py::arg("threads"));
    m.def("pair_covers", &pair_covers, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("owner").noconvert(), py::arg("order").noconvert(), py::arg("ends").noconvert(), py::arg("threads"));
}

}  // namespace spgnn

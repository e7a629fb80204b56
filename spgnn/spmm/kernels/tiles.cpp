// Long rows of a CSR in tiles, for the first columns where these hold much: the product, and the cutting.

#include "parallel.h"
#define SPGNN_LOOPS "tiles.h"
#include "isa.h"

namespace {

using base::TILE_COLUMNS;
constexpr int64_t BLOCK_ROWS = 512;  // at most, which share the rows of X of a tile
constexpr int64_t BLOCKS_A_THREAD = 16;
static_assert(sizeof(base::Block) == 4 * sizeof(int64_t) && TILE_COLUMNS <= 256);

template <class SX, class SY>
void multiply_tiles(const Array<int64_t>& blocks, const Array<uint8_t>& counts, const Array<uint8_t>& indices,
                    const py::object& weights, const Array<SX>& X, Array<SY>& Y, bool accumulate,
                    const Array<int64_t>& rows, int threads, const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    require(X.ndim() == 2 && Y.ndim() == 2 && X.shape(1) == Y.shape(1),
            "spmm_tiles: X and Y must be matrices of one width");
    require(blocks.ndim() == 2 && blocks.shape(0) > 0 && blocks.shape(1) == 4,
            "spmm_tiles: blocks must be a matrix of four columns");
    const int64_t n = blocks.shape(0) - 1, *ends = blocks.data() + 4 * n;
    require(ends[0] == rows.shape(0) && ends[2] == counts.shape(0) && ends[3] == indices.shape(0),
            "spmm_tiles: blocks must end with the rows, counts and indices");
    Array<T> w;
    if (!weights.is_none()) {
        w = py::cast<Array<T>>(weights);
        require(w.shape(0) == ends[3], "spmm_tiles: one weight a nonzero");
    }
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    const int64_t *table = blocks.data(), *places = rows.data(), width = Y.shape(1);
    const uint8_t *count = counts.data(), *index = indices.data();
    const T* ww = weights.is_none() ? nullptr : w.data();
    const SX* x = X.data();
    SY* y = Y.mutable_data();
    py::gil_scoped_release unlocked;
    over_chunks(even(n, 1), threads, [&](int64_t begin, int64_t end, int64_t) {
#define SPGNN_ROWS(set)                                                                                            \
    set::rows(set::Tiled<SX, SY>{reinterpret_cast<const set::Block*>(table), count, index, ww, x, width, y, width, \
                                 places, accumulate},                                                              \
              begin, end, width)
#ifdef SPGNN_DISPATCH
        if (isa == 2) return SPGNN_ROWS(avx512);
        if (isa == 1) return SPGNN_ROWS(avx2);
#endif
        SPGNN_ROWS(base);
#undef SPGNN_ROWS
    });
}

// (blocks, counts, indices, weights, nonzeros of each row that are in tiles): rows of a list in blocks, each with
// tiles from column 0 on, up to the first in which a row has less than `least` nonzeros on average, or a column less
// than `uses`: blocks are the lower the more threads share the rows. Columns must rise within a row.
template <class I, class T>
py::tuple cut_tiles(const Array<int64_t>& indptr, const Array<I>& indices, const py::object& weights,
                    const Array<int64_t>& rows, int64_t m, int64_t least, int64_t uses, int threads) {
    const int64_t n = rows.shape(0), *starts = indptr.data(), *row = rows.data();
    require(indptr.ndim() == 1 && indptr.shape(0) > 0 && starts[indptr.shape(0) - 1] == indices.shape(0),
            "cut_tiles: indptr must end at the number of indices");
    const Array<T> w = weights.is_none() ? Array<T>(0) : py::cast<Array<T>>(weights);
    require(weights.is_none() || w.shape(0) == indices.shape(0), "cut_tiles: one weight a nonzero");
    const I* columns = indices.data();
    const T* weight = weights.is_none() ? nullptr : w.data();
    threads = chosen_threads(threads);
    Array<int64_t> taken(n);
    int64_t* take = taken.mutable_data();
    std::vector<base::Block> blocks;
    std::vector<std::vector<uint8_t>> found;
    {
        py::gil_scoped_release unlocked;
        int64_t total = 0;
        for (int64_t i = 0; i < n; ++i) total += starts[row[i] + 1] - starts[row[i]];
        const int64_t most =
            std::max<int64_t>(1, total / (BLOCKS_A_THREAD * threads));  // nonzeros of a block, or one row
        for (int64_t i = 0, held = 0; i < n; ++i) {
            const int64_t length = starts[row[i] + 1] - starts[row[i]];
            if (blocks.empty() || i - blocks.back().row == BLOCK_ROWS || held + length > most) {
                blocks.push_back({i, 0, 0, 0});
                held = 0;
            }
            held += length;
        }
        blocks.push_back({n, 0, 0, 0});
        found.resize(blocks.size() - 1);
        std::vector<int64_t> nonzeros(found.size());
        over_chunks(even(int64_t(found.size()), 1), threads, [&](int64_t b, int64_t, int64_t) {
            const int64_t begin = blocks[b].row, height = blocks[b + 1].row - begin;
            std::vector<uint8_t>& counts = found[b];
            std::fill_n(take + begin, height, 0);
            for (int64_t bound = TILE_COLUMNS; bound - TILE_COLUMNS < m; bound += TILE_COLUMNS) {
                int64_t held = 0, longest = 0;
                for (int64_t i = begin; i < begin + height; ++i) {
                    const int64_t first = starts[row[i]] + take[i], stop = starts[row[i] + 1];
                    int64_t e = first;
                    while (e < stop && int64_t(columns[e]) < bound) ++e;
                    counts.push_back(uint8_t(e - first));
                    held += e - first;
                    longest = std::max(longest, e - first);
                }
                if (held < std::max(least * height, uses * TILE_COLUMNS) ||
                    longest > 255) {  // duplicates could be more
                    counts.resize(blocks[b].tiles * height);
                    break;
                }
                for (int64_t i = 0; i < height; ++i) take[begin + i] += counts[blocks[b].tiles * height + i];
                ++blocks[b].tiles;
                nonzeros[b] += held;
            }
        });
        for (size_t b = 0; b < found.size(); ++b) {
            blocks[b + 1].count = blocks[b].count + int64_t(found[b].size());
            blocks[b + 1].nonzero = blocks[b].nonzero + nonzeros[b];
        }
    }
    const int64_t held = blocks.back().nonzero;
    Array<int64_t> table({int64_t(blocks.size()), int64_t(4)});
    Array<uint8_t> counts(blocks.back().count), within(held);
    Array<T> kept(weight ? held : 0);
    std::copy_n(&blocks[0].row, 4 * blocks.size(), table.mutable_data());
    uint8_t *count = counts.mutable_data(), *index = within.mutable_data();
    T* keep = kept.mutable_data();
    {
        py::gil_scoped_release unlocked;
        over_chunks(even(int64_t(found.size()), 1), threads, [&](int64_t b, int64_t, int64_t) {
            const int64_t begin = blocks[b].row, height = blocks[b + 1].row - begin;
            std::copy(found[b].begin(), found[b].end(), count + blocks[b].count);
            std::vector<int64_t> next(height);
            for (int64_t i = 0; i < height; ++i) next[i] = starts[row[begin + i]];
            const uint8_t* length = found[b].data();
            for (int64_t t = 0, to = blocks[b].nonzero; t < blocks[b].tiles; ++t)
                for (int64_t i = 0; i < height; ++i, ++length)
                    for (int64_t end = next[i] + *length; next[i] < end; ++next[i], ++to) {
                        index[to] = uint8_t(columns[next[i]] - t * TILE_COLUMNS);
                        if (weight) keep[to] = weight[next[i]];
                    }
        });
    }
    return py::make_tuple(table, counts, within, weight ? py::object(kept) : py::none(), taken);
}

template <class I>
void define_tiles(py::module_& m) {
    m.def(
        "cut_tiles",
        [](const Array<int64_t>& indptr, const Array<I>& indices, const py::object& weights, const Array<int64_t>& rows,
           int64_t columns, int64_t least, int64_t uses, int threads) {
            const bool is_double = !weights.is_none() && py::cast<py::array>(weights).itemsize() == sizeof(double);
            return is_double ? cut_tiles<I, double>(indptr, indices, weights, rows, columns, least, uses, threads)
                             : cut_tiles<I, float>(indptr, indices, weights, rows, columns, least, uses, threads);
        },
        py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights"), py::arg("rows").noconvert(),
        py::arg("m"), py::arg("least"), py::arg("uses"), py::arg("threads") = 0);
}

template <class SX, class SY>
void define_product(py::module_& m) {
    m.def("spmm_tiles", &multiply_tiles<SX, SY>, py::arg("blocks").noconvert(), py::arg("counts").noconvert(),
          py::arg("indices").noconvert(), py::arg("weights"), py::arg("X").noconvert(), py::arg("Y").noconvert(),
          py::arg("accumulate"), py::arg("rows").noconvert(), py::arg("threads") = 0, py::arg("isa") = "");
}

}  // namespace

void define_tiling(py::module_& m) {
    m.attr("TILE_COLUMNS") = TILE_COLUMNS;
    define_product<float, float>(m);
    define_product<double, double>(m);
    define_product<bfloat16, float>(m);
    define_tiles<int32_t>(m);
    define_tiles<int64_t>(m);
}

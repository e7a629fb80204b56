// Bindings of sparse times dense. Python's lock is released in every loop.

#include <algorithm>
#include <numeric>

#include "bindings.h"

namespace spgnn {

namespace {

// CSR times row-major dense, and rows taken from a matrix.

// The product as it is defined, which the loops of columns.h make faster: also for columns beyond 32 bits.
template <class SX, class SY, class I>
void plain_rows(const Product<SX, SY>& p, const I* indices, int64_t begin, int64_t end, int64_t width) {
    typedef typename Product<SX, SY>::T T;
    std::vector<T> sum(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
        const int64_t place = (p.rows ? p.rows[row] : row) * width;
        for (int64_t f = 0; f < width; ++f) sum[f] = p.accumulate ? T(widen(p.Y[place + f])) : T(0);
        for (int64_t e = p.indptr[row]; e < p.indptr[row + 1]; ++e)
            for (int64_t f = 0; f < width; ++f)
                sum[f] += (p.weights ? p.weights[e] : T(1)) * widen(p.X[int64_t(indices[e]) * width + f]);
        for (int64_t f = 0; f < width; ++f) {
            const T z = sum[f] + (p.add ? p.add[place + f] : T(0)) + (p.bias ? p.bias[f] : T(0));
            narrow(p.relu && z < 0 ? T(0) : z, p.Y[place + f]);
        }
    }
}

// is_checked: the caller knows that all indices are columns, as LocalCSR does.
template <class SX, class SY>
void spmm(const Array<int64_t>& indptr, const AnyArray& indices, const Given& weights, const Array<SX>& X, Array<SY>& Y,
          bool accumulate, const Given& bias, bool relu, int threads, const std::string& isa_name, const Given& add,
          const Given& rows, bool is_checked) {
    typedef typename Compute<SX>::type T;
    require(X.ndim() == 2 && Y.ndim() == 2 && X.shape(1) == Y.shape(1), "spmm: X and Y must be matrices of one width");
    const auto listed = exactly_or_none<int64_t>(rows);
    const int64_t n = rows.is_none() ? Y.shape(0) : listed.shape(0), width = Y.shape(1);
    require(indptr.ndim() == 1 && indptr.shape(0) == n + 1,
            "spmm: indptr must have rows of Y, or of the list, + 1 entries");
    const Pattern A = pattern_of(indptr, indices);
    const auto w = vector_of<T>(weights, A.nnz, "spmm: one weight per nonzero");
    const auto b = vector_of<T>(bias, width, "spmm: one bias per column");
    const auto a = matrix_of<T>(add, Y.shape(0), width, "spmm: add must have the shape of Y");
    const int64_t m = X.shape(0), height = Y.shape(0);
    const Product<SX, SY> p{A.indptr,
                            A.is_wide ? nullptr : static_cast<const int32_t*>(A.indices),
                            w.data(),
                            X.data(),
                            width,
                            Y.mutable_data(),
                            width,
                            b.data(),
                            a.data(),
                            accumulate,
                            relu,
                            A.nnz,
                            rows.is_none() ? nullptr : listed.data()};
    over_rows(A, is_checked ? ANY_COLUMN : m, width, threads, isa_name, [&](int isa, int64_t begin, int64_t end) {
        if (p.rows)
            require(ON(isa, are_below(p.rows + begin, end - begin, height)), "spmm: a row of the list is out of range");
        if (A.is_wide)
            plain_rows(p, static_cast<const int64_t*>(A.indices), begin, end, width);
        else
            ON(isa, rows(p, begin, end, width));
    });
}

// Whether a square CSR with sorted indices is its own transpose, weights to the bit. Rows are visited in order, so
// that the nonzeros of column j are met in the order in which row j stores their mirror images.
template <class I>
bool equals_transpose(const Array<int64_t>& indptr, const Array<I>& indices, const Given& weights) {
    const int64_t n = indptr.shape(0) - 1;
    require(indptr.ndim() == 1 && n >= 0 && indptr.data()[n] == indices.shape(0),
            "equals_transpose: indptr must end at the number of indices");
    AnyArray of;
    require(weights.is_none() || (of.take(weights) && of.size() == indices.shape(0)),
            "equals_transpose: one weight per nonzero, contiguous");
    const uint32_t* words = of.itemsize() == 4 && of.size() ? static_cast<const uint32_t*>(of.bytes()) : nullptr;
    const uint64_t* longs = of.itemsize() == 8 && of.size() ? static_cast<const uint64_t*>(of.bytes()) : nullptr;
    const int64_t* starts = indptr.data();
    const I* columns = indices.data();
    nb::gil_scoped_release unlocked;
    require(base::rise(starts, 0, n, indices.size()), "equals_transpose: indptr must rise");
    std::vector<int64_t> next(starts, starts + n);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t e = starts[i]; e < starts[i + 1]; ++e) {
            const int64_t j = int64_t(columns[e]);
            if (j < 0 || j >= n || next[j] >= starts[j + 1]) return false;
            const int64_t mirror = next[j]++;
            if (int64_t(columns[mirror]) != i || (words && words[mirror] != words[e]) ||
                (longs && longs[mirror] != longs[e]))
                return false;
        }
    return true;
}

// out[i] = X[rows[i]], bytes copied whatever the type.
void take_rows(const AnyArray& X, const Array<int64_t>& rows, AnyArray& out, int threads) {
    require(X.ndim() == 2 && out.ndim() == 2 && X.shape(1) == out.shape(1) && X.itemsize() == out.itemsize(),
            "take_rows: X and out must have one width and type");
    require(rows.ndim() == 1 && rows.shape(0) == out.shape(0), "take_rows: one row of out per index");
    const int64_t n = rows.shape(0), m = X.shape(0), bytes = X.shape(1) * X.itemsize();
    const int64_t* index = rows.data();
    const char* x = static_cast<const char*>(X.bytes());
    char* y = static_cast<char*>(out.mutable_bytes());
    in_chunks(even(n, rows_a_chunk(bytes / 4)), threads, "", [&](int isa, int64_t begin, int64_t end, int64_t) {
        require(ON(isa, are_below(index + begin, end - begin, m)), "take_rows: an index is out of range");
        for (int64_t i = begin; i < end; ++i) {
            if (i + 8 < end) __builtin_prefetch(x + index[i + 8] * bytes);
            std::copy_n(x + index[i] * bytes, bytes, y + i * bytes);
        }
    });
}

template <class SX, class SY>
void define_product(nb::module_& m) {
    m.def("spmm", &spmm<SX, SY>, nb::arg("indptr"), nb::arg("indices"), nb::arg("weights"), nb::arg("X"), nb::arg("Y"),
          nb::arg("accumulate") = false, nb::arg("bias") = nb::none(), nb::arg("relu") = false, nb::arg("threads") = 0,
          nb::arg("isa") = "", nb::arg("add") = nb::none(), nb::arg("rows") = nb::none(),
          nb::arg("is_checked") = false);
}

// Long rows of a CSR, whose first columns hold many nonzeros, in tiles: the product, and the cutting.

constexpr int64_t BLOCK_ROWS = 512;  // at most, which share the rows of X of a tile
constexpr int64_t BLOCKS_A_THREAD = 16;
static_assert(sizeof(RowBlock) == 4 * sizeof(int64_t) && TILE_COLUMNS <= 128);

// Raises where a block is not one of cut_tiles: its counts add up to its nonzeros, whose columns X has.
template <class SX, class SY>
void check_block(const Tiled<SX, SY>& p, int64_t b, const RowBlock& ends, int64_t m, int64_t height, int isa) {
    const RowBlock &block = p.blocks[b], &next = p.blocks[b + 1];
    const int64_t rows = next.row - block.row, counts = next.count - block.count;
    require(block.row >= 0 && block.count >= 0 && block.nonzero >= 0 && rows >= 0 && block.tiles >= 0 &&
                next.row <= ends.row && counts == block.tiles * rows && next.count <= ends.count &&
                next.nonzero <= ends.nonzero,
            "spmm_tiles: blocks must rise");
    int64_t e = block.nonzero;
    for (int64_t t = 0; t < block.tiles; ++t) {
        const uint8_t* count = p.counts + block.count + t * rows;
        const int64_t held = std::accumulate(count, count + rows, int64_t(0));
        require(e + held <= next.nonzero, "spmm_tiles: counts must add up to the nonzeros");
        require(ON(isa, are_below(p.indices + e, held, std::clamp(m - t * TILE_COLUMNS, int64_t(0), TILE_COLUMNS))),
                "spmm_tiles: a column index is out of range");
        e += held;
    }
    require(e == next.nonzero, "spmm_tiles: counts must add up to the nonzeros");
    require(ON(isa, are_below(p.rows + block.row, rows, height)), "spmm_tiles: a row is out of range");
}

template <class SX, class SY>
void multiply_tiles(const Array<int64_t>& blocks, const Array<uint8_t>& counts, const Array<uint8_t>& indices,
                    const Given& weights, const Array<SX>& X, Array<SY>& Y, bool accumulate, const Array<int64_t>& rows,
                    int threads, const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    require(X.ndim() == 2 && Y.ndim() == 2 && X.shape(1) == Y.shape(1),
            "spmm_tiles: X and Y must be matrices of one width");
    require(blocks.ndim() == 2 && blocks.shape(0) > 0 && blocks.shape(1) == 4,
            "spmm_tiles: blocks must be a matrix of four columns");
    const int64_t n = blocks.shape(0) - 1, *ends = blocks.data() + 4 * n;
    require(rows.ndim() == 1 && counts.ndim() == 1 && indices.ndim() == 1 && ends[0] == rows.shape(0) &&
                ends[2] == counts.shape(0) && ends[3] == indices.shape(0),
            "spmm_tiles: blocks must end with the rows, counts and indices");
    const auto w = vector_of<T>(weights, ends[3], "spmm_tiles: one weight per nonzero");
    const int64_t width = Y.shape(1), m = X.shape(0), height = Y.shape(0);
    const Tiled<SX, SY> p{reinterpret_cast<const RowBlock*>(blocks.data()),
                          counts.data(),
                          indices.data(),
                          w.data(),
                          X.data(),
                          width,
                          Y.mutable_data(),
                          width,
                          rows.data(),
                          accumulate};
    in_chunks(even(n, 1), threads, isa_name, [&](int isa, int64_t b, int64_t, int64_t) {
        check_block(p, b, p.blocks[n], m, height, isa);
        ON(isa, rows(p, b, b + 1, width));
    });
}

// Cut the rows of a list into blocks, and each block into tiles of columns, from column 0 on:
//
//     rows 0-2 | tile 0 | tile 1 | tile 2 |  rest, multiplied row by row
//     rows 3-5 | tile 0 |  rest
//
// The tiles of a block end before the first in which a row has less than `least` nonzeros on average, or a column less
// than `uses`. More threads make lower blocks. Columns must rise within a row.
// Return (blocks, counts, indices, weights, nonzeros of each row that are in tiles).
template <class I, class T>
nb::tuple cut_tiles(const Array<int64_t>& indptr, const Array<I>& indices, const Given& weights,
                    const Array<int64_t>& rows, int64_t m, int64_t least, int64_t uses, int threads) {
    require(rows.ndim() == 1, "cut_tiles: rows must be a vector");
    const int64_t n = rows.shape(0), *starts = indptr.data(), *row = rows.data(), height = indptr.size() - 1;
    require(indptr.ndim() == 1 && height >= 0 && starts[height] == indices.shape(0),
            "cut_tiles: indptr must end at the number of indices");
    const auto w = vector_of<T>(weights, indices.size(), "cut_tiles: one weight per nonzero");
    const I* columns = indices.data();
    const T* weight = w.data();
    threads = chosen_threads(threads);
    Array<int64_t> taken(n);
    int64_t* take = taken.mutable_data();
    std::vector<RowBlock> blocks;
    std::vector<std::vector<uint8_t>> found;
    {
        nb::gil_scoped_release unlocked;
        require(base::rise(starts, 0, height, indices.size()) && base::are_below(row, n, height) &&
                    base::are_below(columns, indices.size(), m),
                "cut_tiles: an index is out of range");
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
                    longest > 255) {  // a count is a byte: duplicates could exceed it
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
    Array<int64_t> table({int64_t(blocks.size()), 4});
    Array<uint8_t> counts(blocks.back().count), within(held);
    Array<T> kept(weight ? held : 0);
    std::copy_n(&blocks[0].row, 4 * blocks.size(), table.mutable_data());
    uint8_t *count = counts.mutable_data(), *index = within.mutable_data();
    T* keep = kept.mutable_data();
    {
        nb::gil_scoped_release unlocked;
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
    return nb::make_tuple(table, counts, within, weight ? kept.object() : nb::none(), taken);
}

// Raises unless each row is at [begin, end) of the indices and these are 0 to m - 1.
template <class I>
void check_pieces(const Array<int64_t>& begins, const Array<int64_t>& ends, const Array<I>& indices, int64_t m) {
    require(begins.ndim() == 1 && ends.ndim() == 1 && begins.size() == ends.size(), "as many begins as ends");
    const int64_t *begin = begins.data(), *end = ends.data();
    bool is_in_range = base::are_below(indices.data(), indices.size(), m);
    for (int64_t i = 0; i < begins.size(); ++i)
        is_in_range &= begin[i] >= 0 && begin[i] <= end[i] && end[i] <= indices.size();
    require(is_in_range, "an index is out of range");
}

// Nonzeros of each column in the rows that are at [begin, end) of the indices.
template <class I>
Array<int64_t> count_columns(const Array<int64_t>& begins, const Array<int64_t>& ends, const Array<I>& indices,
                             int64_t m) {
    check_pieces(begins, ends, indices, m);
    Array<int64_t> found(m);
    int64_t* count = found.mutable_data();
    const int64_t *begin = begins.data(), *end = ends.data(), n = begins.shape(0);
    const I* columns = indices.data();
    nb::gil_scoped_release unlocked;
    std::fill_n(count, m, 0);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t e = begin[i]; e < end[i]; ++e) ++count[columns[e]];
    return found;
}

// (indptr, indices counted from bound[p], weights) of panel p: columns [bound[p], bound[p + 1]) of rows that lie at
// [begin, end) of the indices. Columns must rise within a row.
template <class I, class T>
nb::list cut_panels(const Array<int64_t>& begins, const Array<int64_t>& ends, const Array<I>& indices,
                    const Given& weights, const Array<int64_t>& bounds, int threads) {
    require(bounds.ndim() == 1 && bounds.size() > 1 && bounds.data()[0] == 0 &&
                std::is_sorted(bounds.data(), bounds.data() + bounds.size()),
            "cut_panels: bounds must rise from 0");
    check_pieces(begins, ends, indices, bounds.data()[bounds.size() - 1]);
    const int64_t n = begins.shape(0), count = bounds.shape(0) - 1, *bound = bounds.data(), *begin = begins.data(),
                  *end = ends.data();
    const auto w = vector_of<T>(weights, indices.size(), "cut_panels: one weight per nonzero");
    const I* columns = indices.data();
    const T* weight = w.data();
    std::vector<Array<int64_t>> pointers;
    std::vector<int64_t*> pointer;
    for (int64_t p = 0; p < count; ++p) {
        pointers.emplace_back(n + 1);
        pointer.push_back(pointers.back().mutable_data());
    }
    threads = chosen_threads(threads);
    // Calls body(row of the list, panel, first nonzero, the one past its last).
    const auto over_pieces = [&](const auto& body) {
        over_chunks(even(n, 64), threads, [&](int64_t first, int64_t stop, int64_t) {
            for (int64_t i = first; i < stop; ++i) {
                const I *from = columns + begin[i], *last = columns + end[i];
                for (int64_t p = 0; p < count; ++p) {
                    const I* to = std::lower_bound(from, last, bound[p + 1]);
                    body(i, p, from - columns, to - columns);
                    from = to;
                }
            }
        });
    };
    {
        nb::gil_scoped_release unlocked;
        over_pieces([&](int64_t i, int64_t p, int64_t from, int64_t to) { pointer[p][i + 1] = to - from; });
        for (int64_t p = 0; p < count; ++p) {
            pointer[p][0] = 0;
            for (int64_t i = 0; i < n; ++i) pointer[p][i + 1] += pointer[p][i];
        }
    }
    std::vector<Array<I>> parts;
    std::vector<Array<T>> kept;
    std::vector<I*> part;
    std::vector<T*> keep;
    for (int64_t p = 0; p < count; ++p) {
        parts.emplace_back(pointer[p][n]);
        part.push_back(parts.back().mutable_data());
        kept.emplace_back(weight ? pointer[p][n] : 0);
        keep.push_back(kept.back().mutable_data());
    }
    {
        nb::gil_scoped_release unlocked;
        over_pieces([&](int64_t i, int64_t p, int64_t from, int64_t to) {
            std::transform(columns + from, columns + to, part[p] + pointer[p][i],
                           [first = bound[p]](I column) { return I(column - first); });
            if (weight) std::copy(weight + from, weight + to, keep[p] + pointer[p][i]);
        });
    }
    nb::list made;
    for (int64_t p = 0; p < count; ++p)
        made.append(nb::make_tuple(pointers[p], parts[p], weight ? kept[p].object() : nb::none()));
    return made;
}

template <class I>
void define_cut(nb::module_& m) {
    m.def(
        "cut_tiles",
        [](const Array<int64_t>& indptr, const Array<I>& indices, const Given& weights, const Array<int64_t>& rows,
           int64_t columns, int64_t least, int64_t uses, int threads) {
            const bool is_double = data_or_null<double>(weights) != nullptr;
            return is_double ? cut_tiles<I, double>(indptr, indices, weights, rows, columns, least, uses, threads)
                             : cut_tiles<I, float>(indptr, indices, weights, rows, columns, least, uses, threads);
        },
        nb::arg("indptr"), nb::arg("indices"), nb::arg("weights"), nb::arg("rows"), nb::arg("m"), nb::arg("least"),
        nb::arg("uses"), nb::arg("threads") = 0);
}

template <class I>
void define_panels(nb::module_& m) {
    m.def("count_columns", &count_columns<I>, nb::arg("begins"), nb::arg("ends"), nb::arg("indices"), nb::arg("m"));
    m.def(
        "cut_panels",
        [](const Array<int64_t>& begins, const Array<int64_t>& ends, const Array<I>& indices, const Given& weights,
           const Array<int64_t>& bounds, int threads) {
            const bool is_double = data_or_null<double>(weights) != nullptr;
            return is_double ? cut_panels<I, double>(begins, ends, indices, weights, bounds, threads)
                             : cut_panels<I, float>(begins, ends, indices, weights, bounds, threads);
        },
        nb::arg("begins"), nb::arg("ends"), nb::arg("indices"), nb::arg("weights"), nb::arg("bounds"),
        nb::arg("threads") = 0);
}

template <class SX, class SY>
void define_tiled(nb::module_& m) {
    m.def("spmm_tiles", &multiply_tiles<SX, SY>, nb::arg("blocks"), nb::arg("counts"), nb::arg("indices"),
          nb::arg("weights"), nb::arg("X"), nb::arg("Y"), nb::arg("accumulate"), nb::arg("rows"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
}

}  // namespace

void define_products(nb::module_& m) {
    define_product<float, float>(m);
    define_product<double, double>(m);
    define_product<bfloat16, bfloat16>(m);
    define_product<bfloat16, float>(m);
    define_product<float, bfloat16>(m);
    m.def("equals_transpose", &equals_transpose<int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("weights"));
    m.def("equals_transpose", &equals_transpose<int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("weights"));
    m.def("take_rows", &take_rows, nb::arg("X"), nb::arg("rows"), nb::arg("out"), nb::arg("threads") = 0);
    m.attr("TILE_COLUMNS") = TILE_COLUMNS;
    define_tiled<float, float>(m);
    define_tiled<double, double>(m);
    define_tiled<bfloat16, float>(m);
    define_cut<int32_t>(m);
    define_cut<int64_t>(m);
    define_panels<int32_t>(m);
    define_panels<int64_t>(m);
}

}  // namespace spgnn

// Rows of a CSR cut at some of its columns, for products in panels.

#include "parallel.h"

namespace {

constexpr int64_t ROWS_A_CHUNK = 64;  // they are long
constexpr int64_t SHORT = 1 << 16;    // columns of a panel whose indices have 16 bits

// Nonzeros of each column in rows that lie at [begin, end) of the indices.
template <class I>
Array<int64_t> count_columns(const Array<int64_t>& begins, const Array<int64_t>& ends, const Array<I>& indices,
                             int64_t m) {
    require(begins.shape(0) == ends.shape(0), "count_columns: as many begins as ends");
    Array<int64_t> found(m);
    int64_t* count = found.mutable_data();
    const int64_t *begin = begins.data(), *end = ends.data(), n = begins.shape(0);
    const I* columns = indices.data();
    py::gil_scoped_release unlocked;
    std::fill_n(count, m, 0);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t e = begin[i]; e < end[i]; ++e) ++count[columns[e]];
    return found;
}

// (indptr, indices counted from bound[p], weights) of panel p: columns [bound[p], bound[p + 1]) of rows that lie at
// [begin, end) of the indices. Indices have 16 bits where these are enough. Columns must rise within a row.
template <class I, class T>
py::list pieces(const Array<int64_t>& begins, const Array<int64_t>& ends, const Array<I>& indices,
                const py::object& weights, const Array<int64_t>& bounds, int threads) {
    require(begins.shape(0) == ends.shape(0) && bounds.ndim() == 1 && bounds.shape(0) > 1,
            "cut: as many begins as ends, two bounds or more");
    const int64_t n = begins.shape(0), count = bounds.shape(0) - 1, *bound = bounds.data(), *begin = begins.data(),
                  *end = ends.data();
    const Array<T> w = weights.is_none() ? Array<T>(0) : py::cast<Array<T>>(weights);
    require(weights.is_none() || w.shape(0) == indices.shape(0), "cut: one weight a nonzero");
    const I* columns = indices.data();
    const T* weight = weights.is_none() ? nullptr : w.data();
    std::vector<Array<int64_t>> pointers;
    std::vector<int64_t*> pointer;
    for (int64_t p = 0; p < count; ++p) {
        pointers.emplace_back(n + 1);
        pointer.push_back(pointers.back().mutable_data());
    }
    threads = chosen_threads(threads);
    // Calls body(row of the list, panel, first nonzero, the one past its last).
    const auto over_pieces = [&](const auto& body) {
        over_chunks(even(n, ROWS_A_CHUNK), threads, [&](int64_t first, int64_t stop, int64_t) {
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
        py::gil_scoped_release unlocked;
        over_pieces([&](int64_t i, int64_t p, int64_t from, int64_t to) { pointer[p][i + 1] = to - from; });
        for (int64_t p = 0; p < count; ++p) {
            pointer[p][0] = 0;
            for (int64_t i = 0; i < n; ++i) pointer[p][i + 1] += pointer[p][i];
        }
    }
    std::vector<py::array> parts;
    std::vector<Array<T>> kept;
    std::vector<uint16_t*> short_part;  // null: the panel's is in part
    std::vector<I*> part;
    std::vector<T*> keep;
    for (int64_t p = 0; p < count; ++p) {
        const int64_t held = pointer[p][n];
        const bool is_short = bound[p + 1] - bound[p] <= SHORT;
        if (is_short)
            parts.push_back(Array<uint16_t>(held));
        else
            parts.push_back(Array<I>(held));
        short_part.push_back(is_short ? static_cast<uint16_t*>(parts.back().mutable_data()) : nullptr);
        part.push_back(is_short ? nullptr : static_cast<I*>(parts.back().mutable_data()));
        kept.emplace_back(weight ? held : 0);
        keep.push_back(kept.back().mutable_data());
    }
    {
        py::gil_scoped_release unlocked;
        over_pieces([&](int64_t i, int64_t p, int64_t from, int64_t to) {
            const auto put = [&](auto* where) {
                std::transform(columns + from, columns + to, where + pointer[p][i],
                               [first = bound[p]](I column) { return std::decay_t<decltype(*where)>(column - first); });
            };
            if (short_part[p])
                put(short_part[p]);
            else
                put(part[p]);
            if (weight) std::copy(weight + from, weight + to, keep[p] + pointer[p][i]);
        });
    }
    py::list made;
    for (int64_t p = 0; p < count; ++p)
        made.append(py::make_tuple(pointers[p], parts[p], weight ? py::object(kept[p]) : py::none()));
    return made;
}

template <class I>
void define_cut(py::module_& m) {
    m.def("count_columns", &count_columns<I>, py::arg("begins").noconvert(), py::arg("ends").noconvert(),
          py::arg("indices").noconvert(), py::arg("m"));
    m.def(
        "cut",
        [](const Array<int64_t>& begins, const Array<int64_t>& ends, const Array<I>& indices, const py::object& weights,
           const Array<int64_t>& bounds, int threads) {
            const bool is_double = !weights.is_none() && py::cast<py::array>(weights).itemsize() == sizeof(double);
            return is_double ? pieces<I, double>(begins, ends, indices, weights, bounds, threads)
                             : pieces<I, float>(begins, ends, indices, weights, bounds, threads);
        },
        py::arg("begins").noconvert(), py::arg("ends").noconvert(), py::arg("indices").noconvert(), py::arg("weights"),
        py::arg("bounds"), py::arg("threads") = 0);
}

}  // namespace

void define_panels(py::module_& m) {
    define_cut<int32_t>(m);
    define_cut<int64_t>(m);
}

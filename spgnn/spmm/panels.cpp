// Rows of a CSR cut at some of its columns, for products in panels.

#include "parallel.h"

namespace {

constexpr int64_t ROWS_A_CHUNK = 64;  // they are long

// Nonzeros of each column in the rows of a list.
template <class I>
Array<int64_t> count_columns(const Array<int64_t>& indptr, const Array<I>& indices, const Array<int64_t>& rows, int64_t m) {
    Array<int64_t> found(m);
    int64_t* count = found.mutable_data();
    const int64_t *starts = indptr.data(), *row = rows.data(), n = rows.shape(0);
    const I* columns = indices.data();
    py::gil_scoped_release unlocked;
    std::fill_n(count, m, 0);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t e = starts[row[i]]; e < starts[row[i] + 1]; ++e) ++count[columns[e]];
    return found;
}

// (indptr, indices counted from bound[p], weights) of panel p: columns [bound[p], bound[p + 1]) of the rows of a list.
// Columns must rise within a row.
template <class I, class T>
py::list pieces(const Array<int64_t>& indptr, const Array<I>& indices, const py::object& weights, const Array<int64_t>& rows, const Array<int64_t>& bounds, int threads) {
    require(indptr.ndim() == 1 && indptr.shape(0) > 0 && bounds.ndim() == 1 && bounds.shape(0) > 1, "cut: indptr of one entry or more, two bounds or more");
    const int64_t n = rows.shape(0), count = bounds.shape(0) - 1, *bound = bounds.data();
    require(indptr.data()[indptr.shape(0) - 1] == indices.shape(0), "cut: indptr must end at the number of indices");
    const Array<T> w = weights.is_none() ? Array<T>(0) : py::cast<Array<T>>(weights);
    require(weights.is_none() || w.shape(0) == indices.shape(0), "cut: one weight a nonzero");
    const int64_t *starts = indptr.data(), *row = rows.data();
    const I* columns = indices.data();
    const T* weight = weights.is_none() ? nullptr : w.data();
    std::vector<Array<int64_t>> ends;
    std::vector<int64_t*> end;
    for (int64_t p = 0; p < count; ++p) {
        ends.emplace_back(n + 1);
        end.push_back(ends.back().mutable_data());
    }
    threads = chosen_threads(threads);
    // Calls body(row of the list, panel, first nonzero, the one past its last).
    const auto over_pieces = [&](const auto& body) {
        over_chunks(even(n, ROWS_A_CHUNK), threads, [&](int64_t begin, int64_t stop, int64_t) {
            for (int64_t i = begin; i < stop; ++i) {
                const I *from = columns + starts[row[i]], *last = columns + starts[row[i] + 1];
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
        over_pieces([&](int64_t i, int64_t p, int64_t from, int64_t to) { end[p][i + 1] = to - from; });
        for (int64_t p = 0; p < count; ++p) {
            end[p][0] = 0;
            for (int64_t i = 0; i < n; ++i) end[p][i + 1] += end[p][i];
        }
    }
    std::vector<Array<I>> parts;
    std::vector<Array<T>> kept;
    std::vector<I*> part;
    std::vector<T*> keep;
    for (int64_t p = 0; p < count; ++p) {
        parts.emplace_back(end[p][n]);
        kept.emplace_back(weight ? end[p][n] : 0);
        part.push_back(parts.back().mutable_data());
        keep.push_back(kept.back().mutable_data());
    }
    {
        py::gil_scoped_release unlocked;
        over_pieces([&](int64_t i, int64_t p, int64_t from, int64_t to) {
            const I first = I(bound[p]);
            std::transform(columns + from, columns + to, part[p] + end[p][i], [first](I column) { return I(column - first); });
            if (weight) std::copy(weight + from, weight + to, keep[p] + end[p][i]);
        });
    }
    py::list made;
    for (int64_t p = 0; p < count; ++p) made.append(py::make_tuple(ends[p], parts[p], weight ? py::object(kept[p]) : py::none()));
    return made;
}

template <class I>
void define_cut(py::module_& m) {
    m.def("count_columns", &count_columns<I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("rows").noconvert(), py::arg("m"));
    m.def("cut", [](const Array<int64_t>& indptr, const Array<I>& indices, const py::object& weights, const Array<int64_t>& rows, const Array<int64_t>& bounds, int threads) {
        const bool is_double = !weights.is_none() && py::cast<py::array>(weights).itemsize() == sizeof(double);
        return is_double ? pieces<I, double>(indptr, indices, weights, rows, bounds, threads) : pieces<I, float>(indptr, indices, weights, rows, bounds, threads);
    }, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights"), py::arg("rows").noconvert(), py::arg("bounds"), py::arg("threads") = 0);
}

}  // namespace

void define_panels(py::module_& m) {
    define_cut<int32_t>(m);
    define_cut<int64_t>(m);
}

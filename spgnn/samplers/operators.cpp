// From a drawn pattern to the values of its normalisations and to its transpose.

#include <algorithm>
#include <cstring>

#include "samplers.h"

namespace spgnn {

// A pattern with a diagonal entry in every row: (indptr, indices, from_e), from_e the place in the pattern that was
// given, -1 for a loop that was added; None where no row lacks its diagonal. Rows ascend.
static nb::object with_loops(const Array<int64_t>& indptr, const Array<int32_t>& indices) {
    const int64_t n = indptr.size() - 1, *p = indptr.data();
    const int32_t* j = indices.data();
    std::vector<int64_t> ends(size_t(n) + 1), at(static_cast<size_t>(n));  // where a loop goes in, -1: nowhere
    {
        nb::gil_scoped_release release;
        for (int64_t i = 0; i < n; ++i) {
            int64_t e = p[i];
            while (e < p[i + 1] && j[e] < i) ++e;
            const bool is_missing = e == p[i + 1] || j[e] != i;
            at[size_t(i)] = is_missing ? e : -1;
            ends[size_t(i) + 1] = ends[size_t(i)] + p[i + 1] - p[i] + is_missing;
        }
    }
    const int64_t total = ends[size_t(n)];
    if (total == indices.size()) return nb::none();
    Array<int32_t> out_indices(total);
    Array<int64_t> out_from(total);
    int32_t* out = out_indices.mutable_data();
    int64_t* from = out_from.mutable_data();
    {
        nb::gil_scoped_release release;
        int64_t k = 0;
        const auto copy = [&](int64_t start, int64_t stop) {
            for (int64_t e = start; e < stop; ++e, ++k) out[k] = j[e], from[k] = e;
        };
        for (int64_t i = 0; i < n; ++i) {
            const int64_t loop = at[size_t(i)] < 0 ? p[i + 1] : at[size_t(i)];
            copy(p[i], loop);
            if (at[size_t(i)] >= 0) out[k] = int32_t(i), from[k++] = -1;
            copy(loop, p[i + 1]);
        }
    }
    return nb::make_tuple(array_of(ends), out_indices, out_from);
}

// The order of the transpose of a symmetric pattern in one pass, with the rows and columns of the pattern.
// False where an entry has no counterpart: the pattern is not symmetric.
// Source: GraphSAINT (Zeng et al. 2021), Algorithm 6.
static bool symmetric_order(const int64_t* p, const int32_t* j, int64_t n, int64_t* order) {
    std::vector<int64_t> next(p, p + n);             // line 3
    for (int64_t v = 0; v < n; ++v)                  // line 4
        for (int64_t e = p[v]; e < p[v + 1]; ++e) {  // line 5
            const int64_t u = j[e], k = next[size_t(u)]++;
            if (k == p[u + 1] || j[k] != v) return false;
            if (order) order[k] = e;  // line 7
        }
    return true;
}

static bool is_symmetric(const Array<int64_t>& indptr, const Array<int32_t>& indices) {
    nb::gil_scoped_release release;
    return symmetric_order(indptr.data(), indices.data(), indptr.size() - 1, nullptr);
}

// The transpose of a pattern (n, m): (indptr, indices, order_e), order_e the place of each nonzero in the pattern;
// indptr and indices may be the pattern's. may_be_symmetric tries that first.
static nb::tuple transpose(const Array<int64_t>& indptr, const Array<int32_t>& indices, int64_t m,
                           bool may_be_symmetric) {
    const int64_t n = indptr.size() - 1, e = indices.size(), *p = indptr.data();
    const int32_t* j = indices.data();
    Array<int64_t> order_e(e);
    int64_t* order = order_e.mutable_data();
    if (may_be_symmetric && n == m) {
        bool is_symmetric;
        {
            nb::gil_scoped_release release;
            is_symmetric = symmetric_order(p, j, n, order);
        }
        if (is_symmetric) return nb::make_tuple(indptr, indices, order_e);
    }
    Array<int64_t> out_indptr(m + 1);
    Array<int32_t> out_indices(e);
    int64_t* ends = out_indptr.mutable_data();
    int32_t* out = out_indices.mutable_data();
    {
        nb::gil_scoped_release release;
        std::memset(ends, 0, size_t(m + 1) * sizeof(int64_t));
        for (int64_t k = 0; k < e; ++k) ++ends[j[k] + 1];
        for (int64_t c = 0; c < m; ++c) ends[c + 1] += ends[c];
        std::vector<int64_t> next(ends, ends + m);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t k = p[i]; k < p[i + 1]; ++k) {
                const int64_t place = next[size_t(j[k])]++;
                out[place] = int32_t(i);
                order[place] = k;
            }
    }
    return nb::make_tuple(out_indptr, out_indices, order_e);
}

// What the values of a block are made of. from and scale may be missing; a loop that was added weighs 1.
struct Entries {
    Entries(const Given& from_e, const Array<int64_t>& place_e, const Given& weights)
        : from(data_or_null<int64_t>(from_e)), place(place_e.data()), weight(weights) {}
    int64_t source(int64_t e) const { return from ? from[e] : e; }
    double operator[](int64_t e) const {
        const int64_t k = source(e);
        return k < 0 ? 1.0 : weight[place[k]];
    }
    const int64_t *from, *place;
    const Weights weight;
};

// Sums of the rows (n) and columns (m) of a block, in double, nonzero after nonzero.
static nb::tuple block_sums(const Array<int64_t>& indptr, const Array<int32_t>& indices, int64_t m, const Given& from_e,
                            const Array<int64_t>& place_e, const Given& weights) {
    const int64_t n = indptr.size() - 1, *p = indptr.data();
    const int32_t* j = indices.data();
    const Entries entries(from_e, place_e, weights);
    Array<double> rows(n), columns(m);
    double *row = rows.mutable_data(), *column = columns.mutable_data();
    {
        nb::gil_scoped_release release;
        std::fill(column, column + m, 0.0);
        for (int64_t i = 0; i < n; ++i) {
            row[i] = 0;
            for (int64_t e = p[i]; e < p[i + 1]; ++e) {
                const double x = entries[e];
                row[i] += x;
                column[j[e]] += x;
            }
        }
    }
    return nb::make_tuple(rows, columns);
}

// Sums of the rows and columns of A, or of A + I, in the order in which normalise() adds them up.
static nb::tuple graph_sums(const Array<int64_t>& indptr, const Array<int32_t>& indices, const Given& weights,
                            bool has_loops) {
    const int64_t N = indptr.size() - 1, *p = indptr.data();
    const Weights weight(weights);
    Array<double> rows(N), columns(N);
    double *row = rows.mutable_data(), *column = columns.mutable_data();
    const int32_t* j = indices.data();
    {
        nb::gil_scoped_release release;
        std::fill(column, column + N, 0.0);
        for (int64_t i = 0; i < N; ++i) {
            row[i] = 0;
            bool is_missing = has_loops;
            for (int64_t e = p[i]; e < p[i + 1]; ++e) {
                if (is_missing && j[e] >= i) {
                    if (j[e] > i) row[i] += 1, column[i] += 1;
                    is_missing = false;
                }
                row[i] += weight[e];
                column[j[e]] += weight[e];
            }
            if (is_missing) row[i] += 1, column[i] += 1;
        }
    }
    return nb::make_tuple(rows, columns);
}

// Squared norms of the columns of diag(left) (A + I) diag(right), (N,).
static Array<double> column_norms(const Array<int64_t>& indptr, const Array<int32_t>& indices, const Given& weights,
                                  const Array<double>& left, const Array<double>& right) {
    const int64_t N = indptr.size() - 1, *p = indptr.data();
    const double *l = left.data(), *r = right.data();
    const Weights weight(weights);
    Array<double> out(N);
    double* norm = out.mutable_data();
    const int32_t* j = indices.data();
    {
        nb::gil_scoped_release release;
        std::fill(norm, norm + N, 0.0);
        for (int64_t i = 0; i < N; ++i) {
            bool is_missing = true;
            for (int64_t e = p[i]; e < p[i + 1]; ++e) {
                const double value = weight[e] * l[i] * r[j[e]];
                norm[j[e]] += value * value;
                is_missing &= j[e] != i;
            }
            if (is_missing) norm[i] += l[i] * r[i] * l[i] * r[i];
        }
    }
    return out;
}

// left_i w_ij right_j / alpha_e scale_e of a block, each rounded once. left, right, alpha, scale may be None for 1; a
// loop that was added has alpha and scale 1. node_m: the places of rows and columns in left and right, None: as they
// are.
template <class T>
static Array<T> values(const Array<int64_t>& indptr, const Array<int32_t>& indices, const Given& from_e,
                       const Array<int64_t>& place_e, const Given& weights, const Given& node_m, const Given& left_n,
                       const Given& right_m, const Given& alpha_E, const Given& scale_e) {
    const int64_t n = indptr.size() - 1, count = indices.size(), *p = indptr.data();
    const int32_t* j = indices.data();
    const Entries entries(from_e, place_e, weights);
    const double *left = data_or_null<double>(left_n), *right = data_or_null<double>(right_m);
    const float *alpha = data_or_null<float>(alpha_E), *scale = data_or_null<float>(scale_e);
    const int64_t* node = data_or_null<int64_t>(node_m);
    Array<T> out(count);
    T* value = out.mutable_data();
    nb::gil_scoped_release release;
    for (int64_t i = 0; i < n; ++i) {
        const double of_row = left ? left[node ? node[i] : i] : 1.0;
        for (int64_t e = p[i]; e < p[i + 1]; ++e) {
            if (alpha && e + 4 * ROWS_AHEAD < count)
                if (const int64_t k = entries.source(e + 4 * ROWS_AHEAD); k >= 0)
                    __builtin_prefetch(alpha + entries.place[k]);
            const int64_t k = entries.source(e);
            double x = k < 0 ? of_row : entries.weight[entries.place[k]] * of_row;
            if (right) x *= right[node ? node[j[e]] : j[e]];
            if (k >= 0 && alpha) x /= double(alpha[entries.place[k]]);
            if (k >= 0 && scale) x *= double(scale[k]);
            value[e] = T(x);
        }
    }
    return out;
}

// max(C_e, 1) / max(C_v, 1) of the row v of each nonzero e.
static Array<float> alpha(const Array<int64_t>& indptr, const Array<uint32_t>& count_N,
                          const Array<uint32_t>& count_E) {
    const int64_t N = indptr.size() - 1, *p = indptr.data();
    require(count_N.size() == N && count_E.size() == p[N], "counts must be those of nodes and of nonzeros");
    Array<float> out(count_E.size());
    float* a = out.mutable_data();
    const uint32_t *of_node = count_N.data(), *of_nonzero = count_E.data();
    nb::gil_scoped_release release;
    for (int64_t v = 0; v < N; ++v)
        for (int64_t e = p[v]; e < p[v + 1]; ++e)
            a[e] = float(double(std::max(of_nonzero[e], 1u)) / double(std::max(of_node[v], 1u)));
    return out;
}

void define_operators(nb::module_& m) {
    m.def("alpha", &alpha, "max(C_e, 1) / max(C_v, 1) of the row v of each nonzero e, float32");
    m.def("with_loops", &with_loops, "(indptr, indices, from_e) of the pattern with all diagonal entries, or None");
    m.def("is_symmetric", &is_symmetric, "whether the pattern of A is that of its transpose");
    m.def("transpose", &transpose, "(indptr, indices, order_e) of the transpose of a pattern");
    m.def("block_sums", &block_sums, "sums of the rows and columns of a block");
    m.def("graph_sums", &graph_sums, "sums of the rows and columns of A, or of A + I", nb::arg("indptr"),
          nb::arg("indices"), nb::arg("weights"), nb::arg("has_loops"));
    m.def("column_norms", &column_norms, "squared norms of the columns of diag(left) (A + I) diag(right)");
    m.def("values32", &values<float>, "values of a block, float32");
    m.def("values64", &values<double>, "values of a block, float64");
}

}  // namespace spgnn

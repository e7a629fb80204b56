// Products and softmax over values of nonzeros, K of each: what attention of one's own is composed of.

#include "edge_block.h"
#define SPGNN_LOOPS "edges.h"
#include "isa.h"

namespace {

std::vector<int64_t> chunks_of(const Pattern& A, int64_t width, int threads) {
    return balanced(A.indptr, A.n, A.nnz * width < (1 << 15) ? 1 : 64 * chosen_threads(threads));
}

// to: rows of a matrix; null where None.
template <class T>
T* matrix(const py::object& given, int64_t rows, int64_t columns, const char* message) {
    if (given.is_none()) return nullptr;
    auto array = writable<T>(given);
    require(has_shape(array, rows, columns), message);
    return const_cast<T*>(array.data());
}

// op: 0 inner products of U_i and X_j, 1 their sums, 2 out_i = sum_j values_ij X_j.
template <class T, class I>
void edge_matrices(int op, const Array<int64_t>& indptr, const Array<I>& indices, int64_t K, int64_t c,
                   const py::object& U, const py::object& X, const py::object& values, const py::object& places,
                   Array<T>& out, bool accumulate, int threads, const std::string& isa_name) {
    const Pattern A = pattern_of(indptr, indices);
    const int64_t width = op == 2 ? out.shape(1) : writable<T>(X).shape(1);
    require(K > 0 && width % K == 0, "columns must be a multiple of the heads");
    require(op == 2 ? out.shape(0) == A.n : has_shape(out, A.nnz, K), "out: one row a nonzero, or of A");
    require(!X.is_none() || width == K, "products with ones have a column a head");
    const T* of_values = nullptr;
    const int64_t* of_places = nullptr;
    Array<T> given;
    Array<int64_t> order;
    if (op == 2) {
        given = writable<T>(values);
        require(given.ndim() == 2 && given.shape(1) == K, "values: (nonzeros, K)");
        of_values = given.data();
        if (!places.is_none()) {
            order = writable<int64_t>(places);
            require(order.ndim() == 1 && order.shape(0) == A.nnz, "places: one a nonzero");
            of_places = order.data();
        }
        require(given.shape(0) == A.nnz, "values: (nonzeros, K)");
    }
    const EdgeMatrices<T> p{A,
                            K,
                            width,
                            matrix<T>(U, A.n, width, "U: (n, K D)"),
                            matrix<T>(X, c, width, "X: (c, K D)"),
                            of_values,
                            of_places,
                            out.mutable_data(),
                            accumulate};
    const int isa = chosen_isa(isa_name);
    py::gil_scoped_release unlocked;
    over_chunks(chunks_of(A, width, threads), chosen_threads(threads), [&](int64_t begin, int64_t end, int64_t) {
        if (op == 1) return ON(isa, edge_add_rows<T>(p, begin, end));
        of_heads(K, [&](auto heads) {
            if (op == 0)
                ON(isa, sddmm_rows<decltype(heads)::value, T>(p, begin, end));
            else
                ON(isa, weighted_rows<decltype(heads)::value, T>(p, begin, end));
        });
    });
}

// op: 0 largest and sum of exponentials of a row, 1 exp(value - L), 2 value (more - L), 3 out_i = sum_j value more.
template <class T, class I>
void edge_values(int op, const Array<int64_t>& indptr, const Array<I>& indices, const Array<T>& values,
                 const py::object& more, const py::object& L, const py::object& out, const py::object& top,
                 const py::object& sum, bool accumulate, int threads, const std::string& isa_name) {
    const Pattern A = pattern_of(indptr, indices);
    const int64_t K = values.shape(1);
    require(has_shape(values, A.nnz, K), "values: (nonzeros, K)");
    const EdgeValues<T> p{A,
                          K,
                          values.data(),
                          matrix<T>(more, A.nnz, K, "values: (nonzeros, K)"),
                          matrix<T>(L, A.n, K, "L, D: (n, K)"),
                          matrix<T>(out, op == 3 ? A.n : A.nnz, K, "out: (nonzeros, K), or (n, K)"),
                          matrix<T>(top, A.n, K, "top: (n, K)"),
                          matrix<T>(sum, A.n, K, "sum: (n, K)"),
                          accumulate};
    const int isa = chosen_isa(isa_name);
    py::gil_scoped_release unlocked;
    over_chunks(chunks_of(A, K, threads), chosen_threads(threads), [&](int64_t begin, int64_t end, int64_t) {
        if (op == 1) return ON(isa, softmax_rows<T>(p, begin, end));
        if (op == 2) return ON(isa, softmax_adjoint_rows<T>(p, begin, end));
        if (op == 3) return ON(isa, edge_dots_rows<T>(p, begin, end));
        of_heads(K, [&](auto heads) { ON(isa, softmax_sums_rows<decltype(heads)::value, T>(p, begin, end)); });
    });
}

template <class T, class I>
void define(py::module_& m) {
    m.def("edge_matrices", &edge_matrices<T, I>, py::arg("op"), py::arg("indptr").noconvert(),
          py::arg("indices").noconvert(), py::arg("K"), py::arg("c"), py::arg("U"), py::arg("X"), py::arg("values"),
          py::arg("places"), py::arg("out").noconvert(), py::arg("accumulate"), py::arg("threads") = 0,
          py::arg("isa") = "");
    m.def("edge_values", &edge_values<T, I>, py::arg("op"), py::arg("indptr").noconvert(),
          py::arg("indices").noconvert(), py::arg("values").noconvert(), py::arg("more"), py::arg("L"), py::arg("out"),
          py::arg("top"), py::arg("sum"), py::arg("accumulate"), py::arg("threads") = 0, py::arg("isa") = "");
}

}  // namespace

void define_edges(py::module_& m) {
    define<float, int32_t>(m);
    define<double, int32_t>(m);
    define<float, int64_t>(m);
    define<double, int64_t>(m);
}

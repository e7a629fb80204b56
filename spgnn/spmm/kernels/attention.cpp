// Attention of GAT v1: softmax-weighted sums over the nonzeros of each row, and their adjoint, without edge arrays.

#include "edge_block.h"
#define SPGNN_LOOPS "attention.h"
#include "isa.h"

namespace {

template <class SX, class I>
void attend(const Array<int64_t>& indptr, const Array<I>& indices, const Array<SX>& X,
            const Array<typename Compute<SX>::type>& left, const Array<typename Compute<SX>::type>& right,
            Array<typename Compute<SX>::type>& Z, Array<typename Compute<SX>::type>& top,
            Array<typename Compute<SX>::type>& sum, const py::object& plus, const py::object& plus_sum, double slope,
            const py::object& drop, bool accumulate, bool finish, int threads, const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const Pattern A = pattern_of(indptr, indices);
    const int64_t n = A.n, K = left.shape(1), width = X.shape(1), c = X.shape(0);
    require(K > 0 && width % K == 0, "attend: columns of X must be a multiple of the heads");
    require(has_shape(left, n, K) && has_shape(right, c, K) && has_shape(Z, n, width) && has_shape(top, n, K) &&
                has_shape(sum, n, K),
            "attend: X (c, K D), left (n, K), right (c, K), Z (n, K D), top and sum (n, K)");
    require(slope >= 0, "attend: the slope must not be negative");
    Attend<SX> p{A,
                 K,
                 width,
                 X.data(),
                 left.data(),
                 right.data(),
                 Z.mutable_data(),
                 top.mutable_data(),
                 sum.mutable_data(),
                 nullptr,
                 nullptr,
                 T(slope),
                 edge_drop(drop, n, c),
                 accumulate,
                 finish};
    if (!plus.is_none()) {
        auto more = writable<T>(plus), more_sum = writable<T>(plus_sum);
        require(has_shape(more, n, width) && has_shape(more_sum, n, K), "attend: plus (n, K D), plus_sum (n, K)");
        p.plus = more.mutable_data();
        p.plus_sum = more_sum.mutable_data();
    }
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(balanced(A.indptr, n, A.nnz * width < (1 << 15) ? 1 : 64 * threads), threads,
                [&](int64_t begin, int64_t end, int64_t) {
                    of_heads(K, [&](auto heads) { ON(isa, attend_rows<decltype(heads)::value, SX>(p, begin, end)); });
                });
}

template <class SG>
void attend_record(const Array<SG>& G, const Array<typename Compute<SG>::type>& left,
                   const Array<typename Compute<SG>::type>& Z, const Array<typename Compute<SG>::type>& L,
                   const Array<typename Compute<SG>::type>& sum, const Array<typename Compute<SG>::type>& plus,
                   const Array<typename Compute<SG>::type>& plus_sum, const py::object& D, double slope,
                   Array<typename Compute<SG>::type>& record, Array<typename Compute<SG>::type>& dleft, int threads,
                   const std::string& isa_name) {
    typedef typename Compute<SG>::type T;
    const int64_t n = left.shape(0), K = left.shape(1), width = G.shape(1);
    require(K > 0 && width % K == 0, "attend_record: columns of G must be a multiple of the heads");
    require(has_shape(G, n, width) && has_shape(Z, n, width) && has_shape(plus, n, width) && has_shape(L, n, K) &&
                has_shape(sum, n, K) && has_shape(plus_sum, n, K) && has_shape(record, n, 3 * K) &&
                has_shape(dleft, n, K),
            "attend_record: G, Z, plus (n, K D), record (n, 3 K), the others (n, K)");
    const Array<T> given = D.is_none() ? Array<T>(0) : writable<T>(D);
    require(D.is_none() || has_shape(given, n, K), "attend_record: D (n, K)");
    const Record<SG> p{K,
                       width,
                       G.data(),
                       left.data(),
                       Z.data(),
                       L.data(),
                       sum.data(),
                       plus.data(),
                       plus_sum.data(),
                       D.is_none() ? nullptr : given.data(),
                       T(slope),
                       record.mutable_data(),
                       dleft.mutable_data()};
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(width)), threads, [&](int64_t begin, int64_t end, int64_t) {
        of_heads(K, [&](auto heads) { ON(isa, record_rows<decltype(heads)::value, SG>(p, begin, end)); });
    });
}

template <class SU>
void head_dots(const Array<SU>& U, const Array<typename Compute<SU>::type>& V, Array<typename Compute<SU>::type>& out,
               int threads, const std::string& isa_name) {
    typedef typename Compute<SU>::type T;
    const int64_t n = out.shape(0), K = out.shape(1), width = U.shape(1);
    require(K > 0 && width % K == 0 && has_shape(U, n, width) && has_shape(V, n, width),
            "head_dots: U and V (n, K D), out (n, K)");
    const SU* u = U.data();
    const T* v = V.data();
    T* o = out.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(width)), threads, [&](int64_t begin, int64_t end, int64_t) {
        of_heads(K,
                 [&](auto heads) { ON(isa, dot_rows<decltype(heads)::value, SU, T>(K, width, u, v, o, begin, end)); });
    });
}

template <class SX, class I>
void attend_adjoint(const Array<int64_t>& indptr, const Array<I>& indices, const Array<SX>& X, const Array<SX>& G,
                    const Array<typename Compute<SX>::type>& record, const Array<typename Compute<SX>::type>& right,
                    Array<typename Compute<SX>::type>& dX, Array<typename Compute<SX>::type>& dright, double slope,
                    const py::object& drop, bool accumulate, int threads, const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const Pattern A = pattern_of(indptr, indices);
    const int64_t c = A.n, K = right.shape(1), width = X.shape(1), n = G.shape(0);
    require(K > 0 && width % K == 0, "attend_adjoint: columns of X must be a multiple of the heads");
    require(has_shape(X, c, width) && has_shape(G, n, width) && has_shape(record, n, 3 * K) && has_shape(right, c, K) &&
                has_shape(dX, c, width) && has_shape(dright, c, K),
            "attend_adjoint: X, dX (c, K D), G (n, K D), record (n, 3 K), right, dright (c, K)");
    const AttendAdjoint<SX> p{A,
                              K,
                              width,
                              X.data(),
                              G.data(),
                              record.data(),
                              right.data(),
                              dX.mutable_data(),
                              dright.mutable_data(),
                              T(slope),
                              edge_drop(drop, n, c),
                              accumulate};
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(balanced(A.indptr, c, A.nnz * width < (1 << 15) ? 1 : 64 * threads), threads,
                [&](int64_t begin, int64_t end, int64_t) {
                    of_heads(K, [&](auto heads) { ON(isa, adjoint_rows<decltype(heads)::value, SX>(p, begin, end)); });
                });
}

template <class SX>
void define(py::module_& m) {
    const auto product = [&](auto function) {
        m.def("attend", function, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
              py::arg("X").noconvert(), py::arg("left").noconvert(), py::arg("right").noconvert(),
              py::arg("Z").noconvert(), py::arg("top").noconvert(), py::arg("sum").noconvert(), py::arg("plus"),
              py::arg("plus_sum"), py::arg("slope"), py::arg("drop"), py::arg("accumulate"), py::arg("finish"),
              py::arg("threads") = 0, py::arg("isa") = "");
    };
    product(&attend<SX, int32_t>);
    product(&attend<SX, int64_t>);
    const auto adjoint = [&](auto function) {
        m.def("attend_adjoint", function, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
              py::arg("X").noconvert(), py::arg("G").noconvert(), py::arg("record").noconvert(),
              py::arg("right").noconvert(), py::arg("dX").noconvert(), py::arg("dright").noconvert(), py::arg("slope"),
              py::arg("drop"), py::arg("accumulate"), py::arg("threads") = 0, py::arg("isa") = "");
    };
    adjoint(&attend_adjoint<SX, int32_t>);
    adjoint(&attend_adjoint<SX, int64_t>);
    m.def("attend_record", &attend_record<SX>, py::arg("G").noconvert(), py::arg("left").noconvert(),
          py::arg("Z").noconvert(), py::arg("L").noconvert(), py::arg("sum").noconvert(), py::arg("plus").noconvert(),
          py::arg("plus_sum").noconvert(), py::arg("D"), py::arg("slope"), py::arg("record").noconvert(),
          py::arg("dleft").noconvert(), py::arg("threads") = 0, py::arg("isa") = "");
    m.def("head_dots", &head_dots<SX>, py::arg("U").noconvert(), py::arg("V").noconvert(), py::arg("out").noconvert(),
          py::arg("threads") = 0, py::arg("isa") = "");
}

}  // namespace

void define_attention(py::module_& m) {
    define<float>(m);
    define<double>(m);
    define<bfloat16>(m);
}

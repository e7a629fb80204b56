// Bindings of attention and of values of nonzeros.

#include "bindings.h"

namespace spgnn {

namespace {

// The bias (K D) of an Attend, None for none, and its activation; the array outlives the call.
template <class P>
void end_with(P& p, const Given& bias, int act) {
    p.act = act;
    p.bias = vector_of<typename P::T>(bias, p.width, "attend: bias (K D)").data();
}

// Attention of GAT v1: softmax-weighted sums over the nonzeros of each row, and their adjoint, without edge arrays.

template <class SX>
void attend(const Array<int64_t>& indptr, const AnyArray& indices, const Array<SX>& X,
            const Array<typename Compute<SX>::type>& left, const Array<typename Compute<SX>::type>& right,
            Array<typename Compute<SX>::type>& Z, Array<typename Compute<SX>::type>& top,
            Array<typename Compute<SX>::type>& sum, const Given& plus, const Given& plus_sum, double slope,
            const Given& drop, bool accumulate, bool finish, const Given& bias, int act, int threads,
            const std::string& isa_name) {
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
    end_with(p, bias, act);
    require(plus.is_none() == plus_sum.is_none(), "attend: plus and plus_sum, or neither");
    p.plus = matrix_of<T>(plus, n, width, "attend: plus (n, K D)").mutable_data();
    p.plus_sum = matrix_of<T>(plus_sum, n, K, "attend: plus_sum (n, K)").mutable_data();
    over_rows(A, c, width, threads, isa_name,
              [&](int isa, int64_t begin, int64_t end) { ON(isa, attend_rows(p, begin, end)); });
}

template <class SX>
void fixed_dots(const Array<SX>& X, const Array<typename Compute<SX>::type>& fixed, const Given& left,
                Array<typename Compute<SX>::type>& right, int threads, const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const int64_t c = X.shape(0), K = right.shape(1), width = X.shape(1);
    require(K > 0 && width % K == 0 && has_shape(fixed, 2, width) && has_shape(right, c, K),
            "fixed_dots: X (c, K D), fixed (2, K D), left and right (c, K)");
    const FixedDots<SX> p{K,
                          width,
                          X.data(),
                          fixed.data(),
                          matrix_of<T>(left, c, K, "fixed_dots: left (c, K)").mutable_data(),
                          right.mutable_data()};
    in_chunks(even(c, rows_a_chunk(width)), threads, isa_name,
              [&](int isa, int64_t begin, int64_t end, int64_t) { ON(isa, fixed_rows(p, begin, end)); });
}

// The column sums of dZ, where that is given. Of scores that are no sums left, plus, plus_sum and dleft are None.
template <class SG>
Array<double> attend_record(const Array<SG>& G, const Given& left, const Array<typename Compute<SG>::type>& Z,
                            const Array<typename Compute<SG>::type>& top,
                            const Array<typename Compute<SG>::type>& scale, const Given& plus, const Given& plus_sum,
                            const Given& share, const Given& D, double slope, Array<typename Compute<SG>::type>& record,
                            const Given& dleft, const Given& bias, int act, const Given& dZ, int threads,
                            const std::string& isa_name) {
    typedef typename Compute<SG>::type T;
    const int64_t n = top.shape(0), K = top.shape(1), width = G.shape(1);
    require(K > 0 && width % K == 0, "attend_record: columns of G must be a multiple of the heads");
    require(has_shape(G, n, width) && has_shape(Z, n, width) && has_shape(scale, n, K) &&
                has_shape(record, n, left.is_none() ? 3 * K : 4 * K),
            "attend_record: G, Z (n, K D), scale (n, K), record (n, 4 K), without left (n, 3 K)");
    require(left.is_none() || !(plus.is_none() || plus_sum.is_none() || dleft.is_none()), "attend_record: plus");
    require(share.is_none() == D.is_none(), "attend_record: share and D, or neither");
    const char* message = "attend_record: plus (n, K D), left, plus_sum, share, D, dleft (n, K)";
    Record<SG> p{K,
                 width,
                 G.data(),
                 matrix_of<T>(left, n, K, message).data(),
                 Z.data(),
                 top.data(),
                 scale.data(),
                 matrix_of<T>(plus, n, width, message).data(),
                 matrix_of<T>(plus_sum, n, K, message).data(),
                 matrix_of<T>(share, n, K, message).data(),
                 matrix_of<T>(D, n, K, message).data(),
                 T(slope),
                 record.mutable_data(),
                 matrix_of<T>(dleft, n, K, message).mutable_data()};
    end_with(p, bias, act);
    p.dZ = matrix_of<SG>(dZ, n, width, "attend_record: dZ (n, K D)").mutable_data();
    const auto bounds = even(n, rows_a_chunk(width));  // the chunks, and so the sums, do not depend on threads
    std::vector<std::vector<double>> parts(bounds.size());
    in_chunks(bounds, threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t number) {
        if (p.dZ) parts[number].assign(width, 0.0);
        ON(isa, record_rows(p, parts[number].data(), begin, end));
    });
    return total_of(parts, width);
}

// The gradients of the two fixed rows that left and right are inner products with, side by side.
template <class SX>
Array<double> attend_adjoint(const Array<int64_t>& indptr, const AnyArray& indices, const Array<SX>& X,
                             const Array<SX>& G, const Array<typename Compute<SX>::type>& record,
                             const Array<typename Compute<SX>::type>& right,
                             const Array<typename Compute<SX>::type>& fixed, const Given& dleft,
                             Array<typename Compute<SX>::type>& dX, double slope, const Given& drop, int threads,
                             const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const Pattern A = pattern_of(indptr, indices);
    const int64_t c = A.n, K = right.shape(1), width = X.shape(1), n = G.shape(0);
    require(K > 0 && width % K == 0, "attend_adjoint: columns of X must be a multiple of the heads");
    require(has_shape(X, c, width) && has_shape(G, n, width) && has_shape(record, n, 4 * K) && has_shape(right, c, K) &&
                has_shape(dX, c, width) && has_shape(fixed, 2, width),
            "attend_adjoint: X, dX (c, K D), G (n, K D), record (n, 4 K), right (c, K), fixed (2, K D)");
    const AttendAdjoint<SX> p{A,
                              K,
                              width,
                              X.data(),
                              G.data(),
                              record.data(),
                              right.data(),
                              fixed.data(),
                              matrix_of<T>(dleft, c, K, "attend_adjoint: dleft (c, K)").data(),
                              dX.mutable_data(),
                              T(slope),
                              edge_drop(drop, n, c)};
    const auto bounds = balanced(A.indptr, c, 256);  // of the sums, too: the chunks do not depend on threads
    std::vector<std::vector<double>> parts(bounds.size());
    in_chunks(bounds, threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t number) {
        check_rows(A, n, isa, begin, end);
        parts[number].assign(2 * width, 0.0);
        ON(isa, adjoint_rows(p, parts[number].data(), begin, end));
    });
    return total_of(parts, 2 * width);
}

template <class SX>
void define_attention_of(nb::module_& m) {
    m.def("attend", &attend<SX>, nb::arg("indptr"), nb::arg("indices"), nb::arg("X"), nb::arg("left"), nb::arg("right"),
          nb::arg("Z"), nb::arg("top"), nb::arg("sum"), nb::arg("plus"), nb::arg("plus_sum"), nb::arg("slope"),
          nb::arg("drop"), nb::arg("accumulate"), nb::arg("finish"), nb::arg("bias"), nb::arg("act"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("fixed_dots", &fixed_dots<SX>, nb::arg("X"), nb::arg("fixed"), nb::arg("left"), nb::arg("right"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("attend_adjoint", &attend_adjoint<SX>, nb::arg("indptr"), nb::arg("indices"), nb::arg("X"), nb::arg("G"),
          nb::arg("record"), nb::arg("right"), nb::arg("fixed"), nb::arg("dleft"), nb::arg("dX"), nb::arg("slope"),
          nb::arg("drop"), nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("attend_record", &attend_record<SX>, nb::arg("G"), nb::arg("left"), nb::arg("Z"), nb::arg("top"),
          nb::arg("scale"), nb::arg("plus"), nb::arg("plus_sum"), nb::arg("share"), nb::arg("D"), nb::arg("slope"),
          nb::arg("record"), nb::arg("dleft"), nb::arg("bias"), nb::arg("act"), nb::arg("dZ"), nb::arg("threads") = 0,
          nb::arg("isa") = "");
}

// Attention of GAT v2: softmax-weighted sums over the nonzeros of each row, and their adjoints, without edge arrays.

template <class SX>
void attend2(const Array<int64_t>& indptr, const AnyArray& indices, const Array<SX>& right, const Array<SX>& left,
             const Array<typename Compute<SX>::type>& a, Array<typename Compute<SX>::type>& Z,
             Array<typename Compute<SX>::type>& top, Array<typename Compute<SX>::type>& sum, double slope,
             const Given& drop, bool accumulate, bool finish, const Given& bias, int act, int threads,
             const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const Pattern A = pattern_of(indptr, indices);
    const int64_t n = A.n, K = top.shape(1), width = right.shape(1), c = right.shape(0);
    require(K > 0 && width % K == 0, "attend2: columns must be a multiple of the heads");
    require(has_shape(right, c, width) && has_shape(left, n, width) && a.ndim() == 1 && a.shape(0) == width &&
                has_shape(Z, n, width) && has_shape(top, n, K) && has_shape(sum, n, K),
            "attend2: right (c, K D), left and Z (n, K D), a (K D), top and sum (n, K)");
    Attend2<SX> p{{A, K, width, right.data(), nullptr, nullptr, Z.mutable_data(), top.mutable_data(),
                   sum.mutable_data(), nullptr, nullptr, T(slope), edge_drop(drop, n, c), accumulate, finish},
                  left.data(),
                  a.data()};
    end_with(p.sums, bias, act);
    over_rows(A, c, width, threads, isa_name,
              [&](int isa, int64_t begin, int64_t end) { ON(isa, attend2_rows(p, begin, end)); });
}

// transposed: the pattern is that of A', out the gradient of right; else of left, and da (K D) that of a.
template <class SX>
void attend2_adjoint(const Array<int64_t>& indptr, const AnyArray& indices, bool transposed, const Array<SX>& right,
                     const Array<SX>& left, const Array<typename Compute<SX>::type>& a, const Array<SX>& G,
                     const Array<typename Compute<SX>::type>& record, Array<typename Compute<SX>::type>& out,
                     const Given& da, double slope, const Given& drop, bool accumulate, int threads,
                     const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const Pattern A = pattern_of(indptr, indices);
    const int64_t n = left.shape(0), c = right.shape(0), K = record.shape(1) / 3, width = right.shape(1);
    require(K > 0 && width % K == 0, "attend2: columns must be a multiple of the heads");
    require(A.n == (transposed ? c : n) && has_shape(left, n, width) && has_shape(right, c, width) && a.ndim() == 1 &&
                a.shape(0) == width && has_shape(G, n, width) && has_shape(record, n, 3 * K) &&
                has_shape(out, A.n, width),
            "attend2: right (c, K D), left and G (n, K D), a (K D), record (n, 3 K), out as left or right");
    const Attend2Adjoint<SX> p{A,
                               K,
                               width,
                               right.data(),
                               left.data(),
                               G.data(),
                               a.data(),
                               record.data(),
                               out.mutable_data(),
                               T(slope),
                               edge_drop(drop, n, c),
                               accumulate};
    require(transposed == da.is_none(), "attend2: da (K D), transposed none");
    T* const gradient = vector_of<T>(da, width, "attend2: da (K D)").mutable_data();
    const auto bounds = balanced(A.indptr, A.n, 64);  // of da too: the chunks do not depend on threads
    std::vector<std::vector<double>> parts(bounds.size());
    in_chunks(bounds, threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t number) {
        check_rows(A, transposed ? n : c, isa, begin, end);
        auto& part = parts[number];
        if (gradient) part.assign(width, 0.0);
        ON(isa, adjoint2_rows(p, transposed, gradient ? part.data() : nullptr, begin, end));
    });
    for (int64_t f = 0; gradient && f < width; ++f) {
        double total = accumulate ? gradient[f] : 0.0;
        for (const auto& part : parts)
            if (!part.empty()) total += part[f];
        gradient[f] = T(total);
    }
}

template <class SX>
void define_attention2_of(nb::module_& m) {
    m.def("attend2", &attend2<SX>, nb::arg("indptr"), nb::arg("indices"), nb::arg("right"), nb::arg("left"),
          nb::arg("a"), nb::arg("Z"), nb::arg("top"), nb::arg("sum"), nb::arg("slope"), nb::arg("drop"),
          nb::arg("accumulate"), nb::arg("finish"), nb::arg("bias"), nb::arg("act"), nb::arg("threads") = 0,
          nb::arg("isa") = "");
    m.def("attend2_adjoint", &attend2_adjoint<SX>, nb::arg("indptr"), nb::arg("indices"), nb::arg("transposed"),
          nb::arg("right"), nb::arg("left"), nb::arg("a"), nb::arg("G"), nb::arg("record"), nb::arg("out"),
          nb::arg("da"), nb::arg("slope"), nb::arg("drop"), nb::arg("accumulate"), nb::arg("threads") = 0,
          nb::arg("isa") = "");
}

// Products and softmax over values of nonzeros, K per nonzero: what custom attention is composed of.

// op: 0 inner products of U_i and X_j, 1 U_i + X_j + values_ij of those that are given, 2 out_i = sum_j values_ij X_j.
template <class T>
void edge_matrices(int op, const Array<int64_t>& indptr, const AnyArray& indices, int64_t K, int64_t c, const Given& U,
                   const Given& X, const Given& values, const Given& places, Array<T>& out, bool accumulate,
                   int threads, const std::string& isa_name) {
    require(op >= 0 && op <= 2, "op: 0, 1 or 2");
    const Pattern A = pattern_of(indptr, indices);
    const int64_t width = op > 0 ? out.shape(1) : exactly<T>(X).shape(1);
    require(K > 0 && width % K == 0, "columns must be a multiple of the heads");
    require(op == 2 ? has_shape(out, A.n, width) : has_shape(out, A.nnz, K), "out: one row per nonzero, or of A");
    require(!X.is_none() || width == K, "products with ones have one column per head");
    require(op != 1 || !(U.is_none() && X.is_none() && values.is_none()), "a sum has a term");
    require(op != 0 || !(U.is_none() || X.is_none()), "inner products are of U and X");
    require(op != 2 || !values.is_none(), "a weighted sum has values");
    const EdgeMatrices<T> p{A,
                            K,
                            width,
                            matrix_of<T>(U, A.n, width, "U: (n, K D)").data(),
                            matrix_of<T>(X, c, width, "X: (c, K D)").data(),
                            matrix_of<T>(values, A.nnz, K, "values: (nonzeros, K)").data(),
                            vector_of<int64_t>(places, A.nnz, "places: one per nonzero").data(),
                            out.mutable_data(),
                            accumulate};
    over_rows(A, p.X ? c : ANY_COLUMN, width, threads, isa_name, [&](int isa, int64_t begin, int64_t end) {
        const int64_t first = A.indptr[begin];
        require(!p.places || ON(isa, are_below(p.places + first, A.indptr[end] - first, A.nnz)),
                "a place is out of range");
        if (op == 0) return ON(isa, sddmm_rows(p, begin, end));
        if (op == 1) return ON(isa, edge_add_rows(p, begin, end));
        ON(isa, weighted_rows(p, begin, end));
    });
}

// op: 0 largest and sum of exponentials of a row, 1 exp(value - top) sum, 2 value (more - D), 3 out_i = sum_j value
// more.
template <class T>
void edge_values(int op, const Array<int64_t>& indptr, const AnyArray& indices, const Array<T>& values,
                 const Given& more, const Given& D, const Given& out, const Given& top, const Given& sum,
                 bool accumulate, int threads, const std::string& isa_name) {
    require(op >= 0 && op <= 3, "op: 0, 1, 2 or 3");
    const Pattern A = pattern_of(indptr, indices);
    const int64_t K = values.shape(1);
    require(has_shape(values, A.nnz, K), "values: (nonzeros, K)");
    const EdgeValues<T> p{A,
                          K,
                          values.data(),
                          matrix_of<T>(more, A.nnz, K, "values: (nonzeros, K)").data(),
                          matrix_of<T>(D, A.n, K, "D: (n, K)").data(),
                          matrix_of<T>(out, op == 3 ? A.n : A.nnz, K, "out: (nonzeros, K), or (n, K)").mutable_data(),
                          matrix_of<T>(top, A.n, K, "top: (n, K)").mutable_data(),
                          matrix_of<T>(sum, A.n, K, "sum: (n, K)").mutable_data(),
                          accumulate};
    require(op <= 1 ? p.top && p.sum && (op == 0 || p.out) : p.out && p.more && (op == 3 || p.D),
            "values: an array is missing");
    over_rows(A, ANY_COLUMN, K, threads, isa_name, [&](int isa, int64_t begin, int64_t end) {
        if (op == 0) return ON(isa, softmax_sums_rows(p, begin, end));
        if (op == 1) return ON(isa, softmax_rows(p, begin, end));
        if (op == 2) return ON(isa, softmax_adjoint_rows(p, begin, end));
        ON(isa, edge_dots_rows(p, begin, end));
    });
}

template <class T>
void define_edges_of(nb::module_& m) {
    m.def("edge_matrices", &edge_matrices<T>, nb::arg("op"), nb::arg("indptr"), nb::arg("indices"), nb::arg("K"),
          nb::arg("c"), nb::arg("U"), nb::arg("X"), nb::arg("values"), nb::arg("places"), nb::arg("out"),
          nb::arg("accumulate"), nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("edge_values", &edge_values<T>, nb::arg("op"), nb::arg("indptr"), nb::arg("indices"), nb::arg("values"),
          nb::arg("more"), nb::arg("D"), nb::arg("out"), nb::arg("top"), nb::arg("sum"), nb::arg("accumulate"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
}

}  // namespace

void define_edges(nb::module_& m) {
    define_attention_of<float>(m);
    define_attention_of<double>(m);
    define_attention_of<bfloat16>(m);
    define_attention2_of<float>(m);
    define_attention2_of<double>(m);
    define_attention2_of<bfloat16>(m);
    define_edges_of<float>(m);
    define_edges_of<double>(m);
}

}  // namespace spgnn

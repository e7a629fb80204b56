// Bindings of the passes over rows between products, of rows on the wire, and of maxima.

#include <algorithm>
#include <numeric>

#include "bindings.h"

namespace spgnn {

namespace {

// The row-wise passes between products: activation, bias, dropout, loss.

template <class S>
Array<double> mask_sum(const Array<S>& G, const Given& H, const Given& out, int act, int threads,
                       const std::string& isa_name) {
    require(G.ndim() == 2, "mask_sum: G (n, C)");
    const int64_t n = G.shape(0), C = G.shape(1);
    require(H.is_none() == out.is_none(), "mask_sum: H and out, or neither");
    const auto h = matrix_of<S>(H, n, C, "mask_sum: one shape"), o = matrix_of<S>(out, n, C, "mask_sum: one shape");
    S* masked = o.mutable_data();
    const auto bounds = even(n, rows_a_chunk(C));  // the chunks, and so the sums, do not depend on threads
    std::vector<std::vector<double>> parts(bounds.size());
    in_chunks(bounds, threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t c) {
        parts[c].assign(C, 0.0);
        ON(isa, mask_rows<S>(G.data(), h.data(), masked, parts[c].data(), act, begin, end, C));
    });
    return total_of(parts, C);
}

template <class S, class D>
void finish(const Array<S>& Z, Array<D>& out, const Given& bias, int act, int threads, const std::string& isa_name) {
    typedef typename Compute<S>::type T;
    require(Z.ndim() == 2 && out.ndim() == 2 && Z.shape(0) == out.shape(0) && Z.shape(1) == out.shape(1),
            "finish: one shape");
    const int64_t n = Z.shape(0), C = Z.shape(1);
    const auto b = vector_of<T>(bias, C, "finish: one bias per column");
    D* o = out.mutable_data();
    in_chunks(even(n, rows_a_chunk(C)), threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t) {
        ON(isa, finish_rows<S, D, T>(Z.data(), o, b.data(), act, begin, end, C));
    });
}

template <class S>
void drop(const Array<S>& X, Array<S>& out, const Array<int64_t>& node, uint64_t key, double rate, int threads,
          const std::string& isa_name) {
    require(X.ndim() == 2 && out.ndim() == 2 && X.shape(0) == out.shape(0) && X.shape(1) == out.shape(1),
            "dropout: one shape");
    require(node.ndim() == 1 && node.shape(0) == X.shape(0), "dropout: one node id per row");
    const uint32_t threshold = drop_threshold(rate);
    const int64_t n = X.shape(0), F = X.shape(1);
    typedef typename Compute<S>::type T;
    S* o = out.mutable_data();
    in_chunks(even(n, rows_a_chunk(F)), threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t) {
        ON(isa, drop_rows<S, T>(X.data(), o, node.data(), key, threshold, T(1 / (1 - rate)), begin, end, F));
    });
}

template <class T, class I>
void drop_sparse(const Array<int64_t>& indptr, const Array<I>& indices, const Array<T>& X, Array<T>& out,
                 const Array<int64_t>& node, uint64_t key, double rate, int threads, const std::string& isa_name) {
    require(indptr.ndim() == 1 && node.ndim() == 1 && indptr.size() == node.size() + 1 && X.ndim() == 1 &&
                X.size() == out.size() && X.size() == indices.size(),
            "dropout: sizes of the CSR do not fit");
    const uint32_t threshold = drop_threshold(rate);
    const int64_t n = node.size(), nnz = X.size();
    const int64_t *starts = indptr.data(), *id = node.data();
    T* o = out.mutable_data();
    in_chunks(even(n, 1024), threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t) {
        require(ON(isa, rise(starts, begin, end, nnz)), "dropout: indptr must rise from 0 to the number of nonzeros");
        ON(isa, drop_csr<T, I>(starts, indices.data(), X.data(), o, id, key, threshold, T(1 / (1 - rate)), begin, end));
    });
}

template <class T>
double softmax_xent(const Array<T>& Z, const Array<int64_t>& y, double scale, Array<T>& G, int threads,
                    const std::string& isa_name) {
    require(Z.ndim() == 2 && G.ndim() == 2 && Z.shape(0) == G.shape(0) && Z.shape(1) == G.shape(1) && y.ndim() == 1 &&
                y.shape(0) == Z.shape(0),
            "softmax_xent: shapes do not fit");
    const int64_t n = Z.shape(0), C = Z.shape(1);
    const int64_t* label = y.data();
    for (int64_t i = 0; i < n; ++i) require(label[i] < C, "softmax_xent: a label is not below the number of columns");
    T* g = G.mutable_data();
    const auto bounds = even(n, rows_a_chunk(C));
    std::vector<double> parts(bounds.size(), 0.0);
    in_chunks(bounds, threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t c) {
        parts[c] = ON(isa, xent_rows<T>(Z.data(), label, T(scale), g, begin, end, C));
    });
    double loss = 0;
    for (double part : parts) loss += part;
    return loss;
}

template <class S>
void define_storage(nb::module_& m) {
    m.def("mask_sum", &mask_sum<S>, nb::arg("G"), nb::arg("H"), nb::arg("out"), nb::arg("act") = int(RELU),
          nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("drop", &drop<S>, nb::arg("X"), nb::arg("out"), nb::arg("node"), nb::arg("key"), nb::arg("rate"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
}

template <class S, class D>
void define_finish(nb::module_& m) {
    m.def("finish", &finish<S, D>, nb::arg("Z"), nb::arg("out"), nb::arg("bias") = nb::none(),
          nb::arg("act") = int(NO_ACT), nb::arg("threads") = 0, nb::arg("isa") = "");
}

template <class T, class I>
void define_drop_sparse(nb::module_& m) {
    m.def("drop_sparse", &drop_sparse<T, I>, nb::arg("indptr"), nb::arg("indices"), nb::arg("X"), nb::arg("out"),
          nb::arg("node"), nb::arg("key"), nb::arg("rate"), nb::arg("threads") = 0, nb::arg("isa") = "");
}

template <class T>
void define_compute(nb::module_& m) {
    m.def("softmax_xent", &softmax_xent<T>, nb::arg("Z"), nb::arg("y"), nb::arg("scale"), nb::arg("G"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
    define_drop_sparse<T, int32_t>(m);
    define_drop_sparse<T, int64_t>(m);
}

// Rows packed for the wire and unpacked.

Format format_of(const std::string& name) {
    require(name == "bfloat16" || name == "float16", "wire: the format is bfloat16 or float16");
    return name == "bfloat16" ? BFLOAT16 : HALF;
}

template <class S>
void check(const Array<S>& X, const Array<uint8_t>& bytes) {
    require(X.ndim() == 2 && bytes.ndim() == 2 && X.shape(0) == bytes.shape(0),
            "wire: a row of bytes for each row of numbers");
    require(bytes.shape(1) == 2 * X.shape(1), "wire: rows of 2 bytes a number");
}

template <class S>
void encode(const std::string& name, const Array<S>& X, Array<uint8_t>& out, int threads, const std::string& isa_name) {
    const Format format = format_of(name);
    check(X, out);
    const int64_t n = X.shape(0), F = X.shape(1);
    uint8_t* o = out.mutable_data();
    in_chunks(even(n, rows_a_chunk(F)), threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t) {
        ON(isa, encode_rows(format, X.data(), o, begin, end, F));
    });
}

template <class S>
void decode(const std::string& name, const Array<uint8_t>& bytes, Array<S>& out, int threads,
            const std::string& isa_name) {
    const Format format = format_of(name);
    check(out, bytes);
    const int64_t n = out.shape(0), F = out.shape(1);
    S* o = out.mutable_data();
    in_chunks(even(n, rows_a_chunk(F)), threads, isa_name, [&](int isa, int64_t begin, int64_t end, int64_t) {
        ON(isa, decode_rows(format, bytes.data(), o, begin, end, F));
    });
}

template <class S>
void define_wire_of(nb::module_& m) {
    m.def("encode", &encode<S>, nb::arg("format"), nb::arg("X"), nb::arg("out"), nb::arg("threads") = 0,
          nb::arg("isa") = "");
    m.def("decode", &decode<S>, nb::arg("format"), nb::arg("bytes"), nb::arg("out"), nb::arg("threads") = 0,
          nb::arg("isa") = "");
}

// Row-wise maximum over the nonzeros of each row, and its adjoint.

// Numbers below 2^31 - 1 in the same order as these: these themselves, or where each comes when they are sorted.
std::vector<int32_t> ranks_of(const int64_t* order, int64_t size) {
    nb::gil_scoped_release unlocked;
    std::vector<int32_t> ranks(static_cast<size_t>(size));
    if (std::all_of(order, order + size, [](int64_t x) { return x < std::numeric_limits<int32_t>::max(); })) {
        std::copy_n(order, size, ranks.data());
        return ranks;
    }
    std::vector<int64_t> sorted(static_cast<size_t>(size));
    std::iota(sorted.begin(), sorted.end(), 0);
    std::sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) { return order[a] < order[b]; });
    for (int64_t k = 0; k < size; ++k) ranks[size_t(sorted[size_t(k)])] = int32_t(k);
    return ranks;
}

// The same pattern with indices of 32 bits, which are enough for places.
Pattern with_narrow_indices(Pattern A, std::vector<int32_t>& narrowed) {
    if (!A.is_wide) return A;
    const auto* wide = static_cast<const int64_t*>(A.indices);
    require(base::are_below(wide, A.nnz, std::numeric_limits<int32_t>::max()), "a column index is out of range");
    narrowed.assign(wide, wide + A.nnz);
    A.indices = narrowed.data();
    A.is_wide = false;
    return A;
}

// Call f with arg as an array of 32 bits, or of 16.
template <class F>
void on_places(const AnyArray& arg, const F& f) {
    Array<uint16_t> narrow;
    if (narrow.take(arg.object()))
        f(narrow);
    else
        f(exactly<int32_t>(arg.object()));
}

template <class SX>
void maximum(const Array<int64_t>& indptr, const AnyArray& indices, const Array<SX>& X, const Given& order,
             Array<SX>& out, const AnyArray& arg, int64_t offset, bool accumulate, bool positive, int threads,
             const std::string& isa_name) {
    std::vector<int32_t> narrowed;
    const Pattern A = with_narrow_indices(pattern_of(indptr, indices), narrowed);
    const int64_t c = X.shape(0), width = X.shape(1);
    const auto orders = exactly_or_none<int64_t>(order);
    require(offset >= 0 && offset < (int64_t(1) << 31) - c, "maximum: places must fit in 31 bits");
    require(order.is_none() || orders.size() >= offset + c, "maximum: one order a place");
    on_places(arg, [&](auto places) {
        require(X.ndim() == 2 && has_shape(out, A.n, width) && has_shape(places, A.n, width),
                "maximum: X (c, F), out and arg (n, F)");
        require(places.itemsize() == 4 || !(accumulate || offset), "maximum: places of 16 bits are of one block");
        SX* y = out.mutable_data();
        auto* at = places.mutable_data();
        const std::vector<int32_t> ranks = ranks_of(orders.data(), orders.size());
        const int32_t* rank = ranks.empty() ? nullptr : ranks.data();
        const uint32_t last = uint32_t(ranks.size()) - 1;
        over_rows(A, c, width, threads, isa_name, [&](int isa, int64_t begin, int64_t end) {
            if (rank && accumulate) {
                uint32_t signs = 0;
#pragma omp simd reduction(| : signs)
                for (int64_t i = begin * width; i < end * width; ++i)
                    signs |= (last - uint32_t(at[i])) & ~uint32_t(at[i]);
                require(int32_t(signs) >= 0, "maximum: a place is out of range");
            }
            ON(isa, maximum_rows(A, X.data(), rank, y, at, width, offset, accumulate, positive, begin, end));
        });
    });
}

template <class T>
void maximum_adjoint(const Array<int64_t>& indptr, const AnyArray& indices, const Array<T>& G, const AnyArray& arg,
                     const Given& places, Array<T>& dX, int64_t offset, bool accumulate, int threads,
                     const std::string& isa_name) {
    std::vector<int32_t> narrowed;
    const Pattern A = with_narrow_indices(pattern_of(indptr, indices), narrowed);
    const int64_t width = G.shape(1);
    on_places(arg, [&](auto args) {
        typedef std::remove_const_t<std::remove_pointer_t<decltype(args.data())>> I;
        const int64_t n = G.shape(0);
        require(has_shape(args, n, width) && has_shape(dX, A.n, width), "maximum_adjoint: G and arg (n, F), dX (c, F)");
        const Array<I> of_row = exactly_or_none<I>(places);
        require(of_row.size() == (sizeof(I) == 2 ? A.nnz : 0), "maximum_adjoint: one place of 16 bits per nonzero");
        const I *at = args.data(), *of = of_row.data();
        T* d = dX.mutable_data();
        over_rows(A, n, width, threads, isa_name, [&](int isa, int64_t begin, int64_t end) {
            ON(isa, maximum_adjoint_rows(A, G.data(), at, of, d, width, offset, accumulate, begin, end));
        });
    });
}

template <class SX>
void define_maximum_of(nb::module_& m) {
    m.def("maximum", &maximum<SX>, nb::arg("indptr"), nb::arg("indices"), nb::arg("X"), nb::arg("order"),
          nb::arg("out"), nb::arg("arg"), nb::arg("offset"), nb::arg("accumulate"), nb::arg("positive"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
    if constexpr (!std::is_same_v<SX, bfloat16>)
        m.def("maximum_adjoint", &maximum_adjoint<SX>, nb::arg("indptr"), nb::arg("indices"), nb::arg("G"),
              nb::arg("arg"), nb::arg("places"), nb::arg("dX"), nb::arg("offset"), nb::arg("accumulate"),
              nb::arg("threads") = 0, nb::arg("isa") = "");
}

}  // namespace

void define_dense(nb::module_& m) {
    define_storage<float>(m);
    define_storage<double>(m);
    define_storage<bfloat16>(m);
    define_finish<float, float>(m);
    define_finish<double, double>(m);
    define_finish<bfloat16, bfloat16>(m);
    define_finish<bfloat16, float>(m);
    define_compute<float>(m);
    define_compute<double>(m);
    define_wire_of<float>(m);
    define_wire_of<double>(m);
    define_wire_of<bfloat16>(m);
    define_maximum_of<float>(m);
    define_maximum_of<double>(m);
    define_maximum_of<bfloat16>(m);
}

}  // namespace spgnn

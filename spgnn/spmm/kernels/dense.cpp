// The row-wise passes between products: activation, bias, dropout, loss.

#include "parallel.h"
#define SPGNN_LOOPS "dense.h"
#include "isa.h"

namespace {

template <class S>
py::array_t<double> mask_sum(const Array<S>& G, const py::object& H, const py::object& out, int threads,
                             const std::string& isa_name) {
    const int64_t n = G.shape(0), C = G.shape(1);
    const bool masks = !H.is_none();
    Array<S> h, o;
    if (masks) {
        h = py::cast<Array<S>>(H);
        o = py::cast<Array<S>>(out);
        require(h.shape(0) == n && h.shape(1) == C && o.shape(0) == n && o.shape(1) == C, "mask_sum: one shape");
    }
    py::array_t<double> sums(C);
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    const S *g = G.data(), *hh = masks ? h.data() : nullptr;
    S* oo = masks ? o.mutable_data() : nullptr;
    double* total = sums.mutable_data();
    py::gil_scoped_release unlocked;
    const auto bounds = even(n, rows_a_chunk(C));  // the chunks, and so the sums, do not depend on threads
    std::vector<std::vector<double>> parts(bounds.size());
    over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t c) {
        parts[c].assign(C, 0.0);
        ON(isa, mask_rows<S>(g, hh, oo, parts[c].data(), begin, end, C));
    });
    std::fill(total, total + C, 0.0);
    for (const auto& part : parts)
        for (size_t c = 0; c < part.size(); ++c) total[c] += part[c];
    return sums;
}

template <class S, class D>
void finish(const Array<S>& Z, Array<D>& out, const py::object& bias, bool relu, int threads,
            const std::string& isa_name) {
    typedef typename Compute<S>::type T;
    require(Z.ndim() == 2 && out.ndim() == 2 && Z.shape(0) == out.shape(0) && Z.shape(1) == out.shape(1),
            "finish: one shape");
    const int64_t n = Z.shape(0), C = Z.shape(1);
    Array<T> b;
    if (!bias.is_none()) {
        b = py::cast<Array<T>>(bias);
        require(b.shape(0) == C, "finish: one bias a column");
    }
    const S* z = Z.data();
    D* o = out.mutable_data();
    const T* bb = bias.is_none() ? nullptr : b.data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(C)), threads, [&](int64_t begin, int64_t end, int64_t) {
        ON(isa, finish_rows<S, D, T>(z, o, bb, relu, begin, end, C));
    });
}

template <class S>
void drop(const Array<S>& X, Array<S>& out, const Array<int64_t>& node, uint64_t key, double rate, int threads,
          const std::string& isa_name) {
    require(X.ndim() == 2 && out.ndim() == 2 && X.shape(0) == out.shape(0) && X.shape(1) == out.shape(1),
            "dropout: one shape");
    require(node.shape(0) == X.shape(0), "dropout: one node id a row");
    const uint32_t threshold = drop_threshold(rate);
    const int64_t n = X.shape(0), F = X.shape(1);
    typedef typename Compute<S>::type T;
    const S* x = X.data();
    S* o = out.mutable_data();
    const int64_t* id = node.data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(F)), threads, [&](int64_t begin, int64_t end, int64_t) {
        ON(isa, drop_rows<S, T>(x, o, id, key, threshold, T(1 / (1 - rate)), begin, end, F));
    });
}

template <class T, class I>
void drop_sparse(const Array<int64_t>& indptr, const Array<I>& indices, const Array<T>& X, Array<T>& out,
                 const Array<int64_t>& node, uint64_t key, double rate, int threads, const std::string& isa_name) {
    require(indptr.shape(0) == node.shape(0) + 1 && X.shape(0) == out.shape(0) && X.shape(0) == indices.shape(0),
            "dropout: sizes of the CSR do not fit");
    const uint32_t threshold = drop_threshold(rate);
    const int64_t n = node.shape(0);
    const int64_t *starts = indptr.data(), *id = node.data();
    const I* columns = indices.data();
    const T* x = X.data();
    T* o = out.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, 1024), threads, [&](int64_t begin, int64_t end, int64_t) {
        ON(isa, drop_csr<T, I>(starts, columns, x, o, id, key, threshold, T(1 / (1 - rate)), begin, end));
    });
}

template <class T>
double softmax_xent(const Array<T>& Z, const Array<int64_t>& y, double scale, Array<T>& G, int threads,
                    const std::string& isa_name) {
    require(Z.ndim() == 2 && G.ndim() == 2 && Z.shape(0) == G.shape(0) && Z.shape(1) == G.shape(1) &&
                y.shape(0) == Z.shape(0),
            "softmax_xent: shapes do not fit");
    const int64_t n = Z.shape(0), C = Z.shape(1);
    const T* z = Z.data();
    const int64_t* label = y.data();
    for (int64_t i = 0; i < n; ++i) require(label[i] < C, "softmax_xent: a label is not below the number of columns");
    T* g = G.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    const auto bounds = even(n, rows_a_chunk(C));
    std::vector<double> parts(bounds.size(), 0.0);
    over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t c) {
        parts[c] = ON(isa, xent_rows<T>(z, label, T(scale), g, begin, end, C));
    });
    double loss = 0;
    for (double part : parts) loss += part;
    return loss;
}

template <class S>
void define_storage(py::module_& m) {
    m.def("mask_sum", &mask_sum<S>, py::arg("G").noconvert(), py::arg("H"), py::arg("out"), py::arg("threads") = 0,
          py::arg("isa") = "");
    m.def("drop", &drop<S>, py::arg("X").noconvert(), py::arg("out").noconvert(), py::arg("node").noconvert(),
          py::arg("key"), py::arg("rate"), py::arg("threads") = 0, py::arg("isa") = "");
}

template <class S, class D>
void define_finish(py::module_& m) {
    m.def("finish", &finish<S, D>, py::arg("Z").noconvert(), py::arg("out").noconvert(), py::arg("bias") = py::none(),
          py::arg("relu") = false, py::arg("threads") = 0, py::arg("isa") = "");
}

template <class T, class I>
void define_drop_sparse(py::module_& m) {
    m.def("drop_sparse", &drop_sparse<T, I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("X").noconvert(), py::arg("out").noconvert(), py::arg("node").noconvert(), py::arg("key"),
          py::arg("rate"), py::arg("threads") = 0, py::arg("isa") = "");
}

template <class T>
void define_compute(py::module_& m) {
    m.def("softmax_xent", &softmax_xent<T>, py::arg("Z").noconvert(), py::arg("y").noconvert(), py::arg("scale"),
          py::arg("G").noconvert(), py::arg("threads") = 0, py::arg("isa") = "");
    define_drop_sparse<T, int32_t>(m);
    define_drop_sparse<T, int64_t>(m);
}

}  // namespace

void define_dense(py::module_& m) {
    define_storage<float>(m);
    define_storage<double>(m);
    define_storage<bfloat16>(m);
    define_finish<bfloat16, bfloat16>(m);
    define_finish<bfloat16, float>(m);
    define_compute<float>(m);
    define_compute<double>(m);
}

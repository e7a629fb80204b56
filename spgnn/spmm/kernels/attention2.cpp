// Attention of GAT v2: softmax-weighted sums over the nonzeros of each row, and their adjoints, without edge arrays.

#include "edge_block.h"
#define SPGNN_LOOPS "attention2.h"
#include "isa.h"

namespace {

template <class SX, class I>
void attend2(const Array<int64_t>& indptr, const Array<I>& indices, const Array<SX>& right, const Array<SX>& left,
             const Array<typename Compute<SX>::type>& a, Array<typename Compute<SX>::type>& Z,
             Array<typename Compute<SX>::type>& top, Array<typename Compute<SX>::type>& sum, double slope,
             const py::object& drop, bool accumulate, bool finish, int threads, const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const Pattern A = pattern_of(indptr, indices);
    const int64_t n = A.n, K = top.shape(1), width = right.shape(1), c = right.shape(0);
    require(K > 0 && width % K == 0, "attend2: columns must be a multiple of the heads");
    require(has_shape(right, c, width) && has_shape(left, n, width) && a.ndim() == 1 && a.shape(0) == width &&
                has_shape(Z, n, width) && has_shape(top, n, K) && has_shape(sum, n, K),
            "attend2: right (c, K D), left and Z (n, K D), a (K D), top and sum (n, K)");
    const Attend2<SX> p{{A, K, width, right.data(), nullptr, nullptr, Z.mutable_data(), top.mutable_data(),
                         sum.mutable_data(), nullptr, nullptr, T(slope), edge_drop(drop, n, c), accumulate, finish},
                        left.data(),
                        a.data()};
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(balanced(A.indptr, n, A.nnz * width < (1 << 15) ? 1 : 64 * threads), threads,
                [&](int64_t begin, int64_t end, int64_t) {
                    of_heads(K, [&](auto heads) { ON(isa, attend2_rows<decltype(heads)::value, SX>(p, begin, end)); });
                });
}

// transposed: the pattern is that of A', out the gradient of right; else of left, and da (K D) that of a.
template <class SX, class I>
void attend2_adjoint(const Array<int64_t>& indptr, const Array<I>& indices, bool transposed, const Array<SX>& right,
                     const Array<SX>& left, const Array<typename Compute<SX>::type>& a, const Array<SX>& G,
                     const Array<typename Compute<SX>::type>& record, Array<typename Compute<SX>::type>& out,
                     const py::object& da, double slope, const py::object& drop, bool accumulate, int threads,
                     const std::string& isa_name) {
    typedef typename Compute<SX>::type T;
    const Pattern A = pattern_of(indptr, indices);
    const int64_t n = left.shape(0), c = right.shape(0), K = record.shape(1) / 2, width = right.shape(1);
    require(K > 0 && width % K == 0, "attend2: columns must be a multiple of the heads");
    require(A.n == (transposed ? c : n) && has_shape(left, n, width) && has_shape(right, c, width) && a.ndim() == 1 &&
                a.shape(0) == width && has_shape(G, n, width) && has_shape(record, n, 2 * K) &&
                has_shape(out, A.n, width),
            "attend2: right (c, K D), left and G (n, K D), a (K D), record (n, 2 K), out as left or right");
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
    T* gradient = nullptr;
    if (!transposed) {
        auto array = writable<T>(da);
        require(array.ndim() == 1 && array.shape(0) == width, "attend2: da (K D)");
        gradient = array.mutable_data();
    }
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    const auto bounds = balanced(A.indptr, A.n, 64);  // of da too: the chunks do not depend on threads
    std::vector<std::vector<double>> parts(bounds.size());
    over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t number) {
        auto& part = parts[number];
        if (gradient) part.assign(width, 0.0);
        of_heads(K, [&](auto heads) {
            if (transposed)
                ON(isa, adjoint2_rows<decltype(heads)::value, true, SX>(p, nullptr, begin, end));
            else
                ON(isa, adjoint2_rows<decltype(heads)::value, false, SX>(p, part.data(), begin, end));
        });
    });
    for (int64_t f = 0; gradient && f < width; ++f) {
        double total = accumulate ? gradient[f] : 0.0;
        for (const auto& part : parts)
            if (!part.empty()) total += part[f];
        gradient[f] = T(total);
    }
}

template <class SX, class I>
void define(py::module_& m) {
    m.def("attend2", &attend2<SX, I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("right").noconvert(), py::arg("left").noconvert(), py::arg("a").noconvert(), py::arg("Z").noconvert(),
          py::arg("top").noconvert(), py::arg("sum").noconvert(), py::arg("slope"), py::arg("drop"),
          py::arg("accumulate"), py::arg("finish"), py::arg("threads") = 0, py::arg("isa") = "");
    m.def("attend2_adjoint", &attend2_adjoint<SX, I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("transposed"), py::arg("right").noconvert(), py::arg("left").noconvert(), py::arg("a").noconvert(),
          py::arg("G").noconvert(), py::arg("record").noconvert(), py::arg("out").noconvert(), py::arg("da"),
          py::arg("slope"), py::arg("drop"), py::arg("accumulate"), py::arg("threads") = 0, py::arg("isa") = "");
}

template <class SX>
void define(py::module_& m) {
    define<SX, int32_t>(m);
    define<SX, int64_t>(m);
}

}  // namespace

void define_attention2(py::module_& m) {
    define<float>(m);
    define<double>(m);
    define<bfloat16>(m);
}

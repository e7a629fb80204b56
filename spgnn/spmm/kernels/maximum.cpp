// Row-wise maximum over the nonzeros of each row, and its adjoint.

#include <algorithm>
#include <numeric>

#include "edge_block.h"
#define SPGNN_LOOPS "maximum.h"
#include "isa.h"

namespace {

// Numbers below 2^31 - 1 in the same order as these: these themselves, or where each comes when they are sorted.
std::vector<int32_t> ranks_of(const int64_t* order, int64_t size) {
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

template <class SX, class I>
void maximum(const Array<int64_t>& indptr, const Array<I>& indices, const Array<SX>& X, const py::object& order,
             Array<SX>& out, Array<int32_t>& arg, int64_t offset, bool accumulate, int threads,
             const std::string& isa_name) {
    const Pattern A = pattern_of(indptr, indices);
    const int64_t width = X.shape(1);
    require(X.ndim() == 2 && has_shape(out, A.n, width) && has_shape(arg, A.n, width),
            "maximum: X (c, F), out and arg (n, F)");
    const Array<int64_t> orders = order.is_none() ? Array<int64_t>(0) : writable<int64_t>(order);
    require(order.is_none() || orders.size() >= offset + X.shape(0), "maximum: one order a place");
    require(offset + X.shape(0) < (int64_t(1) << 31), "maximum: places must fit in 31 bits");
    const I* columns = indices.data();
    const SX* x = X.data();
    SX* y = out.mutable_data();
    int32_t* at = arg.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    const std::vector<int32_t> ranks = ranks_of(orders.data(), orders.size());
    const int32_t* rank = ranks.empty() ? nullptr : ranks.data();
    over_chunks(balanced(A.indptr, A.n, A.nnz * width < (1 << 15) ? 1 : 64 * threads), threads,
                [&](int64_t begin, int64_t end, int64_t) {
                    ON(isa,
                       maximum_rows<SX, I>(A.indptr, columns, x, rank, y, at, width, offset, accumulate, begin, end));
                });
}

template <class T, class I>
void maximum_adjoint(const Array<int64_t>& indptr, const Array<I>& indices, const Array<T>& G,
                     const Array<int32_t>& arg, Array<T>& dX, int64_t offset, bool accumulate, int threads,
                     const std::string& isa_name) {
    const Pattern A = pattern_of(indptr, indices);
    const int64_t width = G.shape(1);
    require(has_shape(arg, G.shape(0), width) && has_shape(dX, A.n, width),
            "maximum_adjoint: G and arg (n, F), dX (c, F)");
    const I* columns = indices.data();
    const T* g = G.data();
    const int32_t* at = arg.data();
    T* d = dX.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(balanced(A.indptr, A.n, A.nnz * width < (1 << 15) ? 1 : 64 * threads), threads,
                [&](int64_t begin, int64_t end, int64_t) {
                    ON(isa,
                       maximum_adjoint_rows<T, I>(A.indptr, columns, g, at, d, width, offset, accumulate, begin, end));
                });
}

template <class SX, class I>
void define(py::module_& m) {
    m.def("maximum", &maximum<SX, I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("X").noconvert(), py::arg("order"), py::arg("out").noconvert(), py::arg("arg").noconvert(),
          py::arg("offset"), py::arg("accumulate"), py::arg("threads") = 0, py::arg("isa") = "");
    if constexpr (!std::is_same_v<SX, bfloat16>)
        m.def("maximum_adjoint", &maximum_adjoint<SX, I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
              py::arg("G").noconvert(), py::arg("arg").noconvert(), py::arg("dX").noconvert(), py::arg("offset"),
              py::arg("accumulate"), py::arg("threads") = 0, py::arg("isa") = "");
}

}  // namespace

void define_maximum(py::module_& m) {
    define<float, int32_t>(m);
    define<double, int32_t>(m);
    define<bfloat16, int32_t>(m);
    define<float, int64_t>(m);
    define<double, int64_t>(m);
    define<bfloat16, int64_t>(m);
}

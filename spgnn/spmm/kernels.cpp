// The loops of spgnn.spmm: CSR times row-major dense, and the row-wise passes between products.
// One build for every machine: the loops are compiled for AVX-512, AVX2 and the baseline, and the
// best that the processor has is chosen at run time. Python's lock is released in every loop.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace py = pybind11;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SPGNN_DISPATCH 1
#endif

namespace base {
#define SPGNN_BYTES 16
#define SPGNN_TILE 8
#include "lanes.h"
#include "rows.h"
#include "dense.h"
#undef SPGNN_BYTES
#undef SPGNN_TILE
}  // namespace base

#ifdef SPGNN_DISPATCH
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define SPGNN_BYTES 32
#define SPGNN_TILE 8
#include "lanes.h"
#include "rows.h"
#include "dense.h"
#undef SPGNN_BYTES
#undef SPGNN_TILE
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,fma,prefer-vector-width=512")
namespace avx512 {
#define SPGNN_BYTES 64
#define SPGNN_TILE 16
#include "lanes.h"
#include "rows.h"
#include "dense.h"
#undef SPGNN_BYTES
#undef SPGNN_TILE
}  // namespace avx512
#pragma GCC pop_options
#endif

// Call the same function of the chosen instruction set.
#ifdef SPGNN_DISPATCH
#define ON(isa, ...) ((isa) == 2 ? avx512::__VA_ARGS__ : (isa) == 1 ? avx2::__VA_ARGS__ : base::__VA_ARGS__)
#else
#define ON(isa, ...) (base::__VA_ARGS__)
#endif

namespace {

int best_isa() {
#ifdef SPGNN_DISPATCH
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

int chosen_isa(const std::string& name) {
    static const int best = best_isa();
    if (name.empty()) return best;
    const int isa = name == "avx512" ? 2 : name == "avx2" ? 1 : name == "base" ? 0 : -1;
    if (isa < 0 || isa > best) throw std::invalid_argument("instruction set '" + name + "' is not available here");
    return isa;
}

int chosen_threads(int threads) {
#ifdef _OPENMP
    return threads > 0 ? threads : omp_get_max_threads();
#else
    return 1;
#endif
}

void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

template <class T>
using Array = py::array_t<T, py::array::c_style>;

// Row boundaries of chunks with nearly equal work, where a row costs its nonzeros + 4.
std::vector<int64_t> balanced(const int64_t* indptr, int64_t n, int64_t chunks) {
    chunks = std::max<int64_t>(1, std::min(chunks, n));
    std::vector<int64_t> bounds(chunks + 1, n);
    const int64_t total = indptr[n] + 4 * n;
    bounds[0] = 0;
    for (int64_t c = 1; c < chunks; ++c) {
        const int64_t goal = total * c / chunks;
        int64_t low = bounds[c - 1], high = n;
        while (low < high) {
            const int64_t mid = (low + high) / 2;
            if (indptr[mid] + 4 * mid < goal) low = mid + 1;
            else high = mid;
        }
        bounds[c] = low;
    }
    return bounds;
}

template <class Body>
void over_chunks(const std::vector<int64_t>& bounds, int threads, const Body& body) {
    const int64_t chunks = int64_t(bounds.size()) - 1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (chunks > 1 && threads > 1)
    for (int64_t c = 0; c < chunks; ++c)
        if (bounds[c] < bounds[c + 1]) body(bounds[c], bounds[c + 1], c);
}

std::vector<int64_t> even(int64_t n, int64_t step) {
    std::vector<int64_t> bounds;
    for (int64_t i = 0; i < n; i += step) bounds.push_back(i);
    bounds.push_back(n);
    return bounds;
}

int64_t rows_a_chunk(int64_t width) { return std::max<int64_t>(64, (1 << 16) / std::max<int64_t>(width, 1) / 64 * 64); }

template <class T, class I>
void spmm(const Array<int64_t>& indptr, const Array<I>& indices, const py::object& weights, const Array<T>& X, Array<T>& Y, bool accumulate, const py::object& bias, bool relu, int threads, const std::string& isa_name) {
    require(X.ndim() == 2 && Y.ndim() == 2 && X.shape(1) == Y.shape(1), "spmm: X and Y must be matrices of one width");
    require(indptr.ndim() == 1 && indptr.shape(0) == Y.shape(0) + 1, "spmm: indptr must have rows of Y + 1 entries");
    const int64_t n = Y.shape(0), width = Y.shape(1), nnz = indptr.data()[n];
    require(nnz == indices.shape(0), "spmm: indptr must end at the number of indices");
    Array<T> w, b;
    if (!weights.is_none()) {
        w = py::cast<Array<T>>(weights);
        require(w.shape(0) == nnz, "spmm: one weight a nonzero");
    }
    if (!bias.is_none()) {
        b = py::cast<Array<T>>(bias);
        require(b.shape(0) == width, "spmm: one bias a column");
    }
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    const int64_t* starts = indptr.data();
    const I* columns = indices.data();
    const T *ww = weights.is_none() ? nullptr : w.data(), *bb = bias.is_none() ? nullptr : b.data(), *x = X.data();
    T* y = Y.mutable_data();
    py::gil_scoped_release unlocked;
    const auto bounds = balanced(starts, n, nnz * width < (1 << 15) ? 1 : 64 * threads);
    over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t) {
#ifdef SPGNN_DISPATCH
        if (isa == 2) return avx512::rows(avx512::Product<T, I>{starts, columns, ww, x, width, y, width, bb, accumulate, relu, nnz}, begin, end, width);
        if (isa == 1) return avx2::rows(avx2::Product<T, I>{starts, columns, ww, x, width, y, width, bb, accumulate, relu, nnz}, begin, end, width);
#endif
        base::rows(base::Product<T, I>{starts, columns, ww, x, width, y, width, bb, accumulate, relu, nnz}, begin, end, width);
    });
}

// out[i] = X[rows[i]], bytes copied whatever the type.
void take_rows(const py::array& X, const Array<int64_t>& rows, py::array& out, int threads) {
    require(X.ndim() == 2 && out.ndim() == 2 && X.shape(1) == out.shape(1) && X.itemsize() == out.itemsize(), "take_rows: X and out must have one width and type");
    require((X.flags() & py::array::c_style) && (out.flags() & py::array::c_style), "take_rows: row-major arrays");
    require(rows.shape(0) == out.shape(0), "take_rows: one row of out an index");
    const int64_t n = rows.shape(0), bytes = X.shape(1) * X.itemsize();
    const int64_t* index = rows.data();
    const char* x = static_cast<const char*>(X.data());
    char* y = static_cast<char*>(out.mutable_data());
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(bytes / 4)), threads, [&](int64_t begin, int64_t end, int64_t) {
        for (int64_t i = begin; i < end; ++i) {
            if (i + 8 < end) __builtin_prefetch(x + index[i + 8] * bytes);
            std::copy_n(x + index[i] * bytes, bytes, y + i * bytes);
        }
    });
}

template <class T>
py::array_t<double> mask_sum(const Array<T>& G, const py::object& H, const py::object& out, int threads, const std::string& isa_name) {
    const int64_t n = G.shape(0), C = G.shape(1);
    const bool masks = !H.is_none();
    Array<T> h, o;
    if (masks) {
        h = py::cast<Array<T>>(H);
        o = py::cast<Array<T>>(out);
        require(h.shape(0) == n && h.shape(1) == C && o.shape(0) == n && o.shape(1) == C, "mask_sum: one shape");
    }
    py::array_t<double> sums(C);
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    const T *g = G.data(), *hh = masks ? h.data() : nullptr;
    T* oo = masks ? o.mutable_data() : nullptr;
    double* total = sums.mutable_data();
    py::gil_scoped_release unlocked;
    const auto bounds = even(n, rows_a_chunk(C));  // the chunks, and so the sums, do not depend on threads
    std::vector<std::vector<double>> parts(bounds.size());
    over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t c) {
        parts[c].assign(C, 0.0);
        ON(isa, mask_rows<T>(g, hh, oo, parts[c].data(), begin, end, C));
    });
    std::fill(total, total + C, 0.0);
    for (const auto& part : parts)
        for (size_t c = 0; c < part.size(); ++c) total[c] += part[c];
    return sums;
}

uint32_t drop_threshold(double rate) {
    require(rate >= 0 && rate < 1, "dropout: the rate must be in [0, 1)");
    return uint32_t(std::min(rate * 4294967296.0, 4294967295.0));
}

template <class T>
void drop(const Array<T>& X, Array<T>& out, const Array<int64_t>& node, uint64_t key, double rate, int threads, const std::string& isa_name) {
    require(X.ndim() == 2 && out.ndim() == 2 && X.shape(0) == out.shape(0) && X.shape(1) == out.shape(1), "dropout: one shape");
    require(node.shape(0) == X.shape(0), "dropout: one node id a row");
    const uint32_t threshold = drop_threshold(rate);
    const int64_t n = X.shape(0), F = X.shape(1);
    const T* x = X.data();
    T* o = out.mutable_data();
    const int64_t* id = node.data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(F)), threads, [&](int64_t begin, int64_t end, int64_t) {
        ON(isa, drop_rows<T>(x, o, id, key, threshold, T(1 / (1 - rate)), begin, end, F));
    });
}

template <class T, class I>
void drop_sparse(const Array<int64_t>& indptr, const Array<I>& indices, const Array<T>& X, Array<T>& out, const Array<int64_t>& node, uint64_t key, double rate, int threads, const std::string& isa_name) {
    require(indptr.shape(0) == node.shape(0) + 1 && X.shape(0) == out.shape(0) && X.shape(0) == indices.shape(0), "dropout: sizes of the CSR do not fit");
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
double softmax_xent(const Array<T>& Z, const Array<int64_t>& y, double scale, Array<T>& G, int threads, const std::string& isa_name) {
    require(Z.ndim() == 2 && G.ndim() == 2 && Z.shape(0) == G.shape(0) && Z.shape(1) == G.shape(1) && y.shape(0) == Z.shape(0), "softmax_xent: shapes do not fit");
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
    over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t c) { parts[c] = ON(isa, xent_rows<T>(z, label, T(scale), g, begin, end, C)); });
    double loss = 0;
    for (double part : parts) loss += part;
    return loss;
}

template <class T>
void define_dense(py::module_& m) {
    m.def("mask_sum", &mask_sum<T>, py::arg("G").noconvert(), py::arg("H"), py::arg("out"), py::arg("threads") = 0, py::arg("isa") = "");
    m.def("drop", &drop<T>, py::arg("X").noconvert(), py::arg("out").noconvert(), py::arg("node").noconvert(), py::arg("key"), py::arg("rate"), py::arg("threads") = 0, py::arg("isa") = "");
    m.def("softmax_xent", &softmax_xent<T>, py::arg("Z").noconvert(), py::arg("y").noconvert(), py::arg("scale"), py::arg("G").noconvert(), py::arg("threads") = 0, py::arg("isa") = "");
}

template <class T, class I>
void define_sparse(py::module_& m) {
    m.def("spmm", &spmm<T, I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights"), py::arg("X").noconvert(), py::arg("Y").noconvert(), py::arg("accumulate") = false, py::arg("bias") = py::none(), py::arg("relu") = false, py::arg("threads") = 0, py::arg("isa") = "");
    m.def("drop_sparse", &drop_sparse<T, I>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("X").noconvert(), py::arg("out").noconvert(), py::arg("node").noconvert(), py::arg("key"), py::arg("rate"), py::arg("threads") = 0, py::arg("isa") = "");
}

}  // namespace

PYBIND11_MODULE(_kernels, m) {
    m.doc() = "Loops of spgnn.spmm; call them through spgnn.spmm.local, which checks its arguments.";
    define_dense<float>(m);
    define_dense<double>(m);
    define_sparse<float, int32_t>(m);
    define_sparse<float, int64_t>(m);
    define_sparse<double, int32_t>(m);
    define_sparse<double, int64_t>(m);
    m.def("take_rows", &take_rows, py::arg("X").noconvert(), py::arg("rows").noconvert(), py::arg("out").noconvert(), py::arg("threads") = 0);
    m.def("instruction_sets", [] {
        std::vector<std::string> names{"base", "avx2", "avx512"};
        names.resize(best_isa() + 1);
        return names;
    }, "Instruction sets that this processor has, the last is the one used.");
}

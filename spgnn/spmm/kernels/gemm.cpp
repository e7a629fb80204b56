// Bindings of dense products: X W, and its gradients in one pass over dZ.

#include "bindings.h"

namespace spgnn {

namespace {

constexpr int64_t SEGMENTS = 16, LEAST_ROWS = 512;  // of dW: sums of segments of rows are added in their order
constexpr int64_t MOST_BYTES = int64_t(1) << 27;    // of the sums of all segments

constexpr int64_t LINE = 64;  // bytes: a vector must not straddle two lines

// Memory of a thread, uninitialised, that is kept from call to call: no call maps fresh pages.
template <class T>
T* kept(int64_t size) {
    static thread_local std::unique_ptr<char[]> memory;
    static thread_local int64_t bytes = 0;
    const int64_t needed = size * int64_t(sizeof(T)) + LINE;
    if (bytes < needed) {
        bytes = 0;  // nothing is held where no memory is left
        memory.reset();
        memory.reset(new char[size_t(needed)]);
        bytes = needed;
    }
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.get()) + LINE - 1) / LINE * LINE);
}

template <class T>
const T* matrix_or_null(const py::object& X, int64_t rows, int64_t columns, const char* message,
                        T** writable = nullptr) {
    if (X.is_none()) return nullptr;
    auto array = exactly<T>(X);
    require(has_shape(array, rows, columns), message);
    if (writable) *writable = array.mutable_data();
    return array.data();
}

template <class T>
const T* vector_or_null(const py::object& x, int64_t size, const char* message) {
    if (x.is_none()) return nullptr;
    const auto array = exactly<T>(x);
    require(array.ndim() == 1 && array.shape(0) == size, message);
    return array.data();
}

template <class T>
void gemm(const Array<T>& X, const Array<T>& W, Array<T>& out, bool transposed, const py::object& bias,
          const py::object& add, bool relu, int threads, const std::string& isa_name) {
    require(X.ndim() == 2 && W.ndim() == 2, "gemm: X and W must be matrices");
    const int64_t n = X.shape(0), k = X.shape(1), m = W.shape(transposed ? 0 : 1);
    require(W.shape(transposed ? 1 : 0) == k && has_shape(out, n, m), "gemm: X (n, k), W (k, m), out (n, m)");
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    T* const packed = kept<T>(ON(isa, packed_size<T>(k, m)));
    const T* const w = W.data();
    const Gemm<T> p{X.data(),
                    k,
                    k,
                    packed,
                    m,
                    out.mutable_data(),
                    vector_or_null<T>(bias, m, "gemm: one bias per column"),
                    matrix_or_null<T>(add, n, m, "gemm: add must have the shape of out"),
                    relu};
    py::gil_scoped_release unlocked;
    ON(isa, pack(w, k, m, transposed, packed));
    over_chunks(even(n, n * k * m < (1 << 20) ? n : 96 * std::max<int64_t>(1, (1 << 10) / (k + m))), threads,
                [&](int64_t begin, int64_t end, int64_t) { ON(isa, gemm_rows(p, begin, end)); });
}

// Returns the column sums of dZ, or None.
template <class T>
py::object gemm_adjoint(const Array<T>& G, const py::object& Z, const py::object& masked, const py::object& X,
                        const py::object& W, const py::object& dX, bool adds, const py::object& dW, bool wants_sums,
                        int threads, const std::string& isa_name) {
    require(G.ndim() == 2, "gemm_adjoint: G must be a matrix");
    const int64_t n = G.shape(0), m = G.shape(1);
    const py::object& of_k = W.is_none() ? X : W;
    const int64_t k = of_k.is_none() ? 0 : exactly<T>(of_k).shape(W.is_none() ? 1 : 0);
    GemmAdjoint<T> p{G.data(), nullptr, nullptr, nullptr, nullptr, k, m, nullptr, adds};
    p.Z = matrix_or_null<T>(Z, n, m, "gemm_adjoint: Z must have the shape of G");
    matrix_or_null<T>(masked, n, m, "gemm_adjoint: masked must have the shape of G", &p.masked);
    p.X = matrix_or_null<T>(X, n, k, "gemm_adjoint: X must have rows of G and of W");
    matrix_or_null<T>(dX, n, k, "gemm_adjoint: dX must have the shape of X", &p.dX);
    const T* const w = matrix_or_null<T>(W, k, m, "gemm_adjoint: W must have columns of X and of G");
    T* total = nullptr;
    matrix_or_null<T>(dW, k, m, "gemm_adjoint: dW must have the shape of W", &total);
    require(!p.dX || w, "gemm_adjoint: dX needs W");
    require(!total || p.X, "gemm_adjoint: dW needs X");
    py::array_t<double> sums(wants_sums ? m : 0);
    double* const sum = sums.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    {
        py::gil_scoped_release unlocked;
        const int64_t size = total ? ON(isa, gradient_size<T>(k, m)) : 0;
        const int64_t most =
            std::max<int64_t>(1, std::min(SEGMENTS, MOST_BYTES / std::max<int64_t>(1, size * sizeof(T))));
        const int64_t segments = std::max<int64_t>(1, std::min(most, n / LEAST_ROWS));
        const int64_t of_packed = p.dX ? ON(isa, packed_size<T>(m, k)) : 0, of_rows = ON(isa, gradient_scratch<T>(m));
        T* const packed = kept<T>(of_packed + segments * (size + of_rows));
        T *const parts = packed + of_packed, *const scratch = parts + segments * size;
        std::vector<double> part_sums(wants_sums ? size_t(segments * m) : 0, 0.0);
        if (p.dX) ON(isa, pack(w, m, k, true, packed));
        p.W = packed;
        const auto bounds = even(n, (n + segments - 1) / segments);
        over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t s) {
            T* const part = total ? parts + s * size : nullptr;
            std::fill_n(part, size, T(0));
            double* const added = wants_sums ? &part_sums[size_t(s * m)] : nullptr;
            ON(isa, gemm_adjoint_rows(p, part, added, scratch + s * of_rows, begin, end));
        });
        const int64_t used = int64_t(bounds.size()) - 1;
        if (total)
            over_chunks(even(k * m, 1 << 14), threads, [&](int64_t begin, int64_t end, int64_t) {
                ON(isa, add_segments(parts, used, k, m, total, begin, end));
            });
        for (int64_t c = 0; wants_sums && c < m; ++c) {
            sum[c] = 0;
            for (int64_t s = 0; s < segments; ++s) sum[c] += part_sums[size_t(s * m + c)];
        }
    }
    return wants_sums ? py::object(sums) : py::none();
}

template <class T>
void define(py::module_& m) {
    m.def("gemm", &gemm<T>, py::arg("X").noconvert(), py::arg("W").noconvert(), py::arg("out").noconvert(),
          py::arg("transposed") = false, py::arg("bias") = py::none(), py::arg("add") = py::none(),
          py::arg("relu") = false, py::arg("threads") = 0, py::arg("isa") = "");
    m.def("gemm_adjoint", &gemm_adjoint<T>, py::arg("G").noconvert(), py::arg("Z") = py::none(),
          py::arg("masked") = py::none(), py::arg("X") = py::none(), py::arg("W") = py::none(),
          py::arg("dX") = py::none(), py::arg("adds") = false, py::arg("dW") = py::none(), py::arg("sums") = false,
          py::arg("threads") = 0, py::arg("isa") = "");
}

}  // namespace

void define_gemm(py::module_& m) {
    define<float>(m);
    define<double>(m);
}

}  // namespace spgnn

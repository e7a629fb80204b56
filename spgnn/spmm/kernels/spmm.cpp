// CSR times row-major dense, and rows taken from a matrix.

#include "parallel.h"
#define SPGNN_LOOPS "rows.h"
#include "isa.h"

namespace {

template <class SX, class SY, class I>
void spmm(const Array<int64_t>& indptr, const Array<I>& indices, const py::object& weights, const Array<SX>& X,
          Array<SY>& Y, bool accumulate, const py::object& bias, bool relu, int threads, const std::string& isa_name,
          const py::object& add, const py::object& rows) {
    typedef typename Compute<SX>::type T;
    require(X.ndim() == 2 && Y.ndim() == 2 && X.shape(1) == Y.shape(1), "spmm: X and Y must be matrices of one width");
    const Array<int64_t> listed = rows.is_none() ? Array<int64_t>(0) : py::cast<Array<int64_t>>(rows);
    const int64_t n = rows.is_none() ? Y.shape(0) : listed.shape(0), width = Y.shape(1);
    require(indptr.ndim() == 1 && indptr.shape(0) == n + 1,
            "spmm: indptr must have rows of Y, or of the list, + 1 entries");
    const int64_t nnz = indptr.data()[n];
    require(nnz == indices.shape(0), "spmm: indptr must end at the number of indices");
    Array<T> w, b, a;
    if (!weights.is_none()) {
        w = py::cast<Array<T>>(weights);
        require(w.shape(0) == nnz, "spmm: one weight a nonzero");
    }
    if (!bias.is_none()) {
        b = py::cast<Array<T>>(bias);
        require(b.shape(0) == width, "spmm: one bias a column");
    }
    if (!add.is_none()) {
        a = py::cast<Array<T>>(add);
        require(a.ndim() == 2 && a.shape(0) == Y.shape(0) && a.shape(1) == width, "spmm: add must have the shape of Y");
    }
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    const int64_t* starts = indptr.data();
    const I* columns = indices.data();
    const T *ww = weights.is_none() ? nullptr : w.data(), *bb = bias.is_none() ? nullptr : b.data(),
            *aa = add.is_none() ? nullptr : a.data();
    const int64_t* places = rows.is_none() ? nullptr : listed.data();
    const SX* x = X.data();
    SY* y = Y.mutable_data();
    py::gil_scoped_release unlocked;
    const auto bounds = balanced(starts, n, nnz * width < (1 << 15) ? 1 : 64 * threads);
    over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t) {
#ifdef SPGNN_DISPATCH
        if (isa == 2)
            return avx512::rows(avx512::Product<SX, SY, I>{starts, columns, ww, x, width, y, width, bb, aa, accumulate,
                                                           relu, nnz, places},
                                begin, end, width);
        if (isa == 1)
            return avx2::rows(avx2::Product<SX, SY, I>{starts, columns, ww, x, width, y, width, bb, aa, accumulate,
                                                       relu, nnz, places},
                              begin, end, width);
#endif
        base::rows(
            base::Product<SX, SY, I>{starts, columns, ww, x, width, y, width, bb, aa, accumulate, relu, nnz, places},
            begin, end, width);
    });
}

// Whether a square CSR with sorted indices is its own transpose, weights to the bit. Rows are gone through in order, so
// that the nonzeros of column j are met in the order in which row j stores their mirror images.
template <class I>
bool equals_transpose(const Array<int64_t>& indptr, const Array<I>& indices, const py::object& weights) {
    const int64_t n = indptr.shape(0) - 1;
    require(n >= 0 && indptr.data()[n] == indices.shape(0),
            "equals_transpose: indptr must end at the number of indices");
    const py::array of = weights.is_none() ? py::array(Array<float>(0)) : py::cast<py::array>(weights);
    const uint32_t* words = of.itemsize() == 4 && of.size() ? static_cast<const uint32_t*>(of.data()) : nullptr;
    const uint64_t* longs = of.itemsize() == 8 && of.size() ? static_cast<const uint64_t*>(of.data()) : nullptr;
    require(weights.is_none() || (of.size() == indices.shape(0) && (of.flags() & py::array::c_style)),
            "equals_transpose: one weight a nonzero");
    const int64_t* starts = indptr.data();
    const I* columns = indices.data();
    py::gil_scoped_release unlocked;
    std::vector<int64_t> next(starts, starts + n);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t e = starts[i]; e < starts[i + 1]; ++e) {
            const int64_t j = int64_t(columns[e]);
            if (j < 0 || j >= n || next[j] >= starts[j + 1]) return false;
            const int64_t mirror = next[j]++;
            if (int64_t(columns[mirror]) != i || (words && words[mirror] != words[e]) ||
                (longs && longs[mirror] != longs[e]))
                return false;
        }
    return true;
}

// out[i] = X[rows[i]], bytes copied whatever the type.
void take_rows(const py::array& X, const Array<int64_t>& rows, py::array& out, int threads) {
    require(X.ndim() == 2 && out.ndim() == 2 && X.shape(1) == out.shape(1) && X.itemsize() == out.itemsize(),
            "take_rows: X and out must have one width and type");
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

template <class SX, class SY>
void define_product(py::module_& m) {
    const auto define = [&](auto function) {
        m.def("spmm", function, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights"),
              py::arg("X").noconvert(), py::arg("Y").noconvert(), py::arg("accumulate") = false,
              py::arg("bias") = py::none(), py::arg("relu") = false, py::arg("threads") = 0, py::arg("isa") = "",
              py::arg("add") = py::none(), py::arg("rows") = py::none());
    };
    define(&spmm<SX, SY, int32_t>);
    define(&spmm<SX, SY, int64_t>);
    if constexpr (std::is_same_v<SY, typename Compute<SX>::type>)
        define(&spmm<SX, SY, uint16_t>);  // of panels, which add up
}

}  // namespace

void define_spmm(py::module_& m) {
    define_product<float, float>(m);
    define_product<double, double>(m);
    define_product<bfloat16, bfloat16>(m);
    define_product<bfloat16, float>(m);
    define_product<float, bfloat16>(m);
    m.def("equals_transpose", &equals_transpose<int32_t>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("weights"));
    m.def("equals_transpose", &equals_transpose<int64_t>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("weights"));
    m.def("take_rows", &take_rows, py::arg("X").noconvert(), py::arg("rows").noconvert(), py::arg("out").noconvert(),
          py::arg("threads") = 0);
}

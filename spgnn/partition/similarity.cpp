// Dot products of the features of neighbours: arguments checked, several threads, Python's lock released.

#include <pybind11/pybind11.h>

#include "../native/arrays.h"
#include "similarity.h"
#include "loops.h"

namespace py = pybind11;

namespace spgnn {
namespace {

// x_i . x_j for each nonzero (i, j) of a pattern with sorted int64 indices; x (n, f).
template <class Real>
py::array_t<double> dense_dots(const Array<int64_t>& indptr, const Array<int64_t>& indices, const Array<Real>& x,
                               int threads) {
    py::array_t<double> dots(indices.size());
    double* out = dots.mutable_data();
    py::gil_scoped_release free;
    require(x.ndim() == 2 && x.shape(0) == indptr.size() - 1, "x must have a row for each row of the pattern");
    check_csr(indptr, indices, x.shape(0));
    spgnn::dense_dots(indptr.data(), indices.data(), x.shape(0), x.data(), x.shape(1), out, threads);
    return dots;
}

// The same for x in CSR.
template <class Real>
py::array_t<double> sparse_dots(const Array<int64_t>& indptr, const Array<int64_t>& indices,
                                const Array<int64_t>& x_indptr, const Array<int32_t>& x_indices,
                                const Array<Real>& x_data, int64_t features, int threads) {
    py::array_t<double> dots(indices.size());
    double* out = dots.mutable_data();
    py::gil_scoped_release free;
    require(x_indptr.size() == indptr.size() && x_data.size() == x_indices.size(),
            "x must have a row for each row of the pattern");
    check_csr(indptr, indices, indptr.size() - 1);
    check_csr(x_indptr, x_indices, features);
    spgnn::sparse_dots(indptr.data(), indices.data(), indptr.size() - 1, x_indptr.data(), x_indices.data(),
                       x_data.data(), features, out, threads);
    return dots;
}

template <class Real>
void define_similarity_of(py::module_& m) {
    m.def("dense_dots", &dense_dots<Real>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("x").noconvert(), py::arg("threads"));
    m.def("sparse_dots", &sparse_dots<Real>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("x_indptr").noconvert(), py::arg("x_indices").noconvert(), py::arg("x_data").noconvert(),
          py::arg("features"), py::arg("threads"));
}

}  // namespace

void define_similarity(py::module_& m) {
    define_similarity_of<float>(m);
    define_similarity_of<double>(m);
}

}  // namespace spgnn

// The order of a block's rows for caches: arguments checked, Python's lock released.

#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "../native/arrays.h"
#include "locality.h"
#include "loops.h"

namespace py = pybind11;

namespace spgnn {

// (the cheapest order of locality.h, empty unless it costs at most `enough` times the present order; the cost of the
// present order; the cost of the cheapest).
static py::tuple local_order(const Array<int64_t>& indptr, const Array<int32_t>& indices, double enough) {
    const int64_t n = indptr.size() - 1, *starts = indptr.data();
    const int32_t* columns = indices.data();
    std::vector<int32_t> best;
    int64_t now = 0, least = 0;
    {
        py::gil_scoped_release free;
        check_csr(indptr, indices, n);
        now = least = reading_cost(starts, columns, n, nullptr);
        auto compare = [&](std::vector<int32_t> order) {
            const int64_t cost = reading_cost(starts, columns, n, order.data());
            if (double(cost) <= enough * double(now) && cost < least) least = cost, best = std::move(order);
        };
        compare(by_degree(starts, n));
        compare(Communities().order(starts, columns, n));
    }
    return py::make_tuple(array_of(best), now, least);
}

void define_locality(py::module_& m) {
    m.def("local_order", &local_order, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("enough"));
}

}  // namespace spgnn

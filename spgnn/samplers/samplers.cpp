// The module of spgnn.samplers' loops. Python's lock is released in every loop.

#include "samplers.h"

#include "rng.h"

namespace spgnn {

static py::array_t<int64_t> integers(uint64_t seed, uint64_t stream, uint64_t index, uint64_t below, int64_t count) {
    check(below > 0, "below must be positive");
    py::array_t<int64_t> out(count);
    Rng rng(seed, stream, index);
    for (int64_t i = 0; i < count; ++i)
        out.mutable_data()[i] = int64_t(below >> 32 ? rng.below64(below) : rng.below(uint32_t(below)));
    return out;
}

}  // namespace spgnn

PYBIND11_MODULE(_samplers, m) {
    m.doc() = "Loops of spgnn.samplers; its classes check their arguments.";
    m.def("integers", &spgnn::integers, "count integers of 0 to below - 1, a function of (seed, stream, index)");
}

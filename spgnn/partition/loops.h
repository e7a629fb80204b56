// What each subject of the extension _loops adds to it.
#pragma once

#include <pybind11/pybind11.h>

namespace spgnn {

void define_cover(pybind11::module_& m);
void define_locality(pybind11::module_& m);
void define_similarity(pybind11::module_& m);

}  // namespace spgnn

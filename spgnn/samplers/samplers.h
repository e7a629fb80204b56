// What the files of the module share.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "../partition/arrays.h"

namespace py = pybind11;

// The loops of all instruction sets, each in its namespace: ON(isa, rows(...)) calls those of one. No Python here.
#pragma once

#include <cstdint>

#include "../../../native/cpu.h"
#include "arguments.h"

namespace spgnn::base {
#include "declarations.h"
}  // namespace spgnn::base

#ifdef SPGNN_DISPATCH
namespace spgnn::avx2 {
#include "declarations.h"
}  // namespace spgnn::avx2
namespace spgnn::avx512 {
#include "declarations.h"
}  // namespace spgnn::avx512
#endif

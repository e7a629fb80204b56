// Sparse times dense: the loops of columns.h for each pair of types, and checks of indices.

#include "columns.h"
#include "in_range.h"

namespace spgnn::SPGNN_SET {

#define SPGNN_MAKE(...) template void rows(const __VA_ARGS__&, int64_t, int64_t, int64_t);
SPGNN_MAKE(Product<float, float>)
SPGNN_MAKE(Product<double, double>)
SPGNN_MAKE(Product<bfloat16, bfloat16>)
SPGNN_MAKE(Product<bfloat16, float>)
SPGNN_MAKE(Product<float, bfloat16>)
SPGNN_MAKE(Tiled<float, float>)
SPGNN_MAKE(Tiled<double, double>)
SPGNN_MAKE(Tiled<bfloat16, float>)

template bool are_below(const uint8_t*, int64_t, int64_t);
template bool are_below(const int32_t*, int64_t, int64_t);
template bool are_below(const int64_t*, int64_t, int64_t);

}  // namespace spgnn::SPGNN_SET

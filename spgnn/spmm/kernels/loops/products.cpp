// Sparse times dense: the loops of columns.h for each pair of types, and checks of indices.

#include "columns.h"
#include "isa.h"

namespace spgnn::SPGNN_SET {

// Checks of indices cost a small part of the pass that follows them.

// Numbers of 0 to below - 1, of type uint8_t below 128. The sign of j | (below - 1 - j) is set where j is out of range:
// no comparison, so that every set has a vector of it.
template <class I>
bool are_below(const I* numbers, int64_t count, int64_t below) {
    typedef std::make_unsigned_t<I> U;
    typedef std::make_signed_t<I> S;
    const U last = U(std::min<int64_t>(below - 1, std::numeric_limits<S>::max()));
    U signs = 0;
    for (int64_t e = 0; e < count; ++e) signs |= U(numbers[e]) | (last - U(numbers[e]));
    return S(signs) >= 0;
}

bool rise(const int64_t* indptr, int64_t begin, int64_t end, int64_t nnz) {
    uint64_t signs = uint64_t(indptr[begin]) | uint64_t(nnz - indptr[end]);
    for (int64_t i = begin; i < end; ++i) signs |= uint64_t(indptr[i + 1]) - uint64_t(indptr[i]);
    return int64_t(signs) >= 0;
}

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

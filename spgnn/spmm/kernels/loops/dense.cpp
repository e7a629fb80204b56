// Passes over rows, rows on the wire, and maxima, for each type.

#include "dense.h"
#include "maximum.h"
#include "wire.h"

namespace spgnn::SPGNN_SET {

template void finish_rows(const float*, float*, const float*, int, int64_t, int64_t, int64_t);
template void finish_rows(const double*, double*, const double*, int, int64_t, int64_t, int64_t);
template void finish_rows(const bfloat16*, bfloat16*, const float*, int, int64_t, int64_t, int64_t);
template void finish_rows(const bfloat16*, float*, const float*, int, int64_t, int64_t, int64_t);

#define SPGNN_MAKE_STORED(S)                                                                                          \
    template void mask_rows(const S*, const S*, S*, double*, int, int64_t, int64_t, int64_t);                         \
    template void drop_rows(const S*, S*, const int64_t*, uint64_t, uint32_t, Compute<S>::type, int64_t, int64_t,     \
                            int64_t);                                                                                 \
    template void encode_rows(Format, const S*, uint8_t*, int64_t, int64_t, int64_t);                                 \
    template void decode_rows(Format, const uint8_t*, S*, int64_t, int64_t, int64_t);                                 \
    template void maximum_rows(const Pattern&, const S*, const int32_t*, S*, int32_t*, int64_t, int64_t, bool, bool,  \
                               int64_t, int64_t);                                                                     \
    template void maximum_rows(const Pattern&, const S*, const int32_t*, S*, uint16_t*, int64_t, int64_t, bool, bool, \
                               int64_t, int64_t);
SPGNN_MAKE_STORED(float)
SPGNN_MAKE_STORED(double)
SPGNN_MAKE_STORED(bfloat16)

#define SPGNN_MAKE_COMPUTED(T)                                                                                         \
    template double xent_rows(const T*, const int64_t*, T, T*, int64_t, int64_t, int64_t);                             \
    template void drop_csr(const int64_t*, const int32_t*, const T*, T*, const int64_t*, uint64_t, uint32_t, T,        \
                           int64_t, int64_t);                                                                          \
    template void drop_csr(const int64_t*, const int64_t*, const T*, T*, const int64_t*, uint64_t, uint32_t, T,        \
                           int64_t, int64_t);                                                                          \
    template void maximum_adjoint_rows(const Pattern&, const T*, const int32_t*, const int32_t*, T*, int64_t, int64_t, \
                                       bool, int64_t, int64_t);                                                        \
    template void maximum_adjoint_rows(const Pattern&, const T*, const uint16_t*, const uint16_t*, T*, int64_t,        \
                                       int64_t, bool, int64_t, int64_t);
SPGNN_MAKE_COMPUTED(float)
SPGNN_MAKE_COMPUTED(double)

}  // namespace spgnn::SPGNN_SET

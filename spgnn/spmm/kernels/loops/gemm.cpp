// Dense products, for each type.

#include "gemm.h"

namespace spgnn::SPGNN_SET {

#define SPGNN_MAKE(T)                                                                                  \
    template int64_t packed_size<T>(int64_t, int64_t);                                                 \
    template void pack(const T*, int64_t, int64_t, bool, T*);                                          \
    template void gemm_rows(const Gemm<T>&, int64_t, int64_t);                                         \
    template int64_t gradient_size<T>(int64_t, int64_t);                                               \
    template int64_t gradient_scratch<T>(int64_t);                                                     \
    template void gemm_adjoint_rows(const GemmAdjoint<T>&, T*, double*, T*, int64_t, int64_t);         \
    template void add_segments(const T*, int64_t, int64_t, int64_t, T*, int64_t, int64_t);             \
    template void pack_candidates(const T*, int64_t, T*, int64_t, int64_t);                            \
    template int64_t rank_scratch<T>();                                                                \
    template bool rank_rows(const Scored<T>&, const T*, int64_t*, int64_t*, T*, int64_t, int64_t);     \
    template bool top_rows(const Scored<T>&, const int64_t*, int64_t, Best<T>*, T*, int64_t, int64_t); \
    template void pair_scores(const T*, const T*, const int64_t*, int64_t, T*, int64_t, int64_t);
SPGNN_MAKE(float)
SPGNN_MAKE(double)

}  // namespace spgnn::SPGNN_SET

// Attention and values of nonzeros, for the type SPGNN_STORED of rows.

#include "attention2.h"
#include "edges.h"

namespace spgnn::SPGNN_SET {

typedef SPGNN_STORED S;
typedef Compute<S>::type T;

template void attend_rows(const Attend<S>&, int64_t, int64_t);
template void record_rows(const Record<S>&, double*, int64_t, int64_t);
template void fixed_rows(const FixedDots<S>&, int64_t, int64_t);
template void adjoint_rows(const AttendAdjoint<S>&, double*, int64_t, int64_t);
template void attend2_rows(const Attend2<S>&, int64_t, int64_t);
template void adjoint2_rows(const Attend2Adjoint<S>&, bool, double*, int64_t, int64_t);

#ifndef SPGNN_ROUNDED
template void sddmm_rows(const EdgeMatrices<T>&, int64_t, int64_t);
template void weighted_rows(const EdgeMatrices<T>&, int64_t, int64_t);
template void edge_add_rows(const EdgeMatrices<T>&, int64_t, int64_t);
template void softmax_sums_rows(const EdgeValues<T>&, int64_t, int64_t);
template void softmax_rows(const EdgeValues<T>&, int64_t, int64_t);
template void softmax_adjoint_rows(const EdgeValues<T>&, int64_t, int64_t);
template void edge_dots_rows(const EdgeValues<T>&, int64_t, int64_t);
#endif

}  // namespace spgnn::SPGNN_SET

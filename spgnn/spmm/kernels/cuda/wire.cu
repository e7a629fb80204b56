// Rows as they travel: bfloat16 or half; see wire.h, the same bits.
// blockDim.x lanes share a row: 32, a warp.
#include "storage.cuh"

enum Format { BFLOAT16, HALF };

template <class S>
__global__ void __launch_bounds__(256)
    encode(const S* __restrict__ X, u16* __restrict__ out, i32 format, i64 n, i32 F) {
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= n) return;
    const S* x = X + r * F;
    u16* y = out + r * F;
    for (i32 f = threadIdx.x; f < F; f += blockDim.x) {
        const float v = float(widen(x[f]));
        y[f] = u16(format == HALF ? half_bits(v) : bfloat16_bits(v));
    }
}

template <class S>
__global__ void __launch_bounds__(256)
    decode(const u16* __restrict__ rows, S* __restrict__ out, i32 format, i64 n, i32 F) {
    typedef typename Compute<S>::type T;
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= n) return;
    S* x = out + r * F;
    const u16* y = rows + r * F;
    for (i32 f = threadIdx.x; f < F; f += blockDim.x)
        narrow(T(format == HALF ? half_value(y[f]) : __uint_as_float(u32(y[f]) << 16)), x[f]);
}

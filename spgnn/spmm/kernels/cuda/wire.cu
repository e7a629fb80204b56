// Rows as they travel: bfloat16, half, or int8 with a float scale behind each row; see wire.h, the same bits.
// blockDim.x lanes share a row: 32, a warp.
#include "storage.cuh"

enum Format { BFLOAT16, HALF, INT8 };

__device__ inline u32 magnitude(float x) { return __float_as_uint(x) & 0x7fffffff; }

__device__ inline void write_float(u8* p, float x) {  // behind F numbers, so at any byte
    const u32 bits = __float_as_uint(x);
    for (int b = 0; b < 4; ++b) p[b] = u8(bits >> 8 * b);
}

__device__ inline float read_float(const u8* p) {
    return __uint_as_float(u32(p[0]) | u32(p[1]) << 8 | u32(p[2]) << 16 | u32(p[3]) << 24);
}

template <class S>
__global__ void __launch_bounds__(256)
    encode(const S* __restrict__ X, float* residual, u8* __restrict__ out, i32 format, i64 n, i32 F) {
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= n) return;  // whole warps
    const int lane = threadIdx.x;
    const S* x = X + r * F;
    float* kept = residual ? residual + r * F : residual;
    if (format != INT8) {
        u16* y = (u16*)out + r * F;
        for (i32 f = lane; f < F; f += 32) {
            const float v = float(widen(x[f])) + (kept ? kept[f] : 0.0f);
            const u32 bits = format == HALF ? half_bits(v) : bfloat16_bits(v);
            y[f] = u16(bits);
            if (kept) {
                const float lost = v - (format == HALF ? half_value(bits) : __uint_as_float(bits << 16));
                kept[f] = magnitude(lost) < 0x7f800000 ? lost : 0.0f;
            }
        }
        return;
    }
    u32 most = 0;
    for (i32 f = lane; f < F; f += 32) {
        const u32 m = magnitude(float(widen(x[f])) + (kept ? kept[f] : 0.0f));
        most = m > most ? m : most;
    }
#pragma unroll
    for (int apart = 16; apart; apart /= 2) {
        const u32 other = __shfl_xor_sync(0xffffffffu, most, apart);
        most = other > most ? other : most;
    }
    const float top = __uint_as_float(most), nan = __uint_as_float(0x7fc00000u);
    const float scale = most >= 0x7f800000 ? nan : top < 1e-36f ? 0.0f : top / 127;
    const float inverse = scale > 0 ? 127 / top : 0.0f, magic = 12582912.0f;  // 1.5 * 2^23 rounds in the low bits
    signed char* q = (signed char*)out + r * (F + 4);
    for (i32 f = lane; f < F; f += 32) {
        const float v = float(widen(x[f])) + (kept ? kept[f] : 0.0f);
        const signed char y = (signed char)(i32(__float_as_uint(__fmaf_rn(v, inverse, magic))) - 0x4b400000);
        q[f] = y;
        if (kept) kept[f] = scale == scale ? __fmaf_rn(-float(y), scale, v) : 0.0f;
    }
    if (lane == 0) write_float(out + r * (F + 4) + F, scale);
}

template <class S>
__global__ void __launch_bounds__(256)
    decode(const u8* __restrict__ rows, S* __restrict__ out, i32 format, i64 n, i32 F) {
    typedef typename Compute<S>::type T;
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= n) return;
    S* x = out + r * F;
    const u16* y = (const u16*)rows + r * F;
    const signed char* q = (const signed char*)rows + r * (F + 4);
    const float scale = format == INT8 ? read_float((const u8*)q + F) : 0.0f;
    for (i32 f = threadIdx.x; f < F; f += blockDim.x)
        narrow(T(format == HALF       ? half_value(y[f])
                 : format == BFLOAT16 ? __uint_as_float(u32(y[f]) << 16)
                                      : float(q[f]) * scale),
               x[f]);
}

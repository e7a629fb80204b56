// What the kernels over nonzeros share: the warps that go through a row, sums by head, sums over the warps of a block.
#pragma once

constexpr int WARPS = 8, HEADS = 64;  // of a block; the most heads
constexpr int PAIRS = 256;            // of a nonzero and a head, that a warp has at once

template <class T>
__device__ inline T infinity();
template <>
__device__ inline float infinity<float>() {
    return __uint_as_float(0x7f800000u);
}
template <>
__device__ inline double infinity<double>() {
    return __longlong_as_double(0x7ff0000000000000ll);
}

template <class T>
__device__ inline T lowest();  // of finite numbers
template <>
__device__ inline float lowest<float>() {
    return __uint_as_float(0xff7fffffu);
}
template <>
__device__ inline double lowest<double>() {
    return __longlong_as_double(0xffefffffffffffffll);
}

__device__ inline float loaded_entry(const float* p) { return __ldg(p); }
__device__ inline double loaded_entry(const double* p) { return __ldg(p); }
__device__ inline bfloat16 loaded_entry(const bfloat16* p) {
    bfloat16 x;
    x.bits = __ldg((const u16*)p);
    return x;
}

// The row of a warp, the i-th of `order`, and its nonzeros; with BLOCK all warps of a block have the same one, and
// chunks of nonzeros go to them in turn.
template <bool BLOCK>
struct Team {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool is_there;
    i64 row = 0, begin = 0, end = 0;
    __device__ Team(const i32* order, i64 count, const i64* indptr) {
        const i64 i = BLOCK ? i64(blockIdx.x) : i64(blockIdx.x) * WARPS + warp;
        is_there = i < count;
        if (!is_there) return;
        row = __ldg(order + i);
        begin = __ldg(indptr + row);
        end = __ldg(indptr + row + 1);
    }
    __device__ bool is_first() const { return !BLOCK || warp == 0; }
    __device__ i64 first(i32 chunk) const { return begin + (BLOCK ? warp * chunk : 0); }
    __device__ i64 step(i32 chunk) const { return BLOCK ? i64(WARPS) * chunk : chunk; }
};

// Where weights of edges are zero, the hash of attention_kernels.EdgeDrop; to null: nowhere.
template <class T>
struct Mask {
    u64 key;
    const i64 *to, *from;  // original ids of rows and columns
    u32 threshold;
    T scale;
    __device__ T of(i64 row, i64 column, i32 head) const {
        if (!to) return T(1);
        const u64 row_bits = mix(key ^ mix(u64(to[row]) + 0x9e3779b97f4a7c15ull));
        const u64 bits = mix(row_bits ^ mix(u64(from[column]) + 0x9e3779b97f4a7c15ull));
        return drop_bits(bits, u32(head)) >= threshold ? scale : T(0);
    }
};

// Nonzeros that a warp goes through at once.
__device__ inline i32 chunk_of(i32 K) { return PAIRS / K < 32 ? PAIRS / K : 32; }

template <class T>
__device__ inline T over_heads(T x, i32 K) {  // EVEN: the sum over the lanes of one head, in each of them
    for (int apart = 16; apart >= K; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

// out[h] = the sum of the columns of head h, part of them in each lane; products: 32 entries of the warp's own.
template <int NV, bool EVEN, class T>
__device__ inline void by_head(const T (&part)[NV], T* products, T* out, i32 K, int lane) {
    if (EVEN) {
        T x = part[0];
#pragma unroll
        for (int v = 1; v < NV; ++v) x += part[v];
        x = over_heads(x, K);
        if (lane < K) out[lane] = x;
        return;
    }
    T sums[HEADS / 32] = {};
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        __syncwarp();
        products[lane] = part[v];
        __syncwarp();
#pragma unroll
        for (int s = 0; s < HEADS / 32; ++s) {
            const i32 h = lane + 32 * s;
            if (h >= K) continue;
            for (i32 c = ((h - 32 * v) % K + K) % K; c < 32; c += K) sums[s] += products[c];
        }
    }
#pragma unroll
    for (int s = 0; s < HEADS / 32; ++s)
        if (lane + 32 * s < K) out[lane + 32 * s] = sums[s];
}

// acc += sum over n nonzeros of w[k, head] times the row of X that the nonzero names; w null: 1.
template <int NV, bool EVEN, class T, class SX>
__device__ inline void add_weighted(T (&acc)[NV], const SX* X, const i32* indices, const T* w, i32 n, i32 K, i32 F,
                                    int lane) {
#pragma unroll 4
    for (i32 k = 0; k < n; ++k) {
        const SX* x = X + i64(__ldg(indices + k)) * F;
        const T one = EVEN ? w[k * K + lane % K] : T(0);
#pragma unroll
        for (int v = 0; v < NV; ++v) {
            const i32 c = lane + 32 * v;
            if (c < F) acc[v] += (EVEN ? one : w[k * K + c % K]) * T(widen(loaded_entry(x + c)));
        }
    }
}

// acc of warp 0 becomes the sum over the warps of a block, in their order; whole: 32 NV entries of the block.
template <int NV, class T>
__device__ inline void merge(T (&acc)[NV], T* whole, int warp, int lane) {
    for (int turn = WARPS - 1; turn >= 0; --turn) {
        __syncthreads();
        if (warp != turn) continue;
#pragma unroll
        for (int v = 0; v < NV; ++v) {
            if (turn < WARPS - 1) acc[v] += whole[lane + 32 * v];
            whole[lane + 32 * v] = acc[v];
        }
    }
    __syncthreads();
}

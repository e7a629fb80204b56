// Y = A X (+ Y) (+ add) (+ bias) (then ReLU), A in CSR, X and Y row-major; rows gathered for an exchange.
//
// work_items.py cuts the rows into items of a bounded number of nonzeros. The G E lanes of an item are E groups of G:
// the lanes of a group hold V neighbouring columns each (NV times, G V columns apart) and add up every
// E-th nonzero; the E sums are then added by a tree of shuffles. Nothing depends on the order in which
// blocks run: no atomics, the same bits every time.
#include "storage.cuh"

// One item: nonzeros start .. start + length - 1 of a row; row < 0: their sum goes to slot ~row of `partial`.
struct Item {
    i64 start;
    i32 length, row;
};

// One row of several items: slots first .. first + count - 1.
struct Join {
    i32 row, first, count, unused;
};

enum Flags { ACCUMULATE = 1, RELU = 2 };

// sum = relu(sum (+ y) (+ add) (+ bias)), V entries of one row.
template <int V, class S, class T>
__device__ inline void finish_pack(T* sum, const S* y, const T* add, const T* bias, i32 flags) {
    if (flags & ACCUMULATE) {
        u32 words[Pack<S, V>::REGISTERS];
        Pack<S, V>::load(y, words, false);  // this kernel writes it
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += entry(words, k, y);
    }
    if (add) {
        u32 words[Pack<T, V>::REGISTERS];
        Pack<T, V>::load(add, words);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += entry(words, k, add);
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
        if (bias) sum[k] += __ldg(bias + k);
        if (flags & RELU) sum[k] = positive(sum[k]);
    }
}

template <class SX, class SY, class I, int V, int G, int E, int NV, bool WEIGHTED>
__global__ void __launch_bounds__(256, 3)
    spmm_items(const Item* __restrict__ items, i64 count, const I* __restrict__ indices,
               const typename Compute<SX>::type* __restrict__ weights, const SX* __restrict__ X, SY* Y,
               typename Compute<SX>::type* partial, const typename Compute<SX>::type* bias,
               const typename Compute<SX>::type* add, i32 F, i32 flags) {
    typedef typename Compute<SX>::type T;
    typedef Pack<SX, V> P;
    // Loads under way at once in a lane: about 64 bytes of X, 8 at the most.
    constexpr int L = G * E, MOST = P::BYTES >= 16 ? 4 : 8, U = MOST / NV < 1 ? 1 : MOST / NV;
    static_assert(E == 1 || L == 32, "the groups of an item fill a warp");
    const int within = threadIdx.x % L, group = within / G;
    const i64 i = (i64(blockIdx.x) * blockDim.x + threadIdx.x) / L;
    if (i >= count) return;  // where E > 1, whole warps do
    const i32 col = blockIdx.y * (G * V * NV) + within % G * V;
    const int4 head = __ldg((const int4*)(items + i));
    const i64 start = i64(u64(u32(head.y)) << 32 | u32(head.x));
    const i32 length = head.z, row = head.w;
    const I* column = indices + start;
    if (WEIGHTED) weights += start;
    T sum[NV][V];
#pragma unroll
    for (int v = 0; v < NV; ++v)
#pragma unroll
        for (int k = 0; k < V; ++k) sum[v][k] = T(0);
    // U nonzeros at a time, their loads under way together; the last ones by predicates.
    for (i32 k = group; k < length; k += U * E) {
        const SX* x[U];
        T weight[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const bool live = k + u * E < length;
            x[u] = X + (live ? i64(__ldg(column + k + u * E)) * F + col : 0);
            weight[u] = WEIGHTED && live ? __ldg(weights + k + u * E) : T(1);
        }
        u32 words[U][NV][P::REGISTERS];
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int v = 0; v < NV; ++v)
                if (k + u * E < length && col + v * G * V < F) P::load(x[u] + v * G * V, words[u][v]);
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int v = 0; v < NV; ++v)
                if (k + u * E < length && col + v * G * V < F)
#pragma unroll
                    for (int c = 0; c < V; ++c) {
                        const T part = entry(words[u][v], c, X);
                        sum[v][c] += WEIGHTED ? weight[u] * part : part;
                    }
    }
    if (E > 1) {
#pragma unroll
        for (int apart = G; apart < 32; apart *= 2)
#pragma unroll
            for (int v = 0; v < NV; ++v)
#pragma unroll
                for (int k = 0; k < V; ++k) sum[v][k] += __shfl_xor_sync(0xffffffffu, sum[v][k], apart);
        if (group) return;
    }
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        const i32 c = col + v * G * V;
        if (c >= F) continue;
        if (row < 0) {
            Pack<T, V>::store(partial + i64(~row) * F + c, sum[v]);
            continue;
        }
        SY* y = Y + i64(row) * F + c;
        finish_pack<V>(sum[v], y, add ? add + i64(row) * F + c : add, bias ? bias + c : bias, flags);
        Pack<SY, V>::store(y, sum[v]);
    }
}

// The sums of the items of a long row: 8 warps add every 8th slot of 32 columns, the first adds the 8.
template <class SY, class T>
__global__ void __launch_bounds__(256) spmm_join(const Join* __restrict__ joins, const T* __restrict__ partial, SY* Y,
                                                 const T* bias, const T* add, i32 F, i32 flags) {
    __shared__ T parts[256];
    const Join join = joins[blockIdx.x];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i32 c = blockIdx.y * 32 + lane;
    T sum = T(0);
    if (c < F)
        for (i32 s = warp; s < join.count; s += 8) sum += partial[i64(join.first + s) * F + c];
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (warp || c >= F) return;
#pragma unroll
    for (int w = 1; w < 8; ++w) sum += parts[w * 32 + lane];
    const i64 at = i64(join.row) * F + c;
    finish_pack<1>(&sum, Y + at, add ? add + at : add, bias ? bias + c : bias, flags);
    narrow(sum, Y[at]);
}

// out[i] = X[rows[i]], in words of W; blockDim.x lanes share a row.
template <class W>
__global__ void __launch_bounds__(256)
    take_rows(const W* __restrict__ X, const i64* __restrict__ rows, W* __restrict__ out, i64 m, i64 words) {
    const i64 i = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (i >= m) return;
    const W* x = X + __ldg(rows + i) * words;
    W* y = out + i * words;
    for (i64 w = threadIdx.x; w < words; w += blockDim.x) y[w] = x[w];
}

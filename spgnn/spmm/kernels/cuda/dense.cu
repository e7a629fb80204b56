// Row-wise passes over dense (n, C) matrices between the products: activation, bias, dropout, loss.
// A block has blockDim.y rows at a time, blockDim.x lanes to a row; sums are added in a fixed order.
#include "storage.cuh"

constexpr int AHEAD = 4;  // loads under way at once in a lane: else latency, not the memory, is what a pass waits for

// out = G act'(Z) from H = act(Z), act as in finish; partial[chunk, c] = the column sums of ROWS rows. H null: sums
// alone. Up to 64 rows a lane are added in T, then in double, as on the CPU.
template <class S>
__global__ void __launch_bounds__(256)
    mask_sum(const S* G, const S* H, S* out, double* __restrict__ partial, i64 n, i32 C, i32 rows, i32 act) {
    typedef typename Compute<S>::type T;
    __shared__ double parts[256];
    const i32 c = blockIdx.y * blockDim.x + threadIdx.x;
    const i64 begin = i64(blockIdx.x) * rows, end = begin + rows < n ? begin + rows : n;
    double sum = 0;
    if (c < C)
        for (i64 first = begin + threadIdx.y; first < end; first += 64 * blockDim.y) {
            T part = T(0);
            const i64 last = first + 64 * blockDim.y < end ? first + 64 * blockDim.y : end;
            // AHEAD rows are read before the first is written: out may be G, so the compiler cannot do that.
            for (i64 r = first; r < last; r += AHEAD * blockDim.y) {
                S x[AHEAD], h[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; ++u) {
                    const i64 at = (r + u * blockDim.y) * C + c;
                    if (r + u * blockDim.y < last) x[u] = G[at];
                    if (H && r + u * blockDim.y < last) h[u] = H[at];
                }
#pragma unroll
                for (int u = 0; u < AHEAD; ++u) {
                    if (r + u * blockDim.y >= last) break;
                    if (H) {
                        const T value = widen(h[u]);
                        if (act && value <= 0) narrow(act == 1 ? T(0) : T(widen(x[u]) * (value + 1)), x[u]);
                        out[(r + u * blockDim.y) * C + c] = x[u];
                    }
                    part += widen(x[u]);
                }
            }
            sum += part;
        }
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    for (int y = 1; y < blockDim.y; ++y) sum += parts[y * blockDim.x + threadIdx.x];
    partial[i64(blockIdx.x) * C + c] = sum;
}

// sums[c] = partial[0, c] + partial[1, c] + ...
template <class T>
__global__ void __launch_bounds__(256)
    add_chunks(const double* __restrict__ partial, T* __restrict__ sums, i64 chunks, i32 C) {
    __shared__ double parts[256];
    const i32 c = blockIdx.y * blockDim.x + threadIdx.x;
    double sum = 0;
    if (c < C)
        for (i64 chunk = threadIdx.y; chunk < chunks; chunk += AHEAD * blockDim.y) {
            double x[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                x[u] = chunk + u * blockDim.y < chunks ? partial[(chunk + u * blockDim.y) * C + c] : 0;
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) sum += x[u];
        }
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    for (int y = 1; y < blockDim.y; ++y) sum += parts[y * blockDim.x + threadIdx.x];
    sums[c] = T(sum);
}

// out = act(Z + bias), bias null: none; act 1: ReLU, 2: ELU; in place where out is Z.
template <class S, class D>
__global__ void __launch_bounds__(256)
    finish(const S* Z, D* out, const typename Compute<S>::type* bias, i32 act, i64 n, i32 C) {
    typedef typename Compute<S>::type T;
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= n) return;
    for (i32 first = threadIdx.x; first < C; first += AHEAD * blockDim.x) {
        S z[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
            if (first + u * blockDim.x < C) z[u] = Z[r * C + first + u * blockDim.x];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const i32 c = first + u * blockDim.x;
            if (c >= C) break;
            const T x = bias ? T(widen(z[u]) + bias[c]) : T(widen(z[u]));
            narrow(act == 1 ? positive(x) : act == 2 && x <= 0 ? T(expm1(x)) : x, out[r * C + c]);
        }
    }
}

// out[i, f] = X[i, f] scale where bits(key, node[i], f) >= threshold, else 0. The key stands at `at` where that is
// not null: a captured kernel then finds another one there in every epoch.
template <class S>
__global__ void __launch_bounds__(256)
    drop(const S* X, S* out, const i64* __restrict__ node, u64 key, const u64* __restrict__ at, u32 threshold,
         typename Compute<S>::type scale, i64 n, i32 F) {
    typedef typename Compute<S>::type T;
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= n) return;
    const u64 row = row_key(at ? *at : key, node[r]);
    for (i32 f = threadIdx.x; f < F; f += blockDim.x)
        narrow(drop_bits(row, u32(f)) >= threshold ? T(widen(X[r * F + f]) * scale) : T(0), out[r * F + f]);
}

// The same for the stored entries of a CSR X; X null: entries of 1.
template <class T, class I>
__global__ void __launch_bounds__(256)
    drop_csr(const i64* __restrict__ indptr, const I* __restrict__ indices, const T* X, T* out,
             const i64* __restrict__ node, u64 key, const u64* __restrict__ at, u32 threshold, T scale, i64 n) {
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= n) return;
    const u64 row = row_key(at ? *at : key, node[r]);
    for (i64 e = indptr[r] + threadIdx.x; e < indptr[r + 1]; e += blockDim.x)
        out[e] = drop_bits(row, u32(indices[e])) >= threshold ? (X ? X[e] * scale : scale) : T(0);
}

template <class T>
__device__ inline T over_warp_max(T x) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, x, apart);
        x = other > x ? other : x;
    }
    return x;
}

template <class T>
__device__ inline T over_warp_sum(T x) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

// Softmax cross-entropy of the rows with y >= 0, one warp per row (blockDim.x = 32, blockDim.y = 8):
// losses[block] = the sum of -log softmax(Z)[y] of its rows; G = scale (softmax(Z) - onehot(y)), zero in the
// other rows. A label beyond the columns makes the loss NaN. G may be Z: a lane reads the columns that it writes.
template <class T>
__global__ void __launch_bounds__(256)
    softmax_xent(const T* Z, const i64* __restrict__ y, T scale, T* G, double* __restrict__ losses, i64 n, i32 C) {
    __shared__ double parts[8];
    const i64 r = i64(blockIdx.x) * blockDim.y + threadIdx.y;
    const int lane = threadIdx.x;
    double loss = 0;
    if (r < n) {
        const T* z = Z + r * C;
        T* g = G + r * C;
        const i64 label = y[r];
        if (label < 0) {
            for (i32 c = lane; c < C; c += 32) g[c] = T(0);
        } else {
            T top = z[0];
            for (i32 c = lane; c < C; c += 32) top = z[c] > top ? z[c] : top;
            top = over_warp_max(top);
            const T own = z[label < C ? label : 0];
            __syncwarp();  // before other lanes write there
            T sum = T(0);
            for (i32 c = lane; c < C; c += 32) {
                const T e = exp_of(z[c] - top);
                g[c] = e;
                sum += e;
            }
            sum = over_warp_sum(sum);
            const T factor = scale / sum;
            for (i32 c = lane; c < C; c += 32) g[c] = g[c] * factor - (c == label ? scale : T(0));
            // A NaN in the row is in sum; 0 / 0 is one.
            loss = label < C ? log(double(sum)) + double(top) - double(own) : double(T(0)) / double(T(0));
        }
    }
    if (lane == 0) parts[threadIdx.y] = loss;
    __syncthreads();
    if (lane || threadIdx.y) return;
    for (int w = 1; w < 8; ++w) loss += parts[w];
    losses[blockIdx.x] = loss;
}

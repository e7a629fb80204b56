// Attention over the nonzeros of a row, GAT v1 and v2, and its adjoint; see attention_kernels.py for the formulas.
//
// A warp goes through the nonzeros of a row, or with BLOCK the 8 warps of a block through those of a long one, each
// through every eighth chunk, and their sums are merged in the order of the warps. A chunk has up to 32 nonzeros: their
// scores, one for each head, lie in shared memory between the inner products and the weighted sums.
// Lane l holds columns l, l + 32, ..., NV of them; the head of column c is c % K. EVEN: 32 % K = 0, so a lane has one.
#include "storage.cuh"
#include "rows.cuh"

enum Flags { ACCUMULATE = 1, FINISH = 2 };

template <class T>
__device__ inline T leaky(T u, T slope) {
    return u > 0 ? u : product(u, slope);
}

// Z_i = sum_j exp(e_ij - top_i) mask_ij X_j, with sums; V2: e_ij = <a, lrelu(left_i + X_j)>, else of left and right.
template <class SX, int NV, bool V2, bool EVEN, bool BLOCK>
__global__ void __launch_bounds__(256)
    attend(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr, const i32* __restrict__ indices,
           const SX* __restrict__ X, const SX* __restrict__ left2, const typename Compute<SX>::type* __restrict__ left,
           const typename Compute<SX>::type* __restrict__ right, const typename Compute<SX>::type* __restrict__ a,
           typename Compute<SX>::type* Z, typename Compute<SX>::type* top, typename Compute<SX>::type* sum,
           typename Compute<SX>::type* plus, typename Compute<SX>::type* plus_sum,
           const typename Compute<SX>::type* bias, typename Compute<SX>::type slope, u64 key, const u64* at,
           const i64* to, const i64* from, u32 threshold, typename Compute<SX>::type scale, i32 K, i32 F, i32 flags,
           i32 act) {
    typedef typename Compute<SX>::type T;
    __shared__ T pairs[WARPS][PAIRS], tops[WARPS][HEADS], sums[WARPS][HEADS], aboves[WARPS][HEADS],
        factor[WARPS][HEADS], products[WARPS][32], whole[BLOCK ? 32 * NV : 1];
    const Mask<T> mask{at ? *at : key, to, from, threshold, scale};
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    const int lane = team.lane, warp = team.warp;
    const i64 row = team.row;
    const bool goes_on = (flags & ACCUMULATE) && team.is_first();
    T* w = pairs[warp];
    const T lowest = -infinity<T>();
    for (i32 h = lane; h < K; h += 32) {
        tops[warp][h] = goes_on ? top[row * K + h] : lowest;
        sums[warp][h] = goes_on ? sum[row * K + h] : T(0);
        aboves[warp][h] = goes_on && plus ? plus_sum[row * K + h] : T(0);
    }
    T acc[NV], more[NV], mine[NV], weights[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        const i32 c = lane + 32 * v;
        acc[v] = goes_on && c < F ? Z[row * F + c] : T(0);
        more[v] = goes_on && plus && c < F ? plus[row * F + c] : T(0);
        mine[v] = V2 && c < F ? widen(left2[row * F + c]) : T(0);
        weights[v] = V2 && c < F ? a[c] : T(0);
    }
    __syncwarp();
    const i32 most = chunk_of(K);
    for (i64 e = team.first(most); e < team.end; e += team.step(most)) {
        const i32 n = team.end - e < most ? i32(team.end - e) : most;
        if (V2) {
            for (i32 k = 0; k < n; ++k) {
                const SX* x = X + i64(__ldg(indices + e + k)) * F;
                T part[NV];
#pragma unroll
                for (int v = 0; v < NV; ++v)
                    part[v] =
                        lane + 32 * v < F
                            ? product(weights[v], leaky(T(mine[v] + widen(loaded_entry(x + lane + 32 * v))), slope))
                            : T(0);
                by_head<NV, EVEN>(part, products[warp], w + k * K, K, lane);
            }
        } else {
            for (i32 q = lane; q < n * K; q += 32)
                w[q] = leaky(left[row * K + q % K] + right[i64(__ldg(indices + e + q / K)) * K + q % K], slope);
        }
        __syncwarp();
        // The weights of the chunk, their sign tells what is in plus; sums are of weights before the mask.
        const auto weigh = [&](i32 q, T now, T& all, T& above) {
            const T score = w[q], weight = exp_of(score - now);
            all += weight;
            if (score > 0) above += weight;
            const T kept = weight * mask.of(row, to ? i64(__ldg(indices + e + q / K)) : 0, q % K);
            w[q] = plus && !(score > 0) ? -kept : kept;
        };
        const auto raise = [&](i32 h, T now, T all, T above) {
            const T old = tops[warp][h], shrunk = old == now ? T(1) : exp_of(old - now);
            tops[warp][h] = now;
            factor[warp][h] = shrunk;
            sums[warp][h] = sums[warp][h] * shrunk + all;
            aboves[warp][h] = aboves[warp][h] * shrunk + above;
        };
        if (EVEN) {
            T now = tops[warp][lane % K], all = T(0), above = T(0);
            for (i32 q = lane; q < n * K; q += 32) now = w[q] > now ? w[q] : now;
            for (int apart = 16; apart >= K; apart /= 2) {
                const T other = __shfl_xor_sync(0xffffffffu, now, apart);
                now = other > now ? other : now;
            }
            for (i32 q = lane; q < n * K; q += 32) weigh(q, now, all, above);
            all = over_heads(all, K);
            above = over_heads(above, K);
            if (lane < K) raise(lane, now, all, above);
        } else {
            for (i32 h = lane; h < K; h += 32) {
                T now = tops[warp][h], all = T(0), above = T(0);
                for (i32 k = 0; k < n; ++k) now = w[k * K + h] > now ? w[k * K + h] : now;
                for (i32 k = 0; k < n; ++k) weigh(k * K + h, now, all, above);
                raise(h, now, all, above);
            }
        }
        __syncwarp();
#pragma unroll
        for (int v = 0; v < NV; ++v) {
            const T shrunk = factor[warp][(lane + 32 * v) % K];
            acc[v] *= shrunk;
            more[v] *= shrunk;
        }
#pragma unroll 4
        for (i32 k = 0; k < n; ++k) {
            const SX* x = X + i64(__ldg(indices + e + k)) * F;
            const T one = w[k * K + lane % K];
#pragma unroll
            for (int v = 0; v < NV; ++v) {
                if (lane + 32 * v >= F) continue;
                const T weight = EVEN ? one : w[k * K + (lane + 32 * v) % K],
                        entry = widen(loaded_entry(x + lane + 32 * v));
                acc[v] += (weight < 0 ? -weight : weight) * entry;
                if (plus && weight > 0) more[v] += weight * entry;
            }
        }
        __syncwarp();
    }
    if (BLOCK) {
        __syncthreads();
        for (i32 h = lane; h < K; h += 32) {
            T now = lowest;
            for (int other = 0; other < WARPS; ++other) now = tops[other][h] > now ? tops[other][h] : now;
            factor[warp][h] = tops[warp][h] == now ? T(1) : exp_of(tops[warp][h] - now);
        }
        __syncthreads();
#pragma unroll
        for (int v = 0; v < NV; ++v) {
            acc[v] *= factor[warp][(lane + 32 * v) % K];
            more[v] *= factor[warp][(lane + 32 * v) % K];
        }
        merge<NV>(acc, whole, warp, lane);
        if (plus) merge<NV>(more, whole, warp, lane);
        if (warp) return;
        for (i32 h = lane; h < K; h += 32) {
            T now = lowest, all = T(0), above = T(0);
            for (int other = 0; other < WARPS; ++other) {
                now = tops[other][h] > now ? tops[other][h] : now;
                all += sums[other][h] * factor[other][h];
                above += aboves[other][h] * factor[other][h];
            }
            tops[0][h] = now, sums[0][h] = all, aboves[0][h] = above;
        }
        __syncwarp();
    }
    for (i32 h = lane; h < K; h += 32) {
        const T all = sums[warp][h], inverse = all == 0 ? T(0) : 1 / all;
        const bool ends = flags & FINISH;
        factor[warp][h] = ends ? inverse : T(1);
        top[row * K + h] = tops[warp][h];
        sum[row * K + h] = ends ? inverse : all;
        if (plus) plus_sum[row * K + h] = aboves[warp][h] * factor[warp][h];
    }
    __syncwarp();
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        const i32 c = lane + 32 * v;
        if (c >= F) continue;
        T z = acc[v] * factor[warp][c % K];
        if (flags & FINISH) {
            if (bias) z += bias[c];
            z = act == 1 ? positive(z) : act == 2 && z <= 0 ? T(expm1(z)) : z;
        }
        Z[row * F + c] = z;
        if (plus) plus[row * F + c] = more[v] * factor[warp][c % K];
    }
}

// left_i = <X_i, fixed_0>, right_i = <X_i, fixed_1> of each head; left null: not wanted.
template <class SX, int NV, bool EVEN>
__global__ void __launch_bounds__(256)
    fixed_dots(const SX* __restrict__ X, const typename Compute<SX>::type* __restrict__ fixed,
               typename Compute<SX>::type* left, typename Compute<SX>::type* right, i64 n, i32 K, i32 F) {
    typedef typename Compute<SX>::type T;
    __shared__ T products[WARPS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 row = i64(blockIdx.x) * WARPS + warp;
    if (row >= n) return;
    T x[NV], part[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) x[v] = lane + 32 * v < F ? T(widen(X[row * F + lane + 32 * v])) : T(0);
    for (int which = left ? 0 : 1; which < 2; ++which) {
#pragma unroll
        for (int v = 0; v < NV; ++v) part[v] = lane + 32 * v < F ? x[v] * fixed[which * F + lane + 32 * v] : T(0);
        by_head<NV, EVEN>(part, products[warp], (which ? right : left) + row * K, K, lane);
    }
}

// record_i = (left_i, top_i, scale_i, D_i) and dleft; left null: the last three. G is the gradient of Z, out =
// act(Z + bias).
template <class SX, int NV, bool EVEN>
__global__ void __launch_bounds__(256)
    attend_record(const SX* __restrict__ G, const typename Compute<SX>::type* __restrict__ out,
                  const typename Compute<SX>::type* __restrict__ bias,
                  const typename Compute<SX>::type* __restrict__ left,
                  const typename Compute<SX>::type* __restrict__ top,
                  const typename Compute<SX>::type* __restrict__ scale,
                  const typename Compute<SX>::type* __restrict__ plus,
                  const typename Compute<SX>::type* __restrict__ plus_sum,
                  const typename Compute<SX>::type* __restrict__ share,
                  const typename Compute<SX>::type* __restrict__ D, typename Compute<SX>::type slope,
                  typename Compute<SX>::type* record, typename Compute<SX>::type* dleft, i64 n, i32 K, i32 F, i32 act) {
    typedef typename Compute<SX>::type T;
    __shared__ T products[WARPS][32], dots[WARPS][HEADS], above[WARPS][HEADS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 row = i64(blockIdx.x) * WARPS + warp;
    if (row >= n) return;
    T part[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        const i32 c = lane + 32 * v;
        T z = c < F ? out[row * F + c] : T(0);
        if (act == 2 && z <= 0) z = z > -1 ? log_of(z + 1) : T(0);  // where act' is 0, G is
        if (bias && c < F) z -= bias[c];
        part[v] = c < F ? widen(G[row * F + c]) * z : T(0);
    }
    by_head<NV, EVEN>(part, products[warp], dots[warp], K, lane);
    if (left) {
#pragma unroll
        for (int v = 0; v < NV; ++v) {
            const i32 c = lane + 32 * v;
            part[v] = c < F ? widen(G[row * F + c]) * plus[row * F + c] : T(0);
        }
        by_head<NV, EVEN>(part, products[warp], above[warp], K, lane);
    }
    __syncwarp();
    for (i32 h = lane; h < K; h += 32) {
        const i64 q = row * K + h;
        const T d = D ? D[q] : dots[warp][h];
        T* to = record + row * (left ? 4 : 3) * K + h;
        if (left) {
            const T of_all = share ? dots[warp][h] - d * share[q] : T(0);
            dleft[q] = slope * of_all + (1 - slope) * (above[warp][h] - d * plus_sum[q]);
            *to = left[q];
            to += K;
        }
        to[0] = top[q];
        to[K] = scale[q];
        to[2 * K] = d;
    }
}

// Over the rows j of A': dX_j = sum_i alpha_ij mask_ij G_i + fixed_0 dleft_j + fixed_1 dright_j, and dright_j.
template <class SX, int NV, bool EVEN, bool BLOCK>
__global__ void __launch_bounds__(256)
    attend_adjoint(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr,
                   const i32* __restrict__ indices, const SX* __restrict__ X, const SX* __restrict__ G,
                   const typename Compute<SX>::type* __restrict__ record,
                   const typename Compute<SX>::type* __restrict__ right,
                   const typename Compute<SX>::type* __restrict__ fixed,
                   const typename Compute<SX>::type* __restrict__ dleft, typename Compute<SX>::type* dX,
                   typename Compute<SX>::type* dright, typename Compute<SX>::type slope, u64 key, const u64* at,
                   const i64* to, const i64* from, u32 threshold, typename Compute<SX>::type scale, i32 K, i32 F) {
    typedef typename Compute<SX>::type T;
    __shared__ T pairs[WARPS][PAIRS], slopes[EVEN ? 1 : WARPS][PAIRS], du[WARPS][HEADS], products[WARPS][32],
        whole[BLOCK ? 32 * NV : 1];
    const Mask<T> mask{at ? *at : key, to, from, threshold, scale};
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    const int lane = team.lane, warp = team.warp;
    const i64 row = team.row;
    T *w = pairs[warp], *d = slopes[EVEN ? 0 : warp], all = T(0);
    for (i32 h = lane; h < K; h += 32) du[warp][h] = T(0);
    T x[NV], acc[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        x[v] = lane + 32 * v < F ? T(widen(X[row * F + lane + 32 * v])) : T(0);
        acc[v] = T(0);
    }
    __syncwarp();
    const i32 most = chunk_of(K);
    for (i64 e = team.first(most); e < team.end; e += team.step(most)) {
        const i32 n = team.end - e < most ? i32(team.end - e) : most;
        for (i32 k = 0; k < n; ++k) {
            const SX* g = G + i64(__ldg(indices + e + k)) * F;
            T part[NV];
#pragma unroll
            for (int v = 0; v < NV; ++v)
                part[v] = lane + 32 * v < F ? x[v] * widen(loaded_entry(g + lane + 32 * v)) : T(0);
            by_head<NV, EVEN>(part, products[warp], w + k * K, K, lane);
        }
        __syncwarp();
        for (i32 q = lane; q < n * K; q += 32) {
            const i64 i = __ldg(indices + e + q / K);
            const i32 h = q % K;
            const T *of_row = record + i * 4 * K + h, s = of_row[0] + right[row * K + h];
            const T alpha = exp_of(leaky(s, slope) - of_row[K]) * of_row[2 * K];
            const T m = mask.of(i, row, h), de = alpha * (m * w[q] - of_row[3 * K]);
            const T share = s > 0 ? de : de * slope;
            if (EVEN)
                all += share;
            else
                d[q] = share;
            w[q] = alpha * m;
        }
        __syncwarp();
        for (i32 h = lane; !EVEN && h < K; h += 32)
            for (i32 k = 0; k < n; ++k) du[warp][h] += d[k * K + h];
        add_weighted<NV, EVEN>(acc, G, indices + e, w, n, K, F, lane);
        __syncwarp();
    }
    if (EVEN) {
        all = over_heads(all, K);
        if (lane < K) du[warp][lane] = all;
        __syncwarp();
    }
    if (BLOCK) {
        merge<NV>(acc, whole, warp, lane);
        if (warp) return;
        for (i32 h = lane; h < K; h += 32)
            for (int other = 1; other < WARPS; ++other) du[0][h] += du[other][h];
        __syncwarp();
    }
    for (i32 h = lane; h < K; h += 32) dright[row * K + h] = du[warp][h];
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        const i32 c = lane + 32 * v;
        if (c >= F) continue;
        T y = acc[v] + fixed[F + c] * du[warp][c % K];
        if (dleft) y += fixed[c] * dleft[row * K + c % K];
        dX[row * F + c] = y;
    }
}

// partial[chunk, c] = the sums of X[r, c] d[r, c % K] over the rows of a chunk.
template <class SX>
__global__ void __launch_bounds__(256)
    outer_sums(const SX* __restrict__ X, const typename Compute<SX>::type* __restrict__ d, double* __restrict__ partial,
               i64 n, i32 C, i32 K, i32 rows) {
    __shared__ double parts[256];
    const i32 c = blockIdx.y * blockDim.x + threadIdx.x;
    const i64 begin = i64(blockIdx.x) * rows, end = begin + rows < n ? begin + rows : n;
    double sum = 0;
    if (c < C) {
#pragma unroll 8
        for (i64 r = begin + threadIdx.y; r < end; r += blockDim.y)
            sum += double(widen(X[r * C + c])) * d[r * K + c % K];
    }
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    for (int y = 1; y < blockDim.y; ++y) sum += parts[y * blockDim.x + threadIdx.x];
    partial[i64(blockIdx.x) * C + c] = sum;
}

// Of v2, over rows i: out_i (+)= a sum_j de_ij lrelu'(u_ij), products_i = sum_j de_ij lrelu(u_ij), u = left + right;
// COLUMNS: over the rows j of A', out_j (+)= sum_i alpha_ij mask_ij G_i + a de_ij lrelu'(u_ij).
template <class SX, int NV, bool COLUMNS, bool EVEN, bool BLOCK>
__global__ void __launch_bounds__(256)
    attend2_adjoint(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr,
                    const i32* __restrict__ indices, const SX* __restrict__ own, const SX* __restrict__ others,
                    const SX* __restrict__ G, const typename Compute<SX>::type* __restrict__ a,
                    const typename Compute<SX>::type* __restrict__ record, typename Compute<SX>::type* out,
                    typename Compute<SX>::type* for_a, typename Compute<SX>::type slope, u64 key, const u64* at,
                    const i64* to, const i64* from, u32 threshold, typename Compute<SX>::type scale, i32 K, i32 F,
                    i32 flags) {
    typedef typename Compute<SX>::type T;
    __shared__ T pairs[WARPS][PAIRS], slopes[WARPS][PAIRS], products[WARPS][32], whole[BLOCK ? 32 * NV : 1];
    const Mask<T> mask{at ? *at : key, to, from, threshold, scale};
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    const int lane = team.lane, warp = team.warp;
    const i64 row = team.row;
    const bool goes_on = (flags & ACCUMULATE) && team.is_first();
    T *w = pairs[warp], *d = slopes[warp];
    T f[NV], g[NV], weights[NV], acc[NV], more[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        const i32 c = lane + 32 * v;
        f[v] = c < F ? T(widen(own[row * F + c])) : T(0);
        g[v] = !COLUMNS && c < F ? T(widen(G[row * F + c])) : T(0);
        weights[v] = c < F ? a[c] : T(0);
        acc[v] = goes_on && c < F ? out[row * F + c] : T(0);
        more[v] = T(0);
    }
    const i32 most = chunk_of(K);
    for (i64 e = team.first(most); e < team.end; e += team.step(most)) {
        const i32 n = team.end - e < most ? i32(team.end - e) : most;
        for (i32 k = 0; k < n; ++k) {
            const i64 other = i64(__ldg(indices + e + k)) * F;
            T scores[NV], dots[NV];
#pragma unroll
            for (int v = 0; v < NV; ++v) {
                const i32 c = lane + 32 * v;
                const T y = c < F ? T(widen(loaded_entry(others + other + c))) : T(0);
                scores[v] = product(weights[v], leaky(f[v] + y, slope));
                dots[v] = COLUMNS ? (c < F ? f[v] * widen(loaded_entry(G + other + c)) : T(0)) : g[v] * y;
            }
            by_head<NV, EVEN>(scores, products[warp], w + k * K, K, lane);
            by_head<NV, EVEN>(dots, products[warp], d + k * K, K, lane);
        }
        __syncwarp();
        for (i32 q = lane; q < n * K; q += 32) {
            const i64 other = __ldg(indices + e + q / K);
            const i32 h = q % K;
            const T *of_row = record + (COLUMNS ? other : row) * 3 * K + h,
                    alpha = exp_of(w[q] - of_row[0]) * of_row[K];
            const T m = COLUMNS ? mask.of(other, row, h) : mask.of(row, other, h);
            d[q] = alpha * (m * d[q] - of_row[2 * K]);
            w[q] = alpha * m;
        }
        __syncwarp();
#pragma unroll 2
        for (i32 k = 0; k < n; ++k) {
            const i64 other = i64(__ldg(indices + e + k)) * F;
#pragma unroll
            for (int v = 0; v < NV; ++v) {
                const i32 c = lane + 32 * v;
                if (c >= F) continue;
                const T u = f[v] + widen(loaded_entry(others + other + c)), de = d[k * K + c % K];
                const T through = u > 0 ? de : de * slope;
                acc[v] += weights[v] * through;
                if (COLUMNS)
                    acc[v] += w[k * K + c % K] * widen(loaded_entry(G + other + c));
                else
                    more[v] += through * u;
            }
        }
        __syncwarp();
    }
    if (BLOCK) {
        merge<NV>(acc, whole, warp, lane);
        if (!COLUMNS) merge<NV>(more, whole, warp, lane);
        if (warp) return;
    }
#pragma unroll
    for (int v = 0; v < NV; ++v) {
        const i32 c = lane + 32 * v;
        if (c >= F) continue;
        out[row * F + c] = acc[v];
        if (!COLUMNS) for_a[row * F + c] = more[v];
    }
}

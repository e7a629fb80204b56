// Values of nonzeros, K each: inner products and sums of the rows at their ends, softmax over a row, weighted sums; and
// the maximum over a row. See edge_kernels.py for the formulas. Warps go through rows as in attention.cu.
#include "storage.cuh"
#include "rows.cuh"

enum Flags { ACCUMULATE = 1, POSITIVE = 2 };

// out_ij = <U_i, V_j> of each head.
template <class T, int NV, bool EVEN, bool BLOCK>
__global__ void __launch_bounds__(256)
    sddmm(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr, const i32* __restrict__ indices,
          const T* __restrict__ U, const T* __restrict__ V, T* out, i32 K, i32 F) {
    __shared__ T products[WARPS][32];
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    T u[NV], part[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) u[v] = team.lane + 32 * v < F ? U[team.row * F + team.lane + 32 * v] : T(0);
#pragma unroll 2
    for (i64 e = team.first(1); e < team.end; e += team.step(1)) {
        const T* y = V + i64(__ldg(indices + e)) * F;
#pragma unroll
        for (int v = 0; v < NV; ++v) part[v] = team.lane + 32 * v < F ? u[v] * __ldg(y + team.lane + 32 * v) : T(0);
        by_head<NV, EVEN>(part, products[team.warp], out + e * K, K, team.lane);
    }
}

// out_ij = left_i + right_j + add_ij, those that are not null; K numbers each.
template <class T, bool BLOCK>
__global__ void __launch_bounds__(256)
    edge_add(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr, const i32* __restrict__ indices,
             const T* left, const T* right, const T* add, T* out, i32 K) {
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    for (i64 e = team.first(1); e < team.end; e += team.step(1)) {
        const i64 j = __ldg(indices + e);
        for (i32 k = team.lane; k < K; k += 32)
            out[e * K + k] = (left ? left[team.row * K + k] : T(0)) + (right ? right[j * K + k] : T(0)) +
                             (add ? add[e * K + k] : T(0));
    }
}

// out_i (+)= sum_j values_ij X_j of each head; X null: of 1, F = K. places: of the nonzeros among the values, null:
// none.
template <class T, int NV, bool BLOCK>
__global__ void __launch_bounds__(256)
    spmm_heads(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr,
               const i32* __restrict__ indices, const T* __restrict__ values, const i64* __restrict__ places,
               const T* __restrict__ X, T* out, i32 K, i32 F, i32 flags) {
    __shared__ T whole[BLOCK ? 32 * NV : 1];
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    const i32 col = blockIdx.y * 32 * NV + team.lane;
    T acc[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v)
        acc[v] = (flags & ACCUMULATE) && team.is_first() && col + 32 * v < F ? out[team.row * F + col + 32 * v] : T(0);
#pragma unroll 4
    for (i64 e = team.first(1); e < team.end; e += team.step(1)) {
        const T* w = values + (places ? __ldg(places + e) : e) * K;
        const T* x = X ? X + i64(__ldg(indices + e)) * F : X;
#pragma unroll
        for (int v = 0; v < NV; ++v) {
            const i32 c = col + 32 * v;
            if (c < F) acc[v] += __ldg(w + c % K) * (x ? __ldg(x + c) : T(1));
        }
    }
    if (BLOCK) {
        merge<NV>(acc, whole, team.warp, team.lane);
        if (team.warp) return;
    }
#pragma unroll
    for (int v = 0; v < NV; ++v)
        if (col + 32 * v < F) out[team.row * F + col + 32 * v] = acc[v];
}

// top_i = max_j e_ij, sum_i = sum_j exp(e_ij - top_i), or on from there. top stays finite: -inf alone has the sum 0.
// EVEN: 32 / K nonzeros at a time.
template <class T, bool EVEN>
__global__ void __launch_bounds__(256) softmax_sums(const i64* __restrict__ indptr, const T* __restrict__ values,
                                                    T* top, T* sum, i64 n, i32 K, i32 flags) {
    const i64 row = i64(blockIdx.x) * WARPS + threadIdx.x / 32;
    if (row >= n) return;
    const i32 lane = threadIdx.x % 32, step = EVEN ? 32 / K : 1;
    for (i32 h = EVEN ? lane % K : lane; h < K; h += EVEN ? K : 32) {
        const bool goes_on = (flags & ACCUMULATE) && (!EVEN || lane < K);
        T now = goes_on ? top[row * K + h] : lowest<T>(), all = goes_on ? sum[row * K + h] : T(0);
        for (i64 e = indptr[row] + (EVEN ? lane / K : 0); e < indptr[row + 1]; e += step) {
            const T score = __ldg(values + e * K + h);
            if (score > now) {
                all *= exp_of(now - score);
                now = score;
            }
            all += exp_of(score - now);
        }
        for (int apart = 16; EVEN && apart >= K; apart /= 2) {
            const T other = __shfl_xor_sync(0xffffffffu, now, apart), more = __shfl_xor_sync(0xffffffffu, all, apart);
            const T most = other > now ? other : now;
            all = (now == most ? all : all * exp_of(now - most)) + (other == most ? more : more * exp_of(other - most));
            now = most;
        }
        if (EVEN && lane >= K) return;
        top[row * K + h] = now;
        sum[row * K + h] = all;
    }
}

// out_ij = exp(e_ij - row_i) scale_i, row_i the largest; with `more`: e_ij (more_ij - row_i).
template <class T, bool BLOCK>
__global__ void __launch_bounds__(256)
    row_softmax(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr, const T* values,
                const T* more, const T* of_row, const T* scale, T* out, i32 K) {
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    for (i64 e = team.first(32); e < team.end; e += team.step(32)) {
        const i64 stop = (e + 32 < team.end ? e + 32 : team.end) * K;
        for (i64 q = e * K + team.lane; q < stop; q += 32) {
            const i64 h = team.row * K + q % K;
            out[q] = more ? values[q] * (more[q] - of_row[h]) : exp_of(values[q] - of_row[h]) * scale[h];
        }
    }
}

// out_i (+)= sum_j U_ij V_ij.
template <class T, bool BLOCK>
__global__ void __launch_bounds__(256)
    row_dots(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr, const T* __restrict__ U,
             const T* __restrict__ V, T* out, i32 K, i32 flags) {
    __shared__ T whole[32];
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    for (i32 first = 0; first < K; first += 32) {
        const i32 h = first + team.lane;
        T acc[1] = {(flags & ACCUMULATE) && team.is_first() && h < K ? out[team.row * K + h] : T(0)};
        for (i64 e = team.first(1); e < team.end; e += team.step(1))
            if (h < K) acc[0] += __ldg(U + e * K + h) * __ldg(V + e * K + h);
        if (BLOCK) merge<1>(acc, whole, team.warp, team.lane);
        if (h < K && team.is_first()) out[team.row * K + h] = acc[0];
    }
}

// The largest entry of a column so far, its place, -1 for none, and the rank of that place.
template <class T>
struct Largest {
    T value;
    i32 place;
    i64 rank;
    // NaN is larger than all numbers; of equal entries the smallest rank counts.
    __device__ void take(const Largest& other) {
        const bool is_nan = other.value != other.value, was_nan = value != value;
        const bool is_equal = other.value == value || (is_nan && was_nan);
        if (other.value > value || (is_nan && !was_nan) || (is_equal && other.rank < rank)) *this = other;
    }
};

// out_i = max_j X_j of each column, and where it is: offset + j, or (I of 16 bits) the place among the row's nonzeros.
template <class SX, class I, bool BLOCK>
__global__ void __launch_bounds__(256)
    maximum(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr, const i32* __restrict__ indices,
            const SX* __restrict__ X, const i64* __restrict__ ranks, SX* out, I* arg, i32 F, i64 offset, i32 flags) {
    typedef typename Compute<SX>::type T;
    __shared__ T values[WARPS][32];
    __shared__ i32 places[WARPS][32];
    __shared__ i64 of_places[WARPS][32];
    constexpr bool IS_COLUMN = sizeof(I) == 4;
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    const i32 c = blockIdx.y * 32 + team.lane;
    const bool is_positive = flags & POSITIVE;
    const Largest<T> none{is_positive ? T(0) : -infinity<T>(), -1, is_positive ? i64(-1) : i64(0x7fffffff)};
    Largest<T> best = none;
    if (c < F) {
        const i64 at = team.row * F + c;
        if (IS_COLUMN && (flags & ACCUMULATE) && team.is_first() && i32(arg[at]) >= 0)
            best = Largest<T>{T(widen(out[at])), i32(arg[at]), ranks ? ranks[i32(arg[at])] : i64(arg[at])};
#pragma unroll 4
        for (i64 e = team.first(1); e < team.end; e += team.step(1)) {
            const i64 j = __ldg(indices + e);
            const i32 to = i32(offset + j);
            best.take(Largest<T>{T(widen(loaded_entry(X + j * F + c))), IS_COLUMN ? to : i32(e - team.begin),
                                 ranks ? __ldg(ranks + to) : i64(to)});
        }
    }
    if (BLOCK) {
        values[team.warp][team.lane] = best.value;
        places[team.warp][team.lane] = best.place;
        of_places[team.warp][team.lane] = best.rank;
        __syncthreads();
        if (team.warp) return;
        for (int w = 1; w < WARPS; ++w)
            if (places[w][team.lane] != -1)
                best.take(Largest<T>{values[w][team.lane], places[w][team.lane], of_places[w][team.lane]});
    }
    if (c >= F) return;
    narrow(best.place == -1 ? T(0) : best.value, out[team.row * F + c]);
    arg[team.row * F + c] = I(best.place);
}

// Over the rows j of A': dX_j (+)= the sum of the G_i with arg_i = offset + j, or the place of j in row i.
template <class T, class I, bool BLOCK>
__global__ void __launch_bounds__(256)
    maximum_adjoint(const i32* __restrict__ order, i64 count, const i64* __restrict__ indptr,
                    const i32* __restrict__ indices, const T* __restrict__ G, const I* __restrict__ arg,
                    const u16* __restrict__ places, T* dX, i32 F, i64 offset, i32 flags) {
    __shared__ T whole[32];
    const Team<BLOCK> team(order, count, indptr);
    if (!team.is_there) return;
    const i32 c = blockIdx.y * 32 + team.lane;
    T acc[1] = {(flags & ACCUMULATE) && team.is_first() && c < F ? dX[team.row * F + c] : T(0)};
    if (c < F) {
#pragma unroll 4
        for (i64 e = team.first(1); e < team.end; e += team.step(1)) {
            const i64 at = i64(__ldg(indices + e)) * F + c;
            const I place = sizeof(I) == 2 ? I(__ldg(places + e)) : I(offset + team.row);
            if (__ldg(arg + at) == place) acc[0] += __ldg(G + at);
        }
    }
    if (BLOCK) merge<1>(acc, whole, team.warp, team.lane);
    if (c < F && team.is_first()) dX[team.row * F + c] = acc[0];
}

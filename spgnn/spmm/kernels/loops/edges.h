// Values of nonzeros, K per nonzero: inner products and sums of the rows at both ends, softmax over a row, weighted
// sums.
#pragma once

#include "attention.h"

namespace spgnn::SPGNN_SET {

// out = <U_i, V_j> of each head.
template <int KT, class T>
static void sddmm_rows(Heads<KT> h, const EdgeMatrices<T>& p, int64_t begin, int64_t end) {
    const int64_t bytes = p.width * int64_t(sizeof(T)), most = edges_a_block(bytes), ahead = edges_ahead(bytes);
    Arena<T> arena(h.template length<T>(most), 1);
    T* dots = arena.take(h.template length<T>(most));
    EdgeBlock<T> of;
    for (int64_t row = begin; row < end; ++row)
        for (int64_t e = p.A.indptr[row]; e < p.A.indptr[row + 1]; e += most) {
            const int64_t n = std::min(most, p.A.indptr[row + 1] - e);
            take_block(p.A, e, n, ahead, p.X, p.width, p.X, 0, of);
            T* out = KT > 0 ? p.out + e * KT : dots;
            inner<false, true>(h, Inner<T, T, T>{of.rows, n, p.U + row * p.width, nullptr, T(0), out, of.later},
                               p.width);
            if (KT == 0)
                for (int64_t i = 0; i < n; ++i) copy_heads(h, dots + i * h.stride(), p.out + (e + i) * h.K());
        }
}

template <class T>
void sddmm_rows(const EdgeMatrices<T>& p, int64_t begin, int64_t end) {
    of_heads<T>(p.K, [&](auto h) { sddmm_rows(h, p, begin, end); });
}

// out_i (+)= sum_j values_ij X_j of each head.
template <int KT, class T>
static void weighted_rows(Heads<KT> h, const EdgeMatrices<T>& p, int64_t begin, int64_t end) {
    const int64_t K = h.K(), bytes = p.width * int64_t(sizeof(T)), most = edges_a_block(bytes),
                  ahead = edges_ahead(bytes);
    Arena<T> arena(h.template length<T>(most), 1);
    T* copied = arena.take(h.template length<T>(most));
    EdgeBlock<T> of;
    for (int64_t row = begin; row < end; ++row) {
        bool is_fresh = !p.accumulate;
        T* out = p.out + row * p.width;
        const int64_t stop = p.A.indptr[row + 1];
        if (is_fresh && p.A.indptr[row] == stop) std::fill_n(out, p.width, T(0));
        for (int64_t e = p.A.indptr[row]; e < stop; e += most) {
            const int64_t n = std::min(most, stop - e);
            const T* w = p.values + e * K;
            if (p.places || KT == 0) {
                for (int64_t i = 0; i < n; ++i) {
                    if (p.places) __builtin_prefetch(p.values + p.places[std::min(e + i + 64, p.A.nnz - 1)] * K);
                    copy_heads(h, p.values + (p.places ? p.places[e + i] : e + i) * K, copied + i * h.stride());
                }
                w = copied;
            }
            take_block(p.A, e, n, ahead, p.X, p.width, p.X, 0, of);
            add_weighted<false, true>(
                h, Weighted<T, T>{of.rows, n, w, nullptr, out, nullptr, nullptr, nullptr, is_fresh, of.later}, p.width);
            is_fresh = false;
        }
    }
}

// out_i (+)= sum_j values_ij.
template <class T>
static void value_sums(const EdgeMatrices<T>& p, int64_t begin, int64_t end) {
    const int64_t K = p.K, bytes = K * int64_t(sizeof(T)), ahead = edges_ahead(bytes);
    for (int64_t row = begin; row < end; ++row) {
        T* __restrict out = p.out + row * K;
        const int64_t first = p.A.indptr[row], stop = p.A.indptr[row + 1];
        if (!p.accumulate && first == stop) std::fill_n(out, K, T(0));
        for (int64_t e = first; e < stop; ++e) {
            const T* w = p.values + (p.places ? p.places[e] : e) * K;
            if (p.places) {
                const T* later = p.values + p.places[std::min(e + ahead, p.A.nnz - 1)] * K;
                for (int64_t byte = 0; byte < bytes; byte += 64)
                    __builtin_prefetch(reinterpret_cast<const char*>(later) + byte);
            }
            if (!p.accumulate && e == first)
                for (int64_t k = 0; k < K; ++k) out[k] = w[k];
            else
                for (int64_t k = 0; k < K; ++k) out[k] += w[k];
        }
    }
}

template <class T>
void weighted_rows(const EdgeMatrices<T>& p, int64_t begin, int64_t end) {
    if (!p.X) return value_sums(p, begin, end);
    of_heads<T>(p.K, [&](auto h) { weighted_rows(h, p, begin, end); });
}

// top_i = max_j e_ij, sum_i = sum_j exp(e_ij - top_i), or on from there. top stays finite: -inf alone has the sum 0.
template <int KT, class T>
static void softmax_sums_rows(Heads<KT> h, const EdgeValues<T>& p, int64_t begin, int64_t end) {
    const int64_t K = h.K(), entries = h.template length<T>(BLOCK_MOST);
    Arena<T> arena(std::max(entries, h.template period<T>()), 2 + RowState<KT, T>::ARRAYS);
    T *w = arena.take(entries), *largest = arena.take(entries);
    RowState<KT, T> state(h, arena);
    for (int64_t row = begin; row < end; ++row) {
        std::fill_n(state.top, h.stride(), std::numeric_limits<T>::lowest());
        std::fill_n(state.sum, h.stride(), T(0));
        if (p.accumulate) {
            copy_heads(h, p.top + row * K, state.top);
            copy_heads(h, p.sum + row * K, state.sum);
        }
        for (int64_t e = p.A.indptr[row]; e < p.A.indptr[row + 1]; e += BLOCK_MOST) {
            const int64_t n = std::min(BLOCK_MOST, p.A.indptr[row + 1] - e);
            for (int64_t i = 0; i < n; ++i) copy_heads(h, p.values + (e + i) * K, w + i * h.stride());
            largest_of(h, w, n, largest);
            state.raise(h, largest, false);
            state.add_exponentials(h, n, w, nullptr, nullptr);
        }
        copy_heads(h, state.top, p.top + row * K);
        copy_heads(h, state.sum, p.sum + row * K);
    }
}

template <class T>
void softmax_sums_rows(const EdgeValues<T>& p, int64_t begin, int64_t end) {
    of_heads<T>(p.K, [&](auto h) { softmax_sums_rows(h, p, begin, end); });
}

// out_ij = exp(e_ij - top_i) scale_i; scale is in the place of sum.
template <class T>
void softmax_rows(const EdgeValues<T>& p, int64_t begin, int64_t end) {
    typedef Full<T> V;
    const int64_t K = p.K;
    for (int64_t row = begin; row < end; ++row)
        for (int64_t e = p.A.indptr[row]; e < p.A.indptr[row + 1]; ++e)
            for (int64_t k = 0; k < K; ++k) p.out[e * K + k] = p.values[e * K + k] - p.top[row * K + k];
    int64_t q = p.A.indptr[begin] * K;
    const int64_t stop = p.A.indptr[end] * K;
    for (; q + V::count <= stop; q += V::count) V::store(p.out + q, exp_of<T, SPGNN_BYTES>(V::load(p.out + q)));
    T last[V::count] = {};
    std::copy_n(p.out + q, stop - q, last);
    V::store(last, exp_of<T, SPGNN_BYTES>(V::load(last)));
    std::copy_n(last, stop - q, p.out + q);
    for (int64_t row = begin; row < end; ++row)
        for (int64_t e = p.A.indptr[row]; e < p.A.indptr[row + 1]; ++e)
            for (int64_t k = 0; k < K; ++k) p.out[e * K + k] *= p.sum[row * K + k];
}

// out_ij = alpha_ij (dalpha_ij - D_i).
template <class T>
void softmax_adjoint_rows(const EdgeValues<T>& p, int64_t begin, int64_t end) {
    const int64_t K = p.K;
    for (int64_t row = begin; row < end; ++row)
        for (int64_t e = p.A.indptr[row]; e < p.A.indptr[row + 1]; ++e)
            for (int64_t k = 0; k < K; ++k)
                p.out[e * K + k] = p.values[e * K + k] * (p.more[e * K + k] - p.D[row * K + k]);
}

// out_i (+)= sum_j U_ij V_ij.
template <class T>
void edge_dots_rows(const EdgeValues<T>& p, int64_t begin, int64_t end) {
    const int64_t K = p.K;
    for (int64_t row = begin; row < end; ++row) {
        T* __restrict sum = p.out + row * K;
        if (!p.accumulate) std::fill_n(sum, K, T(0));
        for (int64_t e = p.A.indptr[row]; e < p.A.indptr[row + 1]; ++e)
            for (int64_t k = 0; k < K; ++k) sum[k] += p.values[e * K + k] * p.more[e * K + k];
    }
}

// out_ij = U_i + X_j + values_ij, of those that are given.
template <class T>
void edge_add_rows(const EdgeMatrices<T>& p, int64_t begin, int64_t end) {
    const int64_t K = p.K, ahead = edges_ahead(K * int64_t(sizeof(T)));
    EdgeBlock<T> of;
    for (int64_t row = begin; row < end; ++row)
        for (int64_t e = p.A.indptr[row]; e < p.A.indptr[row + 1]; e += BLOCK_MOST) {
            const int64_t n = std::min(BLOCK_MOST, p.A.indptr[row + 1] - e);
            if (p.X) take_block(p.A, e, n, ahead, p.X, K, p.X, K, of);
            for (int64_t i = 0; i < n; ++i) {
                T* __restrict out = p.out + (e + i) * K;
                const T* of_rows[3];
                int parts = 0;
                if (p.U) of_rows[parts++] = p.U + row * K;
                if (p.X) of_rows[parts++] = of.rows[i];
                if (p.values) of_rows[parts++] = p.values + (e + i) * K;
                const T *a = of_rows[0], *b = of_rows[1], *c = of_rows[2];
                if (parts == 1)
                    std::copy_n(a, K, out);
                else if (parts == 2)
                    for (int64_t k = 0; k < K; ++k) out[k] = a[k] + b[k];
                else
                    for (int64_t k = 0; k < K; ++k) out[k] = a[k] + b[k] + c[k];
            }
        }
}

}  // namespace spgnn::SPGNN_SET

// Attention whose scores are <a, lrelu(left_i + right_j)> of each head, and its adjoint in a pass over rows and one
// over columns: which entries are positive differs from column to column.
#pragma once

#include "attention.h"

namespace spgnn::SPGNN_SET {

template <int KT, class SX>
static void attend2_rows(Heads<KT> h, const Attend2<SX>& p, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    attend_blocks<KT, SX>(p.sums, h, begin, end,
                          [&](int64_t row, const EdgeBlock<SX>& of, int64_t n, T* w) __attribute__((always_inline)) {
                              const SX* left = p.left + row * p.sums.width;
                              inner<true, false>(h, Inner<SX, SX, T>{of.rows, n, left, p.a, p.sums.slope, w, nullptr},
                                                 p.sums.width);
                          });
}

template <class SX>
void attend2_rows(const Attend2<SX>& p, int64_t begin, int64_t end) {
    of_heads<typename Compute<SX>::type>(p.sums.K, [&](auto h) { attend2_rows(h, p, begin, end); });
}

// y (+)= a sum over a block of de lrelu'(f + row), da += sum of de lrelu(f + row).
template <class SX, class T>
struct Slopes {
    const SX* const* rows;
    int64_t n;
    const SX* f;
    const T *a, *de;
    T slope;
    T* y;
    double* da;  // null: not wanted
    bool is_fresh;
};

template <class V, int NV, int KT, class SX, class T>
__attribute__((noinline)) static void slopes_tile(const Slopes<SX, T>& t, int64_t col, int64_t to_last) {
    const auto at = [&](int v) __attribute__((always_inline)) { return v < NV - 1 ? v * V::count : to_last; };
    const auto slope = V::all(t.slope), one = V::all(T(1)), zero = typename V::reg{};
    typename V::reg f[NV], sum[NV] = {}, da[NV] = {};
    for (int v = 0; v < NV; ++v) f[v] = V::load(t.f + col + at(v));
    const int64_t n = t.n;
    for (int64_t e = 0; e < n; ++e) {
        const SX* x = t.rows[e] + col;
        for (int v = 0; v < NV; ++v) {
            const auto u = f[v] + V::load(x + at(v));
            const auto q = of_columns<V, KT>(t.de + e * KT, col + at(v)) * (u > zero ? one : slope);
            sum[v] += q;
            da[v] += q * u;
        }
    }
    for (int v = 0; v < NV; ++v) {
        sum[v] *= V::load(t.a + col + at(v));
        if (!t.is_fresh) sum[v] += V::load(t.y + col + at(v));
    }
    for (int v = 0; v < NV; ++v) V::store(t.y + col + at(v), sum[v]);
    if (t.da)
        for (int v = 0; v < NV; ++v) {
            T lanes[V::count];
            V::store(lanes, da[v]);
            const int64_t first = v < NV - 1 ? 0 : (NV - 1) * V::count - to_last;  // those before are in the one before
            for (int64_t l = first; l < V::count; ++l) t.da[col + at(v) + l] += lanes[l];
        }
}

template <int KT, class SX, class T>
static inline void add_slopes(Heads<KT> h, const Slopes<SX, T>& t, int64_t width) {
    if constexpr (KT > 0) {
        over_tiles<KT, T>(width, [&](auto tile, int64_t col, int64_t last) {
            typedef decltype(tile) Of;
            slopes_tile<typename Of::V, Of::NV, KT>(t, col, last);
        });
    } else {
        if (t.is_fresh) std::fill_n(t.y, width, T(0));
        for (int64_t e = 0; e < t.n; ++e)
            for (int64_t c = 0; c < width; ++c) {
                const T u = widen(t.f[c]) + widen(t.rows[e][c]), de = t.de[e * h.stride() + c % h.K()];
                const T q = u > 0 ? de : de * t.slope;
                t.y[c] += t.a[c] * q;
                if (t.da) t.da[c] += q * u;
            }
    }
}

// COLUMNS: the rows of A' and the gradient of right; else of left, and da, which is added to.
template <bool COLUMNS, int KT, class SX>
static void adjoint2_rows(Heads<KT> h, const Attend2Adjoint<SX>& p, double* da, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    typedef Full<T> V;
    const int64_t K = h.K(), width = p.width, edge_bytes = 2 * width * int64_t(sizeof(SX)),
                  most = edges_a_block(edge_bytes), ahead = edges_ahead(edge_bytes),
                  entries = h.template length<T>(most);
    Arena<T> arena(entries, 4);
    T *w = arena.take(entries), *dots = arena.take(entries), *mask = arena.take(entries), *de = arena.take(entries);
    EdgeBlock<SX> of;
    const SX *gradients[BLOCK_MOST], *later[BLOCK_MOST], *fixed = COLUMNS ? p.right : p.left,
                                                         *read = COLUMNS ? p.left : p.right;
    for (int64_t row = begin; row < end; ++row) {
        bool is_fresh = !p.accumulate;
        T* out = p.out + row * width;
        const SX* f = fixed + row * width;
        const int64_t stop = p.A.indptr[row + 1];
        if (is_fresh && p.A.indptr[row] == stop) std::fill_n(out, width, T(0));
        for (int64_t e = p.A.indptr[row]; e < stop; e += most) {
            const int64_t n = std::min(most, stop - e);
            take_block(p.A, e, n, ahead, read, width, p.record, COLUMNS ? 3 * K : 0, of);
            inner<true, true>(h, Inner<SX, SX, T>{of.rows, n, f, p.a, p.slope, w, of.later}, width);
            if (COLUMNS) {
                for (int64_t i = 0; i < n; ++i) {
                    gradients[i] = p.G + of.here[i] * width;
                    later[i] = p.G + (of.later[i] - read);
                }
                inner<false, true>(h, Inner<SX, SX, T>{gradients, n, f, nullptr, T(0), dots, later}, width);
            } else {
                const SX* G = p.G + row * width;
                inner<false, false>(h, Inner<SX, SX, T>{of.rows, n, G, nullptr, T(0), dots, nullptr}, width);
            }
            if (p.drop.is_on)
                fill_mask(h, p.drop, n, mask, [&](int64_t i) __attribute__((always_inline)) {
                    const int64_t to = COLUMNS ? of.here[i] : row, from = COLUMNS ? row : of.here[i];
                    return mix(mix(p.drop.key ^ drop_id(p.drop.row_ids[to])) ^ drop_id(p.drop.column_ids[from]));
                });
            if constexpr (KT > 0) {
                const T* record = COLUMNS ? p.record : p.record + row * 3 * KT;
                each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
                    const auto part = [&](int64_t which) __attribute__((always_inline)) {
                        if constexpr (COLUMNS)
                            return gathered<KT, SPGNN_BYTES, T>(record + which * KT + v % KT, of.here + q / KT, 3 * KT);
                        else
                            return of_columns<V, KT>(record + which * KT, v);
                    };
                    const auto alpha = share_of<T>(in_pieces<KT, SPGNN_BYTES>(w + q) - part(0)) * part(1);
                    const auto m = p.drop.is_on ? in_pieces<KT, SPGNN_BYTES>(mask + q) : V::all(T(1));
                    V::store(de + q, alpha * (m * in_pieces<KT, SPGNN_BYTES>(dots + q) - part(2)));
                    V::store(w + q, alpha * m);
                });
            } else {
                const auto of_row = [&](int64_t i) { return p.record + (COLUMNS ? of.here[i] : row) * 3 * K; };
                for (int64_t i = 0; i < n; ++i)
                    for (int64_t k = 0; k < K; ++k) w[i * h.stride() + k] -= of_row(i)[k];
                each_vector<KT, T>(h, n, [&](int64_t q, int64_t) __attribute__((always_inline)) {
                    V::store(w + q, share_of<T>(V::load(w + q)));
                });
                for (int64_t i = 0; i < n; ++i)
                    for (int64_t k = 0; k < K; ++k) {
                        const int64_t q = i * h.stride() + k;
                        const T m = p.drop.is_on ? mask[q] : T(1), alpha = w[q] * of_row(i)[K + k];
                        de[q] = alpha * (m * dots[q] - of_row(i)[2 * K + k]);
                        w[q] = alpha * m;
                    }
            }
            if (COLUMNS) {
                add_weighted<false, false>(
                    h, Weighted<SX, T>{gradients, n, w, nullptr, out, nullptr, nullptr, nullptr, is_fresh, nullptr},
                    width);
                is_fresh = false;
            }
            add_slopes(h, Slopes<SX, T>{of.rows, n, f, p.a, de, p.slope, out, da, is_fresh}, width);
            is_fresh = false;
        }
    }
}

template <class SX>
void adjoint2_rows(const Attend2Adjoint<SX>& p, bool columns, double* da, int64_t begin, int64_t end) {
    of_heads<typename Compute<SX>::type>(p.K, [&](auto h) {
        if (columns)
            adjoint2_rows<true>(h, p, da, begin, end);
        else
            adjoint2_rows<false>(h, p, da, begin, end);
    });
}

}  // namespace spgnn::SPGNN_SET

// Sums over the nonzeros of a row weighted by the softmax of lrelu(left_i + right_j), K heads at a time, and the
// adjoint.
//
// A row is processed in blocks: the scores of a block, their largest, exponentials on whole vectors, then the
// weighted rows of X, which are scaled once a block where the largest score has grown.
#pragma once

#include "act.h"
#include "edge_tiles.h"

namespace spgnn::SPGNN_SET {

template <int KT, class T>
struct RowState {  // of one row: largest score and sums of each head, of what has been gone through
    typedef HeadLanes<KT, T> V;
    T *top, *sum, *plus, *before, *after, *pattern, *more;
    RowState(Heads<KT> h, Arena<T>& arena)
        : top(take(h, arena)),
          sum(take(h, arena)),
          plus(take(h, arena)),
          before(take(h, arena)),
          after(take(h, arena)),
          pattern(take(h, arena)),
          more(take(h, arena)) {}
    static constexpr int ARRAYS = 7;
    static T* take(Heads<KT> h, Arena<T>& arena) { return arena.take(h.template period<T>()); }

    // The largest score grows to that of a block; before: what earlier sums are multiplied by, exp(old - new).
    void raise(Heads<KT> h, const T* largest, bool is_fresh) {
        if (is_fresh) {
            std::copy_n(largest, h.stride(), top);
            return;
        }
        for (int64_t k = 0; k < h.stride(); k++) {
            const T old = top[k], now = Most::of(old, largest[k]);
            top[k] = now;
            before[k] = old == now ? T(0) : old - now;  // both -inf: nothing has been summed
        }
        for (int64_t v = 0; v < h.stride(); v += V::count)
            V::store(before + v, exp_of<T, sizeof(typename V::reg)>(V::load(before + v)));
        for (int64_t k = 0; k < h.stride(); k++) {
            sum[k] *= before[k];
            plus[k] *= before[k];
        }
    }

    // The scores of a block become exponentials of what they are above top, plus those of positive ones, which are
    // added to the sums, then times the mask; plus, mask null: none.
    void add_exponentials(Heads<KT> h, int64_t n, T* w, T* plus_w, const T* mask) {
        typedef Full<T> F;
        const auto zero = Reg<T>{};
        const T lowest = -std::numeric_limits<T>::infinity();
        if constexpr (KT == 0) repeat(h, top, pattern);
        HeadSums<Total, KT, T> all, positive;
        each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
            Reg<T> score = in_pieces<KT, SPGNN_BYTES>(w + q), most;
            if constexpr (KT > 0) {
                score = only<F>(score, n * KT - q, lowest);
                most = of_columns<F, KT>(top, v);
            } else {
                most = F::load(pattern + v);
            }
            Reg<T> weight = exp_of<T, SPGNN_BYTES>(score - most), more = score > zero ? weight : zero;
            if constexpr (KT > 0) {
                all.add(v, weight);
                positive.add(v, more);
            }
            if (mask && KT > 0) {
                const auto m = in_pieces<KT, SPGNN_BYTES>(mask + q);
                weight *= m;
                more *= m;
            }
            F::store(w + q, weight);
            if (plus_w) F::store(plus_w + q, more);
        });
        if constexpr (KT > 0) {
            all.store(more);
            positive.store(after);
        } else {
            reduce<Total>(h, w, n, more);
            std::fill_n(after, h.stride(), T(0));
            if (plus_w) reduce<Total>(h, plus_w, n, after);
            for (int64_t q = 0; mask && q < n * h.stride(); ++q) {
                w[q] *= mask[q];
                if (plus_w) plus_w[q] *= mask[q];
            }
        }
        for (int64_t k = 0; k < h.stride(); k++) {
            sum[k] += more[k];
            plus[k] += after[k];
        }
    }

    // after: 1 / sum, 0 for an empty row; plus becomes a share of 1.
    void invert(Heads<KT> h) {
        const auto zero = typename V::reg{}, one = V::all(T(1));
        for (int64_t v = 0; v < h.stride(); v += V::count) {
            const auto s = V::load(sum + v), inverse = s == zero ? zero : one / s;
            V::store(after + v, inverse);
            V::store(plus + v, V::load(plus + v) * inverse);
        }
    }
};

template <int KT, class T>
static inline void largest_of(Heads<KT> h, const T* w, int64_t n, T* out) {
    if constexpr (KT > 0) {
        HeadSums<Most, KT, T> most;
        each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
            const auto score = in_pieces<KT, SPGNN_BYTES>(w + q);
            most.add(v, only<Full<T>>(score, n * KT - q, -std::numeric_limits<T>::infinity()));
        });
        most.store(out);
    } else {
        reduce<Most>(h, w, n, out);
    }
}

// Rows [begin, end); scores(row, e, n, arrays, block) writes the scores of nonzeros [e, e + n).
template <int KT, class SX, class Scores>
static void attend_blocks(const Attend<SX>& p, Heads<KT> h, int64_t begin, int64_t end, const Scores& scores) {
    typedef typename Compute<SX>::type T;
    const int64_t K = h.K(), width = p.width, row_bytes = width * int64_t(sizeof(SX)), most = edges_a_block(row_bytes),
                  ahead = edges_ahead(row_bytes), entries = h.template length<T>(most);
    Arena<T> arena(std::max(entries, h.template period<T>()), 4 + RowState<KT, T>::ARRAYS);
    T *w = arena.take(entries), *plus = arena.take(entries), *mask = arena.take(entries),
      *largest = arena.take(entries);
    RowState<KT, T> state(h, arena);
    EdgeBlock<SX> of;
    const T lowest = -std::numeric_limits<T>::infinity();
    for (int64_t row = begin; row < end; ++row) {
        bool is_fresh = !p.accumulate;
        if (is_fresh) {
            std::fill_n(state.top, h.stride(), lowest);
            std::fill_n(state.sum, h.stride(), T(0));
            std::fill_n(state.plus, h.stride(), T(0));
        } else {
            std::copy_n(p.top + row * K, K, state.top);
            std::copy_n(p.sum + row * K, K, state.sum);
            if (p.plus) std::copy_n(p.plus_sum + row * K, K, state.plus);
        }
        const int64_t stop = p.A.indptr[row + 1];
        const uint64_t row_bits = p.drop.is_on ? mix(p.drop.key ^ drop_id(p.drop.row_ids[row])) : 0;
        int64_t e = p.A.indptr[row];
        bool is_left = true;  // a block, of no nonzeros in an empty row
        while (is_left) {
            const int64_t n = std::min(most, stop - e);
            if (n) {
                take_block(p.A, e, n, ahead, p.X, width, p.right, p.right ? K : 0, of);
                scores(row, of, n, w);
                largest_of(h, w, n, largest);
                state.raise(h, largest, is_fresh);
                if (p.drop.is_on)
                    fill_mask(h, p.drop, n, mask, [&](int64_t i) __attribute__((always_inline)) {
                        return mix(row_bits ^ drop_id(p.drop.column_ids[of.here[i]]));
                    });
                state.add_exponentials(h, n, w, p.plus ? plus : nullptr, p.drop.is_on ? mask : nullptr);
            }
            is_left = (e += n) < stop;
            const bool ends = p.finish && !is_left;
            if (ends) state.invert(h);
            add_weighted<true, true>(
                h,
                Weighted<SX, T>{of.rows, n, w, plus, p.Z + row * width, p.plus ? p.plus + row * width : nullptr,
                                n && !is_fresh ? state.before : nullptr, ends ? state.after : nullptr, is_fresh,
                                of.later},
                width);
            is_fresh = false;
        }
        if (p.finish && (p.act || p.bias)) {
            T* z = p.Z + row * width;
            with_act(p.act, [&](auto act) { end_row<act.value>(z, z, p.bias, width); });
        }
        std::copy_n(state.top, K, p.top + row * K);
        std::copy_n(p.finish ? state.after : state.sum, K, p.sum + row * K);
        if (p.plus) std::copy_n(state.plus, K, p.plus_sum + row * K);
    }
}

template <int KT, class SX>
static void attend_rows(Heads<KT> h, const Attend<SX>& p, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    typedef Full<T> V;
    attend_blocks<KT, SX>(
        p, h, begin, end, [&](int64_t row, const EdgeBlock<SX>& of, int64_t n, T* w) __attribute__((always_inline)) {
            const T* left = p.left + row * h.K();
            const auto slope = V::all(p.slope), zero = typename V::reg{};
            if constexpr (KT > 0) {
                each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
                    const auto u = gathered<KT, SPGNN_BYTES, T>(p.right + v % KT, of.here + q / KT, KT) +
                                   of_columns<V, KT>(left, v);
                    V::store(w + q, u > zero ? u : u * slope);
                });
            } else {
                for (int64_t i = 0; i < n; ++i)
                    for (int64_t k = 0; k < h.K(); ++k) {
                        const T u = left[k] + p.right[of.here[i] * h.K() + k];
                        w[i * h.stride() + k] = u > 0 ? u : u * p.slope;
                    }
            }
        });
}

template <class SX>
void attend_rows(const Attend<SX>& p, int64_t begin, int64_t end) {
    of_heads<typename Compute<SX>::type>(p.K, [&](auto h) { attend_rows(h, p, begin, end); });
}

// sums (K D): what is added up of the rows of dZ.
template <int KT, class SG>
static void record_rows(Heads<KT> h, const Record<SG>& p, double* sums, int64_t begin, int64_t end) {
    typedef typename Compute<SG>::type T;
    const int64_t K = h.K(), width = p.width;
    Arena<T> arena(std::max(h.stride(), width), 4);
    T *dots = arena.take(h.stride()), *plus = arena.take(h.stride()), *z = arena.take(width), *part = arena.take(width);
    for (int64_t i = begin; i < end; ++i) {
        const SG* g = p.G + i * width;
        const T* rows[] = {p.Z + i * width, p.plus + i * width};
        if (p.dZ) {
            SG* dz = p.dZ + i * width;
            with_act(p.act, [&](auto act) { begin_row<act.value>(g, rows[0], p.bias, dz, z, part, width); });
            g = dz;
            rows[0] = z;
            if (i % 64 == 63 || i + 1 == end)
                for (int64_t c = 0; c < width; ++c) {
                    sums[c] += part[c];
                    part[c] = T(0);
                }
        }
        inner<false, false>(h, Inner<T, SG, T>{rows, 1, g, nullptr, T(0), dots, nullptr}, width);
        const T* D = p.D ? p.D + i * K : dots;
        T* out = p.record + (p.left ? 4 : 3) * i * K;
        if (p.left) {
            inner<false, false>(h, Inner<T, SG, T>{rows + 1, 1, g, nullptr, T(0), plus, nullptr}, width);
            for (int64_t k = 0; k < K; ++k) {
                const T of_all = p.share ? dots[k] - D[k] * p.share[i * K + k] : T(0);
                p.dleft[i * K + k] = p.slope * of_all + (1 - p.slope) * (plus[k] - D[k] * p.plus_sum[i * K + k]);
            }
            std::copy_n(p.left + i * K, K, out);
            out += K;
        }
        std::copy_n(p.top + i * K, K, out);
        std::copy_n(p.scale + i * K, K, out + K);
        std::copy_n(D, K, out + 2 * K);
    }
}

template <class SG>
void record_rows(const Record<SG>& p, double* sums, int64_t begin, int64_t end) {
    of_heads<typename Compute<SG>::type>(p.K, [&](auto h) { record_rows(h, p, sums, begin, end); });
}

// left, right: inner products of the rows of X with two fixed ones.
template <int KT, class SX>
static void fixed_rows(Heads<KT> h, const FixedDots<SX>& p, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    Arena<T> arena(h.stride(), 1);
    T* dots = arena.take(h.stride());
    for (int64_t i = begin; i < end; ++i) {
        const SX* row = p.X + i * p.width;
        for (int which = 0; which < 2; ++which) {
            T* out = which ? p.right : p.left;
            if (!out) continue;
            inner<false, false>(h, Inner<SX, T, T>{&row, 1, p.fixed + which * p.width, nullptr, T(0), dots, nullptr},
                                p.width);
            std::copy_n(dots, h.K(), out + i * h.K());
        }
    }
}

template <class SX>
void fixed_rows(const FixedDots<SX>& p, int64_t begin, int64_t end) {
    of_heads<typename Compute<SX>::type>(p.K, [&](auto h) { fixed_rows(h, p, begin, end); });
}

// dx += fixed times the weight of each head, sums += x times that weight.
template <class V, int NV, int KT, class SX, class T>
static inline void outer_tile(const T* fixed, const T* weight, const SX* x, T* dx, T* sums, int64_t to_last) {
    const auto at = [&](int v) __attribute__((always_inline)) { return v < NV - 1 ? v * V::count : to_last; };
    typename V::reg y[NV], s[NV];
    for (int v = 0; v < NV; ++v) {
        const auto w = of_columns<V, KT>(weight, at(v));
        y[v] = V::load(dx + at(v)) + V::load(fixed + at(v)) * w;
        s[v] = V::load(sums + at(v)) + V::load(x + at(v)) * w;
    }
    for (int v = 0; v < NV; ++v) {
        V::store(dx + at(v), y[v]);
        V::store(sums + at(v), s[v]);
    }
}

template <int KT, class SX, class T>
static inline void add_outer(Heads<KT> h, const T* fixed, const T* weight, const SX* x, T* dx, T* sums, int64_t width) {
    if constexpr (KT > 0) {
        over_tiles<KT, T>(width, [&](auto tile, int64_t col, int64_t last) {
            typedef decltype(tile) Of;
            if constexpr (KT > Of::V::count) {
                for (int64_t c = col; c < col + last + Of::V::count; ++c) {
                    dx[c] += fixed[c] * weight[c % KT];
                    sums[c] += widen(x[c]) * weight[c % KT];
                }
            } else {
                outer_tile<typename Of::V, Of::NV, KT>(fixed + col, weight, x + col, dx + col, sums + col, last);
            }
        });
    } else {
        for (int64_t c = 0; c < width; ++c) {
            dx[c] += fixed[c] * weight[c % h.K()];
            sums[c] += widen(x[c]) * weight[c % h.K()];
        }
    }
}

template <int KT, class SX>
static void adjoint_rows(Heads<KT> h, const AttendAdjoint<SX>& p, double* sums, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    typedef Full<T> V;
    const int64_t K = h.K(), width = p.width, edge_bytes = 2 * width * int64_t(sizeof(SX)) + 4 * K * int64_t(sizeof(T)),
                  most = edges_a_block(edge_bytes), ahead = edges_ahead(edge_bytes),
                  entries = h.template length<T>(most);
    Arena<T> arena(std::max(entries, 2 * width), 6);
    T *w = arena.take(entries), *dots = arena.take(entries), *mask = arena.take(entries), *du = arena.take(entries),
      *dright = arena.take(entries), *part = arena.take(2 * width);
    EdgeBlock<SX> of;
    const auto slope = V::all(p.slope), zero = typename V::reg{}, one = V::all(T(1));
    for (int64_t row = begin; row < end; ++row) {
        bool is_fresh = true;
        T* dx = p.dX + row * width;
        const int64_t stop = p.A.indptr[row + 1];
        std::fill_n(dright, K, T(0));
        if (p.A.indptr[row] == stop) std::fill_n(dx, width, T(0));
        const uint64_t row_bits = p.drop.is_on ? drop_id(p.drop.column_ids[row]) : 0;
        for (int64_t e = p.A.indptr[row]; e < stop; e += most) {
            const int64_t n = std::min(most, stop - e);
            take_block(p.A, e, n, ahead, p.G, width, p.record, 4 * K, of);
            inner<false, true>(h, Inner<SX, SX, T>{of.rows, n, p.X + row * width, nullptr, T(0), dots, of.later},
                               width);
            if (p.drop.is_on)
                fill_mask(h, p.drop, n, mask, [&](int64_t i) __attribute__((always_inline)) {
                    return mix(mix(p.drop.key ^ drop_id(p.drop.row_ids[of.here[i]])) ^ row_bits);
                });
            const T *record = p.record, *mine = p.right + row * h.K();
            if constexpr (KT > 0) {
                HeadSums<Total, KT, T> total;
                each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
                    const auto part = [&](int64_t which) __attribute__((always_inline)) {
                        return gathered<KT, SPGNN_BYTES, T>(record + which * KT + v % KT, of.here + q / KT, 4 * KT);
                    };
                    const auto s = part(0) + of_columns<V, KT>(mine, v);
                    const auto alpha = share_of<T>((s > zero ? s : s * slope) - part(1)) * part(2);
                    const auto m = p.drop.is_on ? in_pieces<KT, SPGNN_BYTES>(mask + q) : one;
                    const auto de = alpha * (m * in_pieces<KT, SPGNN_BYTES>(dots + q) - part(3));
                    V::store(w + q, alpha * m);
                    total.add(v, only<V>(s > zero ? de : de * slope, n * KT - q, T(0)));
                });
                total.store(du);
            } else {
                for (int64_t i = 0; i < n; ++i)
                    for (int64_t k = 0; k < h.K(); ++k) {
                        const T* of_row = record + of.here[i] * 4 * h.K() + k;
                        const T s = of_row[0] + mine[k];
                        w[i * h.stride() + k] = (s > 0 ? s : s * p.slope) - of_row[h.K()];
                    }
                each_vector<KT, T>(h, n, [&](int64_t q, int64_t) __attribute__((always_inline)) {
                    V::store(w + q, share_of<T>(V::load(w + q)));
                });
                std::fill_n(du, h.stride(), T(0));
                for (int64_t i = 0; i < n; ++i)
                    for (int64_t k = 0; k < h.K(); ++k) {
                        const T* of_row = record + of.here[i] * 4 * h.K() + k;
                        const int64_t q = i * h.stride() + k;
                        const T m = p.drop.is_on ? mask[q] : T(1), alpha = w[q] * of_row[2 * h.K()];
                        const T de = alpha * (m * dots[q] - of_row[3 * h.K()]);
                        du[k] += of_row[0] + mine[k] > 0 ? de : de * p.slope;
                        w[q] = alpha * m;
                    }
            }
            for (int64_t k = 0; k < h.K(); ++k) dright[k] += du[k];
            add_weighted<false, false>(
                h, Weighted<SX, T>{of.rows, n, w, nullptr, dx, nullptr, nullptr, nullptr, is_fresh, nullptr}, width);
            is_fresh = false;
        }
        const SX* x = p.X + row * width;
        if (p.dleft) add_outer(h, p.fixed, p.dleft + row * K, x, dx, part, width);
        add_outer(h, p.fixed + width, dright, x, dx, part + width, width);
        if (row % 64 == 63 || row + 1 == end)
            for (int64_t c = 0; c < 2 * width; ++c) {
                sums[c] += part[c];
                part[c] = T(0);
            }
    }
}

template <class SX>
void adjoint_rows(const AttendAdjoint<SX>& p, double* sums, int64_t begin, int64_t end) {
    of_heads<typename Compute<SX>::type>(p.K, [&](auto h) { adjoint_rows(h, p, sums, begin, end); });
}

}  // namespace spgnn::SPGNN_SET

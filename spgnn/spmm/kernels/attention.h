// Sums over the nonzeros of a row weighted by the softmax of lrelu(left_i + right_j), K heads at a time, and the
// adjoint. Included once for each instruction set; needs lanes.h.
//
// A row is gone through in blocks: the scores of a block, their largest, exponentials on whole vectors, then the
// weighted rows of X, which are scaled once a block where the largest score has grown.

#include "edge_tiles.h"

template <int KT, class T>
struct RowState {  // of one row: largest score and sums of each head, of what has been gone through
    T *top, *sum, *plus, *before, *after, *pattern, *logs;
    RowState(Heads<KT> h, Arena<T>& arena)
        : top(take(h, arena)),
          sum(take(h, arena)),
          plus(take(h, arena)),
          before(take(h, arena)),
          after(take(h, arena)),
          pattern(take(h, arena)),
          logs(take(h, arena)) {}
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
        for (int64_t v = 0; v < h.template period<T>(); v += Full<T>::count)
            Full<T>::store(before + v, exp_of(Full<T>::load(before + v)));
        for (int64_t k = 0; k < h.stride(); k++) {
            sum[k] *= before[k];
            plus[k] *= before[k];
        }
    }

    // The sums become shares of 1, top the logarithm of the sum of exponentials; after: 1 / sum, 0 for an empty row.
    void finish(Heads<KT> h) {
        typedef Full<T> V;
        const auto zero = typename V::reg{}, one = V::all(T(1));
        for (int64_t v = 0; v < h.template period<T>(); v += V::count) {
            const auto s = V::load(sum + v);
            V::store(logs + v, s == zero ? zero : V::load(top + v) + log_of<T>(s));
            V::store(after + v, s == zero ? zero : one / s);
        }
        for (int64_t k = 0; k < h.stride(); k++) {
            top[k] = logs[k];
            sum[k] *= after[k];
            plus[k] *= after[k];
        }
    }
};

template <int KT, class T>
struct EdgeArrays {  // of one block
    int64_t here[BLOCK_MOST], later[BLOCK_MOST];
    uint64_t bits[BLOCK_MOST];
};

// Rows [begin, end); score(row, e, n, arrays, block) writes the scores of nonzeros [e, e + n).
template <int KT, class SX, class Scores>
static void attend_blocks(const Attend<SX>& p, Heads<KT> h, int64_t begin, int64_t end, const Scores& scores) {
    typedef typename Compute<SX>::type T;
    typedef Full<T> V;
    const int64_t K = h.K(), width = p.width, row_bytes = width * int64_t(sizeof(SX)), most = edges_a_block(row_bytes),
                  ahead = edges_ahead(row_bytes), entries = h.template length<T>(most);
    Arena<T> arena(std::max(entries, h.template period<T>()), 4 + RowState<KT, T>::ARRAYS);
    T *w = arena.take(entries), *plus = arena.take(entries), *mask = arena.take(entries),
      *largest = arena.take(entries);
    RowState<KT, T> state(h, arena);
    EdgeArrays<KT, T> of;
    const SX *rows[BLOCK_MOST], *later[BLOCK_MOST];
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
            take_indices(p.A, e, n, ahead, of.here, of.later);
            for (int64_t i = 0; i < n; ++i) {
                rows[i] = p.X + of.here[i] * width;
                later[i] = p.X + of.later[i] * width;
            }
            if (n) {
                scores(row, rows, n, of, w);
                fill_rest(h, n, w, lowest);
                reduce<Most>(h, w, n, largest);
                state.raise(h, largest, is_fresh);
                repeat(h, state.top, state.pattern);
                if (p.drop.is_on) {
                    for (int64_t i = 0; i < n; ++i) of.bits[i] = mix(row_bits ^ drop_id(p.drop.column_ids[of.here[i]]));
                    fill_mask(h, p.drop, of.bits, n, mask);
                }
                const auto zero = typename V::reg{};
                each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
                    const auto score = V::load(w + q), weight = exp_of(score - V::load(state.pattern + v));
                    V::store(w + q, weight);
                    if (p.plus) V::store(plus + q, score > zero ? weight : zero);
                });
                reduce<Total>(h, w, n, largest);
                for (int64_t k = 0; k < h.stride(); ++k) state.sum[k] += largest[k];
                if (p.plus) {
                    reduce<Total>(h, plus, n, largest);
                    for (int64_t k = 0; k < h.stride(); ++k) state.plus[k] += largest[k];
                }
                if (p.drop.is_on)
                    each_vector<KT, T>(h, n, [&](int64_t q, int64_t) __attribute__((always_inline)) {
                        const auto m = V::load(mask + q);
                        V::store(w + q, V::load(w + q) * m);
                        V::store(plus + q, V::load(plus + q) * m);
                    });
            }
            is_left = (e += n) < stop;
            const bool ends = p.finish && !is_left;
            if (ends) state.finish(h);
            add_weighted<true, true>(
                h,
                Weighted<SX, T>{rows, n, w, plus, p.Z + row * width, p.plus ? p.plus + row * width : nullptr,
                                n && !is_fresh ? state.before : nullptr, ends ? state.after : nullptr, is_fresh, later},
                width);
            is_fresh = false;
        }
        std::copy_n(state.top, K, p.top + row * K);
        std::copy_n(state.sum, K, p.sum + row * K);
        if (p.plus) std::copy_n(state.plus, K, p.plus_sum + row * K);
    }
}

template <int FOR, class SX>
static void attend_rows(const Attend<SX>& p, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    typedef Full<T> V;
    constexpr int KT = heads_here(FOR, sizeof(T));
    const Heads<KT> h(p.K);
    Arena<T> arena(h.template period<T>(), 1);
    T* left = arena.take(h.template period<T>());
    attend_blocks<KT, SX>(p, h, begin, end,
                          [&](int64_t row, const SX* const*, int64_t n, const EdgeArrays<KT, T>& of, T* w)
                              __attribute__((always_inline)) {
                                  repeat(h, p.left + row * h.K(), left);
                                  for (int64_t i = 0; i < n; ++i) {
                                      __builtin_prefetch(p.right + of.later[i] * h.K());
                                      copy_heads(h, p.right + of.here[i] * h.K(), w + i * h.stride());
                                  }
                                  const auto slope = V::all(p.slope), zero = typename V::reg{};
                                  each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
                                      const auto u = V::load(w + q) + V::load(left + v);
                                      V::store(w + q, u > zero ? u : u * slope);
                                  });
                              });
}

template <int FOR, class SG>
static void record_rows(const Record<SG>& p, int64_t begin, int64_t end) {
    typedef typename Compute<SG>::type T;
    constexpr int KT = heads_here(FOR, sizeof(T));
    const Heads<KT> h(p.K);
    const int64_t K = h.K();
    Arena<T> arena(h.stride(), 2);
    T *dots = arena.take(h.stride()), *plus = arena.take(h.stride());
    for (int64_t i = begin; i < end; ++i) {
        const SG* g = p.G + i * p.width;
        const T* rows[] = {p.Z + i * p.width, p.plus + i * p.width};
        inner<false, false>(h, Inner<T, SG, T>{rows, 1, g, nullptr, T(0), dots, nullptr}, p.width);
        inner<false, false>(h, Inner<T, SG, T>{rows + 1, 1, g, nullptr, T(0), plus, nullptr}, p.width);
        T* out = p.record + 3 * i * K;
        for (int64_t k = 0; k < K; ++k) {
            const T D = p.D ? p.D[i * K + k] : dots[k];
            out[k] = p.left[i * K + k];
            out[K + k] = p.L[i * K + k];
            out[2 * K + k] = D;
            p.dleft[i * K + k] =
                p.slope * (dots[k] - D * p.sum[i * K + k]) + (1 - p.slope) * (plus[k] - D * p.plus_sum[i * K + k]);
        }
    }
}

// out_i = <U_i, V_i> of each head.
template <int FOR, class SU, class T>
static void dot_rows(int64_t heads, int64_t width, const SU* U, const T* V, T* out, int64_t begin, int64_t end) {
    constexpr int KT = heads_here(FOR, sizeof(T));
    const Heads<KT> h(heads);
    Arena<T> arena(h.stride(), 1);
    T* dots = arena.take(h.stride());
    for (int64_t i = begin; i < end; ++i) {
        const T* row = V + i * width;
        inner<false, false>(h, Inner<T, SU, T>{&row, 1, U + i * width, nullptr, T(0), dots, nullptr}, width);
        std::copy_n(dots, h.K(), out + i * h.K());
    }
}

template <int FOR, class SX>
static void adjoint_rows(const AttendAdjoint<SX>& p, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    typedef Full<T> V;
    constexpr int KT = heads_here(FOR, sizeof(T));
    const Heads<KT> h(p.K);
    const int64_t K = h.K(), width = p.width, row_bytes = width * int64_t(sizeof(SX)), most = edges_a_block(row_bytes),
                  ahead = edges_ahead(row_bytes), entries = h.template length<T>(most);
    Arena<T> arena(std::max(entries, h.template period<T>()), 7);
    T *u = arena.take(entries), *L = arena.take(entries), *D = arena.take(entries), *dots = arena.take(entries),
      *mask = arena.take(entries), *right = arena.take(entries), *total = arena.take(entries);
    EdgeArrays<KT, T> of;
    const SX *rows[BLOCK_MOST], *later[BLOCK_MOST];
    const auto slope = V::all(p.slope), zero = typename V::reg{}, one = V::all(T(1));
    for (int64_t row = begin; row < end; ++row) {
        bool is_fresh = !p.accumulate;
        T *dx = p.dX + row * width, *dright = p.dright + row * K;
        const int64_t stop = p.A.indptr[row + 1];
        if (is_fresh) {
            std::fill_n(dright, K, T(0));
            if (p.A.indptr[row] == stop) std::fill_n(dx, width, T(0));
        }
        repeat(h, p.right + row * K, right);
        const uint64_t row_bits = p.drop.is_on ? drop_id(p.drop.column_ids[row]) : 0;
        for (int64_t e = p.A.indptr[row]; e < stop; e += most) {
            const int64_t n = std::min(most, stop - e);
            take_indices(p.A, e, n, ahead, of.here, of.later);
            for (int64_t i = 0; i < n; ++i) {
                const T* record = p.record + of.here[i] * 3 * K;
                rows[i] = p.G + of.here[i] * width;
                later[i] = p.G + of.later[i] * width;
                __builtin_prefetch(p.record + of.later[i] * 3 * K);
                __builtin_prefetch(p.record + of.later[i] * 3 * K + 3 * K - 1);
                copy_heads(h, record, u + i * h.stride());
                copy_heads(h, record + K, L + i * h.stride());
                copy_heads(h, record + 2 * K, D + i * h.stride());
            }
            inner<false, true>(h, Inner<SX, SX, T>{rows, n, p.X + row * width, nullptr, T(0), dots, later}, width);
            if (p.drop.is_on) {
                for (int64_t i = 0; i < n; ++i)
                    of.bits[i] = mix(mix(p.drop.key ^ drop_id(p.drop.row_ids[of.here[i]])) ^ row_bits);
                fill_mask(h, p.drop, of.bits, n, mask);
            }
            each_vector<KT, T>(h, n, [&](int64_t q, int64_t v) __attribute__((always_inline)) {
                const auto sum = V::load(u + q) + V::load(right + v), m = p.drop.is_on ? V::load(mask + q) : one;
                const auto alpha = exp_of((sum > zero ? sum : sum * slope) - V::load(L + q));
                const auto de = alpha * (m * V::load(dots + q) - V::load(D + q));
                V::store(u + q, alpha * m);
                V::store(D + q, sum > zero ? de : de * slope);
            });
            fill_rest(h, n, D, T(0));
            reduce<Total>(h, D, n, total);
            for (int64_t k = 0; k < K; ++k) dright[k] += total[k];
            add_weighted<false, false>(
                h, Weighted<SX, T>{rows, n, u, nullptr, dx, nullptr, nullptr, nullptr, is_fresh, nullptr}, width);
            is_fresh = false;
        }
    }
}

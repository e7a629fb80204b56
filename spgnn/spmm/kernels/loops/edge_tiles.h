// Weighted sums and inner products of the rows that a block of nonzeros names, for K heads, heads innermost, in tiles
// of columns that stay in registers.
#pragma once

#include "edge_math.h"

namespace spgnn::SPGNN_SET {

// One block: columns of its nonzeros, their rows of a matrix, and rows that are prefetched meanwhile.
template <class SX>
struct EdgeBlock {
    int64_t here[BLOCK_MOST + BLOCK_REST];
    const SX *rows[BLOCK_MOST], *later[BLOCK_MOST];
};

// Nonzeros [first, first + n) of A, whose rows of X have `width` columns; entries of `small`, `wide` of them a column,
// are prefetched with the rows of nonzeros `ahead` later. In one plain loop: rows are short.
template <class I, class SX, class T>
static inline void take_as(const I* all, int64_t nnz, int64_t first, int64_t n, int64_t ahead, const SX* X,
                           int64_t width, const T* small, int64_t wide, EdgeBlock<SX>& block) {
    __builtin_prefetch(all + first + ahead + INDEX_AHEAD);
    for (int64_t e = 0; e < n; ++e) {
        const int64_t j = int64_t(all[first + e]), next = int64_t(all[std::min(first + e + ahead, nnz - 1)]);
        block.here[e] = j;
        block.rows[e] = X + j * width;
        block.later[e] = X + next * width;
        __builtin_prefetch(small + next * wide);
        if (wide * sizeof(T) > 64) __builtin_prefetch(small + next * wide + wide - 1);
    }
    const int64_t last = n ? block.here[n - 1] : 0;
    for (int64_t e = n; e < n + BLOCK_REST; ++e) block.here[e] = last;  // whole vectors are loaded
}

template <class SX, class T>
static inline void take_block(const Pattern& A, int64_t first, int64_t n, int64_t ahead, const SX* X, int64_t width,
                              const T* small, int64_t wide, EdgeBlock<SX>& block) {
    if (A.is_wide)
        take_as(static_cast<const int64_t*>(A.indices), A.nnz, first, n, ahead, X, width, small, wide, block);
    else
        take_as(static_cast<const int32_t*>(A.indices), A.nnz, first, n, ahead, X, width, small, wide, block);
}

// Prefetch a tile of a row: NV - 1 vectors and the one at to_last.
template <class V, int NV, class SX>
static inline __attribute__((always_inline)) void ask_tile(const SX* p, int64_t to_last) {
    constexpr int64_t BYTES = NV * V::count * sizeof(SX);
    const char* line = reinterpret_cast<const char*>(p);
    for (int64_t byte = 0; byte < BYTES - 64; byte += 64) __builtin_prefetch(line + byte);
    if (BYTES > 64) __builtin_prefetch(line + BYTES / 64 * 64 - 64);
    __builtin_prefetch(line + (to_last + V::count) * sizeof(SX) - 1);
}

static inline int64_t edges_ahead(int64_t row_bytes) {
    return std::min<int64_t>(EDGE_AHEAD_MOST, EDGE_AHEAD_BYTES / std::max<int64_t>(row_bytes, 1) + 1);
}

static inline int64_t edges_a_block(int64_t row_bytes) {
    return std::min(BLOCK_MOST, std::max(BLOCK_LEAST, BLOCK_BYTES / std::max<int64_t>(row_bytes, 1) / 8 * 8));
}

template <int N>
struct Words {
    typedef uint32_t reg __attribute__((vector_size(4 * N)));
    static inline __attribute__((always_inline)) reg mixed(reg x) {  // mix32
        x ^= x >> 16;
        x *= 0x7feb352du;
        x ^= x >> 15;
        x *= 0x846ca68bu;
        return x ^ (x >> 16);
    }
};

// mask[e, h] = scale, or 0 where it is dropped; hash(e): of nonzero e. Vectors of all heads of a nonzero.
template <int KT, class T, class Hash>
static inline __attribute__((always_inline)) void fill_mask(Heads<KT> h, const EdgeDrop& drop, int64_t n, T* mask,
                                                            const Hash& hash) {
    const T scale = T(drop.scale);
    const uint32_t threshold = drop.threshold;
    if constexpr (sizeof(T) == 4 && KT >= 4) {
        typedef typename Words<KT>::reg words;
        const uint32_t kept = bits_of(float(scale));
        words heads;
        for (int k = 0; k < KT; ++k) heads[k] = uint32_t(k) * 0x9e3779b9u;
        for (int64_t e = 0; e < n; ++e) {
            const uint64_t bits = hash(e);
            const words x = Words<KT>::mixed(Words<KT>::mixed(heads + uint32_t(bits)) ^ uint32_t(bits >> 32));
            const words values = (words)(x >= threshold) & kept;
            std::memcpy(mask + e * KT, &values, sizeof values);
        }
    } else {
        for (int64_t e = 0; e < n; ++e) {
            const uint64_t bits = hash(e);
            asm("" ::: "memory");  // stops vectorisation, which is slower here
            for (int64_t k = 0; k < h.K(); ++k)
                mask[e * h.stride() + k] =
                    drop_bits(uint32_t(bits), uint32_t(bits >> 32), uint32_t(k)) >= threshold ? scale : T(0);
        }
    }
}

// y (+ y2) = y before + sum over the block of weight times row; before, after null: 1.
template <class SX, class T>
struct Weighted {
    const SX* const* rows;
    int64_t n;
    const T *w, *w2;
    T *y, *y2;
    const T *before, *after;  // (K)
    bool is_fresh;            // y is not read but taken as 0
    const SX* const* later;   // rows that are prefetched meanwhile; null: none
};

template <class V, int NV, int KT, bool TWO, bool LATER, class SX, class T>
__attribute__((noinline)) static void weighted_tile(const Weighted<SX, T>& t, int64_t col, int64_t to_last) {
    typename V::reg sum[NV] = {}, sum2[NV] = {};
    const int64_t n = t.n;
    const SX* const* __restrict rows = t.rows;
    const T* __restrict w = t.w, * __restrict w2 = t.w2;
    const auto at = [&](int v) __attribute__((always_inline)) { return v < NV - 1 ? v * V::count : to_last; };
    if (!t.is_fresh) {
        for (int v = 0; v < NV; ++v) sum[v] = V::load(t.y + col + at(v));
        if (TWO)
            for (int v = 0; v < NV; ++v) sum2[v] = V::load(t.y2 + col + at(v));
        if (t.before)
            for (int v = 0; v < NV; ++v) {
                const auto scale = of_columns<V, KT>(t.before, col + at(v));
                sum[v] *= scale;
                if (TWO) sum2[v] *= scale;
            }
    }
    for (int64_t e = 0; e < n; ++e) {
        const SX* x = rows[e] + col;
        if (LATER) ask_tile<V, NV>(t.later[e] + col, to_last);
        for (int v = 0; v < NV; ++v) {
            const auto part = V::load(x + at(v));
            sum[v] += of_columns<V, KT>(w + e * KT, col + at(v)) * part;
            if (TWO) sum2[v] += of_columns<V, KT>(w2 + e * KT, col + at(v)) * part;
        }
    }
    if (t.after)
        for (int v = 0; v < NV; ++v) {
            const auto scale = of_columns<V, KT>(t.after, col + at(v));
            sum[v] *= scale;
            if (TWO) sum2[v] *= scale;
        }
    for (int v = 0; v < NV; ++v) V::store(t.y + col + at(v), sum[v]);
    if (TWO)
        for (int v = 0; v < NV; ++v) V::store(t.y2 + col + at(v), sum2[v]);
}

// Any number of heads.
template <class SX, class T>
static void weighted_any(const Weighted<SX, T>& t, const T* w, T* __restrict y, int64_t K, int64_t stride,
                         int64_t width) {
    for (int64_t d = 0; d < width; d += K)
        for (int64_t k = 0; k < K; ++k) y[d + k] = t.is_fresh ? T(0) : t.before ? y[d + k] * t.before[k] : y[d + k];
    for (int64_t e = 0; e < t.n; ++e) {
        const SX* __restrict x = t.rows[e];
        const T* __restrict we = w + e * stride;
        for (int64_t d = 0; d < width; d += K)
            for (int64_t k = 0; k < K; ++k) y[d + k] += we[k] * widen(x[d + k]);
    }
    if (t.after)
        for (int64_t d = 0; d < width; d += K)
            for (int64_t k = 0; k < K; ++k) y[d + k] *= t.after[k];
}

template <class Vector, int VECTORS>
struct Tile {
    typedef Vector V;
    static constexpr int NV = VECTORS;
};

// f(Tile, first column, offset of the last vector) for tiles of at most MOST vectors that cover a row.
template <class V, int MOST, class F>
static inline void tiles_of(int64_t width, const F& f) {
    constexpr int64_t lanes = V::count;
    const int64_t vectors = (width + lanes - 1) / lanes, tiles = (vectors + MOST - 1) / MOST;
    for (int64_t t = 0; t < tiles; ++t) {  // of nearly equal size: one of one vector is a whole row
        const int64_t first = vectors * t / tiles, stop = vectors * (t + 1) / tiles;
        const int64_t col = first * lanes, last = std::min(stop * lanes, width) - lanes - col;
        if (stop - first == 1) f(Tile<V, 1>{}, col, last);
        if (stop - first == 2) f(Tile<V, 2>{}, col, last);
        if constexpr (MOST > 2)
            if (stop - first == 3) f(Tile<V, 3>{}, col, last);
        if constexpr (MOST > 3)
            if (stop - first == 4) f(Tile<V, 4>{}, col, last);
    }
}

// Of a row that is as wide as K heads at least.
template <int K, class T, class F>
static inline void over_tiles(int64_t width, const F& f) {
    constexpr int LEAST = K * sizeof(T);
    const int64_t bytes = width * int64_t(sizeof(T));
    if (bytes >= SPGNN_BYTES) {
        tiles_of<Lanes<T, SPGNN_BYTES>, 4>(width, f);
    } else if (SPGNN_BYTES > 32 && bytes >= 32) {
        if constexpr (SPGNN_BYTES > 32 && LEAST < 64) tiles_of<Lanes<T, std::min(32, SPGNN_BYTES)>, 2>(width, f);
    } else if (SPGNN_BYTES > 16 && bytes >= 16) {
        if constexpr (SPGNN_BYTES > 16 && LEAST < 32) tiles_of<Lanes<T, 16>, 2>(width, f);
    } else {
        if constexpr (LEAST < 16) tiles_of<Lanes<T, 0>, 3>(width, f);
    }
}

template <bool TWO, bool LATER, int KT, class SX, class T>
static inline void add_weighted(Heads<KT> h, const Weighted<SX, T>& t, int64_t width) {
    if constexpr (KT > 0) {
        over_tiles<KT, T>(width, [&](auto tile, int64_t col, int64_t last) {
            typedef decltype(tile) Of;
            if (TWO && t.y2)
                weighted_tile<typename Of::V, Of::NV, KT, TWO, LATER>(t, col, last);
            else
                weighted_tile<typename Of::V, Of::NV, KT, false, LATER>(t, col, last);
        });
    } else {
        weighted_any(t, t.w, t.y, h.K(), h.stride(), width);
        if (t.y2) weighted_any(t, t.w2, t.y2, h.K(), h.stride(), width);
    }
}

// Inner products of each head of the rows of a block with a fixed row f, of stride K (h.stride() for any K):
// <f, row>, or with SCORES <a, lrelu(f + row)>.
template <class SX, class SF, class T>
struct Inner {
    const SX* const* rows;
    int64_t n;
    const SF* f;
    const T* a;
    T slope;
    T* out;
    const SX* const* later;  // rows that are prefetched meanwhile; null: none
};

template <class V, int NV, int KT, bool SCORES, bool LATER, class SX, class SF, class T>
__attribute__((noinline)) static void inner_tile(const Inner<SX, SF, T>& t, int64_t col, int64_t to_last) {
    const int64_t n = t.n;
    const SX* const* __restrict rows = t.rows;
    T* __restrict out = t.out;
    const auto slope = V::all(t.slope), zero = typename V::reg{};
    const auto at = [&](int v) __attribute__((always_inline)) { return v < NV - 1 ? v * V::count : to_last; };
    typename V::reg f[NV], a[NV];
    for (int v = 0; v < NV; ++v) f[v] = V::load(t.f + col + at(v));
    if (SCORES)
        for (int v = 0; v < NV; ++v) a[v] = V::load(t.a + col + at(v));
    if (NV > 1) {  // the lanes that the vector before has too become 0: each column counts once
        T lanes[V::count];
        auto& last = SCORES ? a[NV - 1] : f[NV - 1];
        V::store(lanes, last);
        std::fill_n(lanes, (NV - 1) * V::count - to_last, T(0));
        last = V::load(lanes);
    }
    const auto term = [&](const SX* x, int v) __attribute__((always_inline)) {
        const auto part = V::load(x + at(v));
        if constexpr (SCORES) {
            const auto u = f[v] + part;
            return a[v] * (u > zero ? u : u * slope);
        } else {
            return f[v] * part;
        }
    };
    for (int64_t e = 0; e < n; ++e) {
        const SX* x = rows[e] + col;
        T* o = out + e * KT;
        if (LATER) ask_tile<V, NV>(t.later[e] + col, to_last);
        if constexpr (KT <= V::count) {
            auto sum = term(x, 0);
            for (int v = 1; v < NV; ++v) sum += term(x, v);
            T folded[KT];
            fold_heads<Total, KT, T, V::count == 1 ? 0 : V::count * int(sizeof(T))>(sum, folded);
            if (col)
                for (int k = 0; k < KT; ++k) o[k] += folded[k];
            else
                for (int k = 0; k < KT; ++k) o[k] = folded[k];
        } else {
            if (!col) std::fill_n(o, KT, T(0));
            for (int v = 0; v < NV; ++v) {
                T* to = o + (col + at(v)) % KT;
                V::store(to, V::load(to) + term(x, v));
            }
        }
    }
}

template <bool SCORES, bool LATER, int KT, class SX, class SF, class T>
static inline void inner(Heads<KT> h, const Inner<SX, SF, T>& t, int64_t width) {
    if constexpr (KT > 0) {
        over_tiles<KT, T>(width, [&](auto tile, int64_t col, int64_t last) {
            typedef decltype(tile) Of;
            inner_tile<typename Of::V, Of::NV, KT, SCORES, LATER>(t, col, last);
        });
        if (!width) std::fill_n(t.out, t.n * KT, T(0));
    } else {
        const int64_t K = h.K();
        for (int64_t e = 0; e < t.n; ++e) {
            T* __restrict out = t.out + e * h.stride();
            const SX* x = t.rows[e];
            std::fill_n(out, K, T(0));
            for (int64_t d = 0; d < width; d += K)
                for (int64_t k = 0; k < K; ++k) {
                    const T f = widen(t.f[d + k]), s = widen(x[d + k]), u = f + s;
                    out[k] += SCORES ? t.a[d + k] * (u > 0 ? u : u * t.slope) : f * s;
                }
        }
    }
}

}  // namespace spgnn::SPGNN_SET

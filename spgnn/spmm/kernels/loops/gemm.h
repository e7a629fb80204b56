// Products of tall matrices with narrow ones: X W and its gradients, X (n, k), W (k, m), n large.
//
// W is packed once, in panels of a few vectors of columns, and stays in the cache; rows of X are streamed and their
// numbers broadcast, without a copy of them. Every number of a result is one sum, taken in one order: the bits do not
// depend on the chunks of rows or the threads.
#pragma once

#include "lanes.h"

namespace spgnn::SPGNN_SET {

template <class T>
struct Shape {
    typedef Lanes<T, SPGNN_BYTES> V;
    static constexpr int LANES = V::count;
    static constexpr int MOST =
        SPGNN_BYTES == 64 ? 4 : 2;     // vectors of a panel: with ROWS or COLUMNS, what registers hold
    static constexpr int ROWS = 6;     // of X W, side by side
    static constexpr int COLUMNS = 4;  // of X' G, side by side
    static constexpr int64_t CHUNK = 96,
                             DEEP = 512;  // rows that stay in the second cache; numbers of one of them at once
    static_assert(CHUNK % ROWS == 0, "all but the last rows of a matrix are in tiles of ROWS");
    static int64_t padded(int64_t m) { return (m + LANES - 1) / LANES * LANES; }
};

// A vector of which `count` numbers are there, or all of them.
template <class T>
static inline typename Shape<T>::V::reg some(const T* p, int64_t count) {
    typedef typename Shape<T>::V V;
    if (count >= V::count) return V::load(p);
    T whole[V::count] = {};
    for (int64_t c = 0; c < count; ++c) whole[c] = p[c];
    return V::load(whole);
}

template <class T>
static inline void store_some(T* p, typename Shape<T>::V::reg x, int64_t count) {
    typedef typename Shape<T>::V V;
    if (count >= V::count) return V::store(p, x);
    T whole[V::count];
    V::store(whole, x);
    for (int64_t c = 0; c < count; ++c) p[c] = whole[c];
}

template <class T>
int64_t packed_size(int64_t k, int64_t m) {
    return k * Shape<T>::padded(m);
}

// W (k, m), or its transpose where W is (m, k): panels of MOST vectors, the last one of as many as are left.
template <class T>
void pack(const T* W, int64_t k, int64_t m, bool transposed, T* out) {
    typedef Shape<T> S;
    const int64_t whole = S::padded(m);
    for (int64_t j = 0; j < whole; j += S::MOST * S::LANES) {
        const int64_t width = std::min(whole - j, int64_t(S::MOST * S::LANES));
        for (int64_t p = 0; p < k; ++p)
            for (int64_t c = j; c < j + width; ++c) *out++ = c >= m ? T(0) : transposed ? W[c * k + p] : W[p * m + c];
    }
}

// R rows from i on, NV vectors of columns from j on, of X W: numbers [from, to) of each row of X.
template <class T, int R, int NV>
__attribute__((noinline)) static void gemm_tile(const Gemm<T>& g, const T* w, int64_t i, int64_t j, int64_t from,
                                                int64_t to) {
    typedef typename Shape<T>::V V;
    constexpr int L = V::count;
    const int64_t ldx = g.ldx, left = g.m - j;
    typename V::reg sum[R][NV];
    const T* begin = from ? g.out : g.add;  // what the sum begins with
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v)
            sum[r][v] = begin ? some(begin + (i + r) * g.m + j + v * L, left - v * L) : typename V::reg{};
    const T* row[(R + 2) / 3];  // of every third row, as processors add one multiple of ldx and its double
#pragma GCC unroll 8
    for (int b = 0; b < (R + 2) / 3; ++b) row[b] = g.X + (i + 3 * b) * ldx + from;
    const T* next = g.X + (i + R) * ldx + from * R;
    int64_t p = from;
    for (; p + 4 <= to; p += 4) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) {
            typename V::reg part[NV];
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v) part[v] = V::load(w + v * L);
            w += NV * L;
#pragma GCC unroll 32
            for (int r = 0; r < R; ++r) {
                const typename V::reg x = V::all(row[r / 3][(r % 3) * ldx + q]);
#pragma GCC unroll 8
                for (int v = 0; v < NV; ++v) sum[r][v] += x * part[v];
            }
        }
#pragma GCC unroll 8
        for (int b = 0; b < (R + 2) / 3; ++b) row[b] += 4;
        if (R > 1) {  // the rows of the tile below, which the processor does not prefetch itself
            __builtin_prefetch(next);
            __builtin_prefetch(next + 2 * R);
            next += 4 * R;
        }
    }
    for (int q = 0; p + q < to; ++q, w += NV * L)
#pragma GCC unroll 32
        for (int r = 0; r < R; ++r) {
            const typename V::reg x = V::all(row[r / 3][(r % 3) * ldx + q]);
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v) sum[r][v] += x * V::load(w + v * L);
        }
    const bool ends = to == g.k;
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
            typename V::reg z = sum[r][v];
            if (ends && g.bias) z += some(g.bias + j + v * L, left - v * L);
            if (ends && g.relu) z = positive<V>(z);
            store_some(g.out + (i + r) * g.m + j + v * L, z, left - v * L);
        }
}

template <class T, int NV>
static void gemm_panel(const Gemm<T>& g, const T* w, int64_t j, int64_t from, int64_t to, int64_t begin, int64_t end) {
    constexpr int R = Shape<T>::ROWS;
    int64_t i = begin;
    for (; i + R <= end; i += R) gemm_tile<T, R, NV>(g, w, i, j, from, to);
    for (; i < end; ++i) gemm_tile<T, 1, NV>(g, w, i, j, from, to);
}

// Call f(constant NV) for a number of vectors.
template <class T, class F>
static inline void on_vectors(int64_t vectors, const F& f) {
    if constexpr (Shape<T>::MOST == 4) {
        if (vectors >= 4) return f(std::integral_constant<int, 4>());
        if (vectors == 3) return f(std::integral_constant<int, 3>());
    }
    if (vectors >= 2) return f(std::integral_constant<int, 2>());
    f(std::integral_constant<int, 1>());
}

// Rows [begin, end) of out = X W (+ add) (+ bias), then ReLU; W packed.
template <class T>
void gemm_rows(const Gemm<T>& g, int64_t begin, int64_t end) {
    typedef Shape<T> S;
    const int64_t whole = S::padded(g.m);
    for (int64_t i = begin; i < end; i += S::CHUNK) {
        const int64_t last = std::min(i + S::CHUNK, end);
        int64_t from = 0;
        do {
            const int64_t to = std::min(from + S::DEEP, g.k);
            for (int64_t j = 0; j < whole; j += S::MOST * S::LANES)
                on_vectors<T>((whole - j) / S::LANES, [&](auto nv) {
                    const T* w = g.W + j * g.k + from * nv * S::LANES;
                    gemm_panel<T, nv>(g, w, j, from, to, i, last);
                });
            from = to;
        } while (from < g.k);
    }
}

// out (COLUMNS or 1, NV vectors) += columns of X, from p on, times columns of G, from j on, over some rows.
template <class T, int R, int NV>
__attribute__((noinline)) static void outer_tile(const T* x, int64_t ldx, const T* g, int64_t ldg, int64_t rows, T* out,
                                                 int64_t ldo) {
    typedef typename Shape<T>::V V;
    constexpr int L = V::count, AHEAD = 8;
    typename V::reg sum[R][NV];
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) sum[r][v] = V::load(out + r * ldo + v * L);
    for (int64_t i = 0; i < rows; ++i) {
        __builtin_prefetch(x + AHEAD * ldx);
        __builtin_prefetch(g + AHEAD * ldg);
        typename V::reg part[NV];
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) part[v] = V::load(g + v * L);
#pragma GCC unroll 32
        for (int r = 0; r < R; ++r) {
            const typename V::reg one = V::all(x[r]);
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v) sum[r][v] += one * part[v];
        }
        x += ldx;
        g += ldg;
    }
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) V::store(out + r * ldo + v * L, sum[r][v]);
}

template <class T>
static void outer(const T* x, int64_t k, const T* g, int64_t ldg, int64_t m, int64_t rows, T* out) {
    typedef Shape<T> S;
    constexpr int R = S::COLUMNS;
    const int64_t whole = S::padded(m);
    for (int64_t j = 0; j < whole; j += S::MOST * S::LANES)
        on_vectors<T>((whole - j) / S::LANES, [&](auto nv) {
            int64_t p = 0;
            for (; p + R <= k; p += R) outer_tile<T, R, nv>(x + p, k, g + j, ldg, rows, out + p * whole + j, whole);
            for (; p < k; ++p) outer_tile<T, 1, nv>(x + p, k, g + j, ldg, rows, out + p * whole + j, whole);
        });
}

template <class T>
int64_t gradient_size(int64_t k, int64_t m) {
    return k * Shape<T>::padded(m);
}

template <class T>
int64_t gradient_scratch(int64_t m) {
    return (Shape<T>::CHUNK + 1) * Shape<T>::padded(m);
}

// Rows [begin, end) of the gradients of relu(X W + b), see GemmAdjoint; dW (k, padded m) and sums are added to.
template <class T>
void gemm_adjoint_rows(const GemmAdjoint<T>& p, T* dW, double* sums, T* scratch, int64_t begin, int64_t end) {
    typedef Shape<T> S;
    const int64_t m = p.m, k = p.k, whole = S::padded(m);
    T* const part = scratch + S::CHUNK * whole;
    const bool copies = p.Z || (dW && whole != m) || p.dX == p.G;
    for (int64_t i = begin; i < end; i += S::CHUNK) {
        const int64_t rows = std::min(S::CHUNK, end - i);
        const T* g = p.G + i * m;
        int64_t ldg = m;
        if (copies) {
            for (int64_t r = 0; r < rows; ++r) {
                const T *from = g + r * m, *z = p.Z ? p.Z + (i + r) * m : nullptr;
                T* __restrict to = scratch + r * whole;
                if (z)
                    for (int64_t c = 0; c < m; ++c) to[c] = z[c] <= 0 ? T(0) : from[c];
                else
                    for (int64_t c = 0; c < m; ++c) to[c] = from[c];
                for (int64_t c = m; c < whole; ++c) to[c] = T(0);
                if (p.masked)
                    for (int64_t c = 0; c < m; ++c) p.masked[(i + r) * m + c] = to[c];
            }
            g = scratch;
            ldg = whole;
        }
        if (sums) {
            for (int64_t c = 0; c < m; ++c) part[c] = T(0);
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t c = 0; c < m; ++c) part[c] += g[r * ldg + c];
            for (int64_t c = 0; c < m; ++c) sums[c] += part[c];
        }
        if (p.dX) {
            T* const dX = p.dX + i * k;
            gemm_rows<T>({g, ldg, m, p.W, k, dX, nullptr, p.adds ? dX : nullptr, false}, 0, rows);
        }
        if (dW) outer(p.X + i * k, k, g, ldg, m, rows, dW);
    }
}

// Rows [begin, end) of C (m, k), in blocks of RANK_BLOCK, each packed as W' of X W.
template <class T>
void pack_candidates(const T* C, int64_t k, T* out, int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += RANK_BLOCK)
        pack(C + j * k, k, std::min(RANK_BLOCK, end - j), true, out + (j - begin) * k);
}

template <class T>
int64_t rank_scratch() {
    return Shape<T>::CHUNK * RANK_BLOCK;
}

// body(i, scores, first, width) for each query of [begin, end) and block of candidates; scores of known ones are NaN.
// Returns whether all scores are numbers.
template <class T, class Body>
static bool over_scores(const Scored<T>& p, T* scratch, int64_t begin, int64_t end, const Body& body) {
    typedef Shape<T> S;
    int64_t not_numbers = 0;
    for (int64_t i = begin; i < end; i += S::CHUNK) {
        const int64_t rows = std::min(S::CHUNK, end - i), *const ends = p.known_indptr + i + 1;
        const int64_t* known[S::CHUNK];
        for (int64_t r = 0; r < rows; ++r)
            known[r] = std::lower_bound(p.known + ends[r - 1], p.known + ends[r], p.first);
        for (int64_t j = 0; j < p.m; j += RANK_BLOCK) {
            const int64_t width = std::min(RANK_BLOCK, p.m - j), first = p.first + j;
            gemm_rows<T>({p.Q + i * p.k, p.k, p.k, p.C + j * p.k, width, scratch, nullptr, nullptr, false}, 0, rows);
            for (int64_t r = 0; r < rows; ++r) {
                T* const score = scratch + r * width;
                int32_t nans = 0;
                for (int64_t c = 0; c < width; ++c) nans += score[c] != score[c];
                not_numbers += nans;
                for (; known[r] < p.known + ends[r] && *known[r] < first + width; ++known[r])
                    score[*known[r] - first] = std::numeric_limits<T>::quiet_NaN();
                body(i + r, score, first, width);
            }
        }
    }
    return !not_numbers;
}

// Queries [begin, end): how many scores are above and equal to the target's, without the known candidates.
template <class T>
bool rank_rows(const Scored<T>& p, const T* target, int64_t* above, int64_t* equal, T* scratch, int64_t begin,
               int64_t end) {
    return over_scores(p, scratch, begin, end, [&](int64_t i, const T* score, int64_t, int64_t width) {
        const T t = target[i];
        int32_t up = 0, same = 0;
        for (int64_t c = 0; c < width; ++c) {
            up += score[c] > t;
            same += score[c] == t;
        }
        above[i] += up;
        equal[i] += same;
    });
}

// Queries [begin, end): heaps of the `most` best candidates, the last one in front; equal scores by ids (of all).
template <class T>
bool top_rows(const Scored<T>& p, const int64_t* ids, int64_t most, Best<T>* heaps, T* scratch, int64_t begin,
              int64_t end) {
    constexpr int64_t GROUP = 32;  // scores that are compared at once with the last of the best
    const auto before = [](const Best<T>& a, const Best<T>& b) {
        return a.score > b.score || (a.score == b.score && a.id < b.id);
    };
    return over_scores(p, scratch, begin, end, [&](int64_t i, const T* score, int64_t first, int64_t width) {
        Best<T>* const best = heaps + i * most;
        for (int64_t c = 0; c < width; c += GROUP) {
            const int64_t last = std::min(c + GROUP, width);
            int32_t hits = 0;
            for (int64_t e = c; e < last; ++e) hits += score[e] >= best->score;
            for (int64_t e = c; hits && e < last; ++e) {
                const Best<T> one{score[e], ids[first + e]};
                if (!before(one, *best)) continue;
                int64_t at = 0;  // of the last one, whose place it takes
                for (int64_t child; (child = 2 * at + 1) < most; at = child) {
                    if (child + 1 < most && before(best[child], best[child + 1])) ++child;
                    if (!before(one, best[child])) break;
                    best[at] = best[child];
                }
                best[at] = one;
            }
        }
    });
}

// Scores [begin, end) of pairs, <Q_i, C_index[i]>: the chain of additions that a number of X W is.
template <class T>
void pair_scores(const T* Q, const T* C, const int64_t* index, int64_t k, T* out, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        const T *const q = Q + i * k, *const c = C + index[i] * k;
        T sum = 0;
        for (int64_t p = 0; p < k; ++p)
#if SPGNN_BYTES > 16 || !defined(SPGNN_DISPATCH)
            sum = std::fma(q[p], c[p], sum);  // as compilers fuse it in gemm_tile
#else
            sum += q[p] * c[p];
#endif
        out[i] = sum;
    }
}

// Numbers [begin, end) of dW (k, m): the sum of what the segments have, in their order.
template <class T>
void add_segments(const T* parts, int64_t segments, int64_t k, int64_t m, T* out, int64_t begin, int64_t end) {
    const int64_t whole = Shape<T>::padded(m);
    for (int64_t at = begin; at < end; ++at) {
        double sum = 0;
        for (int64_t s = 0; s < segments; ++s) sum += parts[(s * k + at / m) * whole + at % m];
        out[at] = T(sum);
    }
}

}  // namespace spgnn::SPGNN_SET

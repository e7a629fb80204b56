// Row-wise maximum of the rows of X that a row's nonzeros name, with its argument, and the adjoint: tiles of columns of
// a row, which stay in registers.
#pragma once

#include "edge_tiles.h"

namespace spgnn::SPGNN_SET {

// Integers in lanes of V, and those of type I in memory: of 32 bits, or of 16, where NONE is no place.
template <class V, class I = int32_t>
struct Places {
    static constexpr int32_t NONE = int32_t(I(-1));
    typedef std::conditional_t<V::count == 1, int64_t, decltype(typename V::reg{} < typename V::reg{})> ints;
    typedef I narrow __attribute__((vector_size(sizeof(I) * V::count), aligned(sizeof(I)), may_alias));
    static inline __attribute__((always_inline)) ints all(int32_t x) { return x - ints{}; }
    static inline __attribute__((always_inline)) ints load(const I* p) {
        if constexpr (V::count == 1)
            return *p;
        else
            return __builtin_convertvector(*reinterpret_cast<const narrow*>(p), ints);
    }
    static inline __attribute__((always_inline)) void store(I* p, ints x) {
        if constexpr (V::count == 1)
            *p = I(x);
        else
            *reinterpret_cast<narrow*>(p) = __builtin_convertvector(x, narrow);
    }
};

// f(Tile, first column, offset of the last vector) for tiles that leave registers for three arrays of state.
template <class T, class F>
static inline void maximum_tiles(int64_t width, const F& f) {
    typedef Full<T> V;
    if (width >= V::count)
        tiles_of<V, (SPGNN_BYTES > 32 ? 4 : 2)>(width, f);
    else
        tiles_of<Lanes<T, 0>, 2>(width, f);
}

static inline void prefetch_rows(const void* row, int64_t bytes) {
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(static_cast<const char*>(row) + byte);
}

template <class SX, class I>
struct Largest {
    const int32_t *indices, *ranks;  // ranks null: in the order of places
    const SX* X;
    SX* out;
    I* arg;  // of 32 bits: offset + column; of 16: the place among the row's nonzeros
    int64_t width, offset, nnz;
    bool accumulate, positive;
};

// The largest entry of each column so far, its place, NONE for none, and the rank of that column: INT32_MAX for none.
// NaN is larger than all numbers; of equal entries the smallest rank counts. positive: of 0 and the entries, 0 first.
template <class V, int NV, class SX, class I>
static inline void maximum_tile(const Largest<SX, I>& p, int64_t row, int64_t first, int64_t stop, int64_t col,
                                int64_t to_last) {
    typedef typename Compute<SX>::type T;
    typedef Places<V, I> P;
    constexpr bool is_column = sizeof(I) == 4;
    const auto at = [&](int v) __attribute__((always_inline)) { return v < NV - 1 ? v * V::count : to_last; };
    const T least = p.positive ? T(0) : -std::numeric_limits<T>::infinity();
    const int32_t unranked = p.positive ? -1 : std::numeric_limits<int32_t>::max();
    SX* y = p.out + row * p.width + col;
    I* a = p.arg + row * p.width + col;
    typename V::reg best[NV];
    typename P::ints place[NV], rank[NV];
    for (int v = 0; v < NV; ++v) {
        best[v] = V::all(least);
        place[v] = P::all(P::NONE);
        rank[v] = P::all(unranked);
        if constexpr (is_column) {
            if (!p.accumulate) continue;
            place[v] = P::load(a + at(v));
            best[v] = place[v] < 0 ? best[v] : V::load(y + at(v));
            int32_t ranks[V::count];
            for (int64_t l = 0; l < V::count; ++l) {
                const int32_t to = a[at(v) + l];
                ranks[l] = to < 0 ? unranked : p.ranks ? p.ranks[to] : to;
            }
            rank[v] = Places<V>::load(ranks);
        }
    }
    for (int64_t e = first; e < stop; ++e) {
        const int64_t j = p.indices[e];
        if (!col && e + 16 < p.nnz) prefetch_rows(p.X + p.indices[e + 16] * p.width, p.width * int64_t(sizeof(SX)));
        const SX* x = p.X + j * p.width + col;
        const int32_t to = int32_t(p.offset + j);
        const auto its_place = P::all(is_column ? to : int32_t(e - first)),
                   its_rank = P::all(p.ranks ? p.ranks[to] : to);
        for (int v = 0; v < NV; ++v) {
            const auto value = V::load(x + at(v)), old = best[v];
            const auto is_nan = value != value, was_nan = old != old;
            const auto is_equal = (value == old) | (is_nan & was_nan);
            const auto is_taken = (value > old) | (is_nan & (old == old)) | (is_equal & (its_rank < rank[v]));
            best[v] = is_taken ? value : old;
            place[v] = is_taken ? its_place : place[v];
            rank[v] = is_taken ? its_rank : rank[v];
        }
    }
    for (int v = 0; v < NV; ++v) best[v] = place[v] == P::NONE ? typename V::reg{} : best[v];
    for (int v = 0; v < NV; ++v) {
        V::store(y + at(v), best[v]);
        P::store(a + at(v), place[v]);
    }
}

template <class SX, class I>
void maximum_rows(const Pattern& A, const SX* X, const int32_t* ranks, SX* out, I* arg, int64_t width, int64_t offset,
                  bool accumulate, bool positive, int64_t begin, int64_t end) {
    const Largest<SX, I> p{
        static_cast<const int32_t*>(A.indices), ranks, X, out, arg, width, offset, A.nnz, accumulate, positive};
    for (int64_t row = begin; row < end; ++row)
        maximum_tiles<typename Compute<SX>::type>(width, [&](auto tile, int64_t col, int64_t last) {
            typedef decltype(tile) Of;
            maximum_tile<typename Of::V, Of::NV>(p, row, A.indptr[row], A.indptr[row + 1], col, last);
        });
}

// dX_j = sum over the rows i of A that have column j where arg_i = offset + j; of the transpose, row j.
// places, of 16 bits: where arg_i has them, the place of each nonzero of the transpose among those of its row i.
template <class T, class I>
void maximum_adjoint_rows(const Pattern& A, const T* G, const I* arg, const I* places, T* dX, int64_t width,
                          int64_t offset, bool accumulate, int64_t begin, int64_t end) {
    const auto* indices = static_cast<const int32_t*>(A.indices);
    for (int64_t row = begin; row < end; ++row)
        maximum_tiles<T>(width, [&](auto tile, int64_t col, int64_t last) {
            typedef decltype(tile) Of;
            typedef typename Of::V V;
            typedef Places<V, I> P;
            constexpr int NV = Of::NV;
            const auto at = [&](int v) __attribute__((always_inline)) { return v < NV - 1 ? v * V::count : last; };
            auto place = P::all(int32_t(offset + row));
            T* d = dX + row * width + col;
            typename V::reg sum[NV] = {};
            if (accumulate)
                for (int v = 0; v < NV; ++v) sum[v] = V::load(d + at(v));
            for (int64_t e = A.indptr[row]; e < A.indptr[row + 1]; ++e) {
                if (!col && e + 12 < A.nnz) {
                    const int64_t later = indices[e + 12] * width;
                    prefetch_rows(arg + later, width * int64_t(sizeof(I)));
                    prefetch_rows(G + later, width * int64_t(sizeof(T)));
                }
                const int64_t here = indices[e] * width + col;
                if constexpr (sizeof(I) == 2) place = P::all(int32_t(places[e]));
                for (int v = 0; v < NV; ++v) {
                    const auto g = V::load(G + here + at(v)), zero = typename V::reg{};
                    sum[v] += P::load(arg + here + at(v)) == place ? g : zero;
                }
            }
            for (int v = 0; v < NV; ++v) V::store(d + at(v), sum[v]);
        });
}

}  // namespace spgnn::SPGNN_SET

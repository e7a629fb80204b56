// Row-wise maximum of the rows of X that a row's nonzeros name, with its argument, and the adjoint.
#pragma once

#include "isa.h"

namespace spgnn::SPGNN_SET {

// The columns that are gone through together: their state stays in registers or L1.
static constexpr int64_t MAXIMUM_TILE = 64;

// The largest entry of each column so far, its place, -1 for none, and the rank of that place: INT32_MAX for none.
// NaN is larger than all numbers; of equal entries the smallest rank counts.
template <class T, class SX>
struct Largest {
    T best[MAXIMUM_TILE];
    int32_t at[MAXIMUM_TILE], rank[MAXIMUM_TILE];

    void begin(const SX* y, const int32_t* a, const int32_t* ranks, int64_t width, bool accumulate) {
        for (int64_t f = 0; f < MAXIMUM_TILE; ++f) {
            const bool is_any = accumulate && f < width && a[f] >= 0;
            at[f] = is_any ? a[f] : -1;
            best[f] = is_any ? T(widen(y[f])) : -std::numeric_limits<T>::infinity();
            rank[f] = is_any ? (ranks ? ranks[a[f]] : a[f]) : std::numeric_limits<int32_t>::max();
        }
    }

    // WIDTH 0: of a tile that is not full.
    template <int64_t WIDTH>
    void take(const SX* __restrict x, int32_t place, int32_t its_rank, int64_t width) {
        for (int64_t f = 0; f < (WIDTH ? WIDTH : width); ++f) {
            const T value = widen(x[f]), old = best[f];
            const bool is_nan = value != value, was_nan = old != old;
            const bool is_more = !(value <= old) & !was_nan;
            const bool is_equal = (value == old) | (is_nan & was_nan);
            const bool is_taken = is_more | (is_equal & (its_rank < rank[f]));
            best[f] = is_taken ? value : old;
            at[f] = is_taken ? place : at[f];
            rank[f] = is_taken ? its_rank : rank[f];
        }
    }

    void end(SX* y, int32_t* a, int64_t width) const {
        for (int64_t f = 0; f < width; ++f) {
            narrow(at[f] < 0 ? T(0) : best[f], y[f]);
            a[f] = at[f];
        }
    }
};

template <class SX>
void maximum_rows(const Pattern& A, const SX* X, const int32_t* ranks, SX* out, int32_t* arg, int64_t width,
                  int64_t offset, bool accumulate, int64_t begin, int64_t end) {
    const int64_t* indptr = A.indptr;
    const auto* indices = static_cast<const int32_t*>(A.indices);
    Largest<typename Compute<SX>::type, SX> largest;
    for (int64_t from = 0; from < width; from += MAXIMUM_TILE) {
        const int64_t here = std::min(MAXIMUM_TILE, width - from);
        for (int64_t row = begin; row < end; ++row) {
            SX* y = out + row * width + from;
            int32_t* a = arg + row * width + from;
            largest.begin(y, a, ranks, here, accumulate);
            for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
                if (e + 16 < indptr[end]) {
                    const SX* later = X + int64_t(indices[e + 16]) * width + from;
                    for (int64_t f = 0; f < here; f += int64_t(64 / sizeof(SX))) __builtin_prefetch(later + f);
                }
                const SX* x = X + int64_t(indices[e]) * width + from;
                const int32_t place = int32_t(offset + int64_t(indices[e])), its_rank = ranks ? ranks[place] : place;
                if (here == MAXIMUM_TILE)
                    largest.template take<MAXIMUM_TILE>(x, place, its_rank, here);
                else
                    largest.template take<0>(x, place, its_rank, here);
            }
            largest.end(y, a, here);
        }
    }
}

// dX_j = sum over the rows i of A that have column j where arg_i = offset + j; of the transpose, row j.
template <class T>
void maximum_adjoint_rows(const Pattern& A, const T* G, const int32_t* arg, T* dX, int64_t width, int64_t offset,
                          bool accumulate, int64_t begin, int64_t end) {
    const int64_t* indptr = A.indptr;
    const auto* indices = static_cast<const int32_t*>(A.indices);
    for (int64_t row = begin; row < end; ++row) {
        T* __restrict d = dX + row * width;
        const int32_t place = int32_t(offset + row);
        if (!accumulate) std::fill_n(d, width, T(0));
        for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
            if (e + 12 < indptr[end]) {
                const int64_t later = int64_t(indices[e + 12]) * width;
                for (int64_t f = 0; f < width; f += 16) __builtin_prefetch(arg + later + f);
                for (int64_t f = 0; f < width; f += int64_t(64 / sizeof(T))) __builtin_prefetch(G + later + f);
            }
            const T* __restrict g = G + int64_t(indices[e]) * width;
            const int32_t* __restrict a = arg + int64_t(indices[e]) * width;
            for (int64_t f = 0; f < width; ++f) d[f] += a[f] == place ? g[f] : T(0);
        }
    }
}

}  // namespace spgnn::SPGNN_SET

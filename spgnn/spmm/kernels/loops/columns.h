// The columns of a product in tiles that stay in registers: rows(p, begin, end, width) calls sum_tile of rows.h or
// tiles.h for each of them.
#pragma once

#include "rows.h"
#include "tiles.h"

namespace spgnn::SPGNN_SET {

// Choose the tile with `vectors` accumulators at run time.
template <class V, int NV, bool WEIGHTED, class P>
static inline void choose_tile(int vectors, const P& p, int64_t begin, int64_t end, int64_t col, int64_t last) {
    if constexpr (NV > 1) {
        if (vectors < NV) return choose_tile<V, NV - 1, WEIGHTED>(vectors, p, begin, end, col, last);
    }
    sum_tile<V, NV, WEIGHTED>(p, begin, end, col, last);
}

// Rows [begin, end) at `width` columns from `col` on, at least one vector wide.
template <class V, int TILE, bool WEIGHTED, class P>
static inline void tile_columns(const P& p, int64_t begin, int64_t end, int64_t width) {
    constexpr int64_t lanes = V::count;
    const int64_t vectors = (width + lanes - 1) / lanes, tiles = (vectors + TILE - 1) / TILE;
    for (int64_t t = 0; t < tiles;
         ++t) {  // of nearly equal size: a tile of one vector is a whole row (TILE = 2 is for two vectors at most)
        const int64_t first = vectors * t / tiles, stop = vectors * (t + 1) / tiles;
        const int64_t col = first * lanes, right = std::min(stop * lanes, width);
        choose_tile<V, TILE, WEIGHTED>(int(stop - first), p, begin, end, col, right - lanes - col);
    }
}

template <bool WEIGHTED, class P>
static void rows_weighted(const P& p, int64_t begin, int64_t end, int64_t width) {
    typedef typename P::T T;
    constexpr int TILE = P::IS_COMMON ? SPGNN_TILE : 4;
    if (width * int64_t(sizeof(T)) >= SPGNN_BYTES)
        tile_columns<Lanes<T, SPGNN_BYTES>, TILE, WEIGHTED>(p, begin, end, width);
    else if (SPGNN_BYTES > 32 && width * sizeof(T) >= 32)
        tile_columns<Lanes<T, std::min(32, SPGNN_BYTES)>, 2, WEIGHTED>(p, begin, end, width);
    else if (SPGNN_BYTES > 16 && width * sizeof(T) >= 16)
        tile_columns<Lanes<T, 16>, 2, WEIGHTED>(p, begin, end, width);
    else
        tile_columns<Lanes<T, 0>, 4, WEIGHTED>(p, begin, end, width);
}

// Rows [begin, end) of Y.
template <class P>
void rows(const P& p, int64_t begin, int64_t end, int64_t width) {
    if (p.weights)
        rows_weighted<true>(p, begin, end, width);
    else
        rows_weighted<false>(p, begin, end, width);
}

}  // namespace spgnn::SPGNN_SET

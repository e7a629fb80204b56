// Y = A X (+ Y) over blocks of rows and the columns that come first in them, a few at a time: their rows of X stay in
// a cache while every row of the block takes what it has there.
#pragma once

#include "lanes.h"

namespace spgnn::SPGNN_SET {

// Nonzeros that are prefetched: tiles are read in order, but the processor does not detect that.
static constexpr int64_t TILES_AHEAD = 256;

// Columns [col, col + (NV - 1) lanes] of blocks [begin, end) and, as the last vector, the lanes that start at col +
// last.
template <class V, int NV, bool WEIGHTED, class SX, class SY>
__attribute__((noinline)) static void sum_tile(const Tiled<SX, SY>& p, int64_t begin, int64_t end, int64_t col,
                                               int64_t last) {
    const auto at = [last](int v) __attribute__((always_inline)) { return v < NV - 1 ? v * V::count : last; };
    for (const RowBlock* block = p.blocks + begin; block < p.blocks + end; ++block) {
        const uint8_t *count = p.counts + block->count, *index = p.indices + block->nonzero;
        const auto* weight = WEIGHTED ? p.weights + block->nonzero : nullptr;
        const int64_t stop = block[1].row;
        bool is_begun = p.accumulate;
        if (!block->tiles && !is_begun)
            for (int64_t i = block->row; i < stop; ++i)
                for (int v = 0; v < NV; ++v) V::store(p.Y + p.rows[i] * p.ldy + col + at(v), typename V::reg{});
        for (int64_t t = 0; t < block->tiles; ++t, is_begun = true) {
            const SX* X = p.X + t * TILE_COLUMNS * p.ldx + col;
            for (int64_t i = block->row; i < stop; ++i) {
                const int found = *count++;
                if (!found && is_begun) continue;
                __builtin_prefetch(index + TILES_AHEAD);
                if (WEIGHTED)
                    for (int byte = 0; byte < 128; byte += 64)
                        __builtin_prefetch(reinterpret_cast<const char*>(weight + TILES_AHEAD) + byte);
                SY* y = p.Y + p.rows[i] * p.ldy + col;
                typename V::reg sum[NV] = {};
                if (is_begun)
                    for (int v = 0; v < NV; ++v) sum[v] = V::load(y + at(v));
                for (int k = 0; k < found; ++k) {
                    const SX* x = X + index[k] * p.ldx;
                    for (int v = 0; v < NV; ++v) {
                        if (WEIGHTED)
                            sum[v] = plus<V, NV>(sum[v], V::all(weight[k]), V::load(x + at(v)));
                        else
                            sum[v] += V::load(x + at(v));
                    }
                }
                index += found;
                if (WEIGHTED) weight += found;
                for (int v = 0; v < NV; ++v) V::store(y + at(v), sum[v]);
            }
        }
    }
}

}  // namespace spgnn::SPGNN_SET

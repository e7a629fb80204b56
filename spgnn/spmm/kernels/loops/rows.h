// Y = A X (+ Y) (+ add) (+ bias) (then ReLU), A in CSR, X and Y row-major: one tile of columns of one row.
//
// A sum begins with the entry of Y and adds the nonzeros one by one in the order of A. So a product in several passes,
// or in the tiles of tiles.h, is bitwise identical.
#pragma once

#include "lanes.h"

namespace spgnn::SPGNN_SET {

// Prefetch distance in bytes of X, and the most nonzeros that this may be: the addresses are known
// long before, memory is far, and all must stay in L1 (48 KB: 8 to 16 KB are best, 12 KB 1.1 to 1.5 times as fast as
// 4).
static constexpr int64_t AHEAD_BYTES = 12 << 10, AHEAD_MOST = 128;

// Distance, in nonzeros, by which indices and weights are prefetched. They are read in order, but between so many other
// reads the processor does not detect that: 1.2 to 1.4 times as fast on R-MAT. Rows of Y are prefetched too, as many
// rows before they are written, unless they are narrow and in order. A prefetch beyond the end of an array is harmless.
static constexpr int64_t STREAM_AHEAD = 512, ROWS_AHEAD = 4;

// Rows of at least this many nonzeros are computed in blocks. The processor predicts the end of a shorter row, unless
// it has two nonzeros.
static constexpr int64_t LONG_ROW = 32;

// Columns [from, from + (NV - 1) lanes] of rows [begin, end) and, as the last vector, the lanes that start
// at from + to_last. Not inlined: each tile has the registers to itself, independent of its callers.
template <class V, int NV, bool WEIGHTED, class SX, class SY>
__attribute__((noinline)) static void sum_tile(const Product<SX, SY>& p, int64_t begin, int64_t end, int64_t from,
                                               int64_t to_last) {
    typedef Product<SX, SY> P;
    constexpr int BLOCK = NV == 1 ? 8
                          : NV <= 4
                              ? 4
                              : 1;  // nonzeros between two rounds of prefetches: narrow rows have few instructions
    constexpr int64_t SIZE = sizeof(typename P::Source), BYTES = NV * V::count * SIZE,
                      AHEAD = std::min(AHEAD_MOST, AHEAD_BYTES / BYTES);
    const int64_t* __restrict indptr = p.indptr, foreseen = p.nnz - AHEAD;
    // One vector is a whole row, as columns.h cuts tiles of equal size: its addresses are then known to the compiler.
    constexpr bool WHOLE = NV == 1;
    const int64_t col = WHOLE ? 0 : from, last = WHOLE ? 0 : to_last, ldx = WHOLE ? V::count : p.ldx,
                  ldy = WHOLE ? V::count : p.ldy;
    const auto* __restrict indices = p.indices;
    const auto* __restrict X = p.X + col;
    const typename P::T* __restrict weights = p.weights, *bias = p.bias ? p.bias + col : nullptr;
    const int64_t final_byte = (last + V::count) * SIZE - 1;  // of a row; it may lie in one line more
    const bool accumulate = p.accumulate, relu = p.relu;
    const auto place = [&](int64_t row) { return (p.rows ? p.rows[row] : row) * ldy + col; };
    for (int64_t row = begin; row < end; ++row) {
        typename V::reg sum[NV] = {};
        auto* y = p.Y + place(row);
        const auto* later = p.Y + place(std::min(row + ROWS_AHEAD, end - 1));
        if (NV > 1 || p.rows)
            for (int v = 0; v < NV; ++v) __builtin_prefetch(later + v * V::count, 1);
        if (accumulate)  // before the sum: products in several passes and in one then give the same bits
            for (int v = 0; v < NV; ++v) sum[v] = V::load(y + (v < NV - 1 ? v * V::count : last));
        const int64_t stop = indptr[row + 1];
        auto add = [&](int64_t e) __attribute__((always_inline)) {
            const auto* x = X + int64_t(indices[e]) * ldx;
            for (int v = 0; v < NV; ++v) {
                const auto part = V::load(x + (v < NV - 1 ? v * V::count : last));
                if (WEIGHTED)
                    sum[v] = plus<V, NV>(sum[v], V::all(weights[e]), part);
                else
                    sum[v] += part;
            }
        };
        auto ask = [&](int64_t e) __attribute__((always_inline)) {
            const char* next = reinterpret_cast<const char*>(X + int64_t(indices[e]) * ldx);
            for (int64_t byte = 0; byte < BYTES - 64; byte += 64) __builtin_prefetch(next + byte);
            if (BYTES > 64) __builtin_prefetch(next + BYTES / 64 * 64 - 64);
            __builtin_prefetch(next + final_byte);
        };
        auto ask_stream = [&](int64_t e) __attribute__((always_inline)) {
            __builtin_prefetch(indices + e + AHEAD + STREAM_AHEAD);
            if (WEIGHTED) __builtin_prefetch(weights + e + STREAM_AHEAD);
        };
        int64_t e = indptr[row];
        if (BLOCK > 1 && stop - e >= LONG_ROW)
            for (; e + BLOCK <= stop; e += BLOCK) {
                ask_stream(e);
                if (e + BLOCK <= foreseen)
#pragma GCC unroll 8
                    for (int u = 0; u < BLOCK; ++u) ask(e + u + AHEAD);
#pragma GCC unroll 8
                for (int u = 0; u < BLOCK; ++u) add(e + u);
            }
        if (BLOCK > 1) ask_stream(e);
        for (; e < stop; ++e) {
            if (BLOCK == 1) ask_stream(e);
            if (e < foreseen) ask(e + AHEAD);
            add(e);
        }
        if (p.add) {
            const auto* a = p.add + place(row);
            for (int v = 0; v < NV; ++v) sum[v] += V::load(a + (v < NV - 1 ? v * V::count : last));
        }
        if (bias)
            for (int v = 0; v < NV; ++v) sum[v] += V::load(bias + (v < NV - 1 ? v * V::count : last));
        if (relu)
            for (int v = 0; v < NV; ++v) sum[v] = positive<V>(sum[v]);
        for (int v = 0; v < NV; ++v) V::store(y + (v < NV - 1 ? v * V::count : last), sum[v]);
    }
}

}  // namespace spgnn::SPGNN_SET

// Dot products of features over the nonzeros of a pattern: out[e] = x_i . x_j for nonzero e = (i, j).
// Features are added up in the order of their columns in double, so that (i, j) and (j, i) are bitwise identical.
#pragma once

#include "cover.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace spgnn {

constexpr int64_t ROWS_A_TASK = 256;

// Call row(state, i) for each of n rows, some rows per task; make() returns the state of a thread.
template <class State, class Row>
void for_rows(int64_t n, int threads, const State& make, const Row& row) {
    in_parallel((n + ROWS_A_TASK - 1) / ROWS_A_TASK, threads, make, [&](auto& state, int64_t task) {
        for (int64_t i = task * ROWS_A_TASK; i < std::min(n, (task + 1) * ROWS_A_TASK); ++i) row(state, i);
    });
}

// x (n, f), rows one after the other.
template <class Real>
void dense_dots(const int64_t* indptr, const int64_t* indices, int64_t n, const Real* x, int64_t f, double* out,
                int threads) {
    for_rows(
        n, threads, [] { return 0; },
        [&](int, int64_t i) {
            const Real* mine = x + i * f;
            for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
                const Real* other = x + indices[e] * f;
                // Four sums: each is one chain of additions, in the same order for (i, j) and (j, i).
                double sum[4] = {0, 0, 0, 0};
                int64_t c = 0;
                for (; c + 4 <= f; c += 4)
                    for (int lane = 0; lane < 4; ++lane) sum[lane] += double(mine[c + lane]) * double(other[c + lane]);
                for (; c < f; ++c) sum[0] += double(mine[c]) * double(other[c]);
                out[e] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            }
        });
}

// x is CSR of n rows and f columns, columns sorted; a thread spreads out one row of it at a time.
template <class Real>
void sparse_dots(const int64_t* indptr, const int64_t* indices, int64_t n, const int64_t* x_indptr,
                 const int32_t* x_indices, const Real* x_data, int64_t f, double* out, int threads) {
    for_rows(
        n, threads, [&] { return std::vector<double>(f); },
        [&](std::vector<double>& mine, int64_t i) {
            if (indptr[i] == indptr[i + 1]) return;
            for (int64_t c = x_indptr[i]; c < x_indptr[i + 1]; ++c) mine[x_indices[c]] = double(x_data[c]);
            for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
                const int64_t j = indices[e];
                double sum = 0;
                for (int64_t c = x_indptr[j]; c < x_indptr[j + 1]; ++c) sum += mine[x_indices[c]] * double(x_data[c]);
                out[e] = sum;
            }
            for (int64_t c = x_indptr[i]; c < x_indptr[i + 1]; ++c) mine[x_indices[c]] = 0;
        });
}

}  // namespace spgnn

// Nets of the scheme `cover`: each nonzero (i, j) belongs to the raw row of j or to the partial sum of i,
// as the minimum cover of its block has it. No Python here.

#pragma once

#include <algorithm>
#include <vector>

#include "../../cover.h"

namespace spgnn {

// The readers of net e are readers[start[e]] .. ; node v has the nets per_vertex v ..
struct CoverNets {
    std::vector<int64_t> start;
    std::vector<int32_t> readers;
};

// A is n x n. If its pattern is symmetric, the cover of the block (p, q) mirrors that of (q, p): one
// net per node, each pair is a row in both directions. Otherwise two: net 2 j of the raw row of j, whose readers are
// rows; net 2 i + 1 of the partial sums of i, whose readers are columns and send. A nonzero inside a part
// belongs to its end of higher degree.
inline CoverNets cover_nets(const int64_t* indptr, const int32_t* indices, int32_t n, const int32_t* owner, int k,
                            bool is_symmetric, int threads) {
    std::vector<int32_t> reads(n, 0), read_by(n, 0);
    for (int32_t i = 0; i < n; ++i) {
        reads[i] = int32_t(indptr[i + 1] - indptr[i]);
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) ++read_by[indices[e]];
    }
    const ByPart nodes(owner, n, k);
    const int per_vertex = is_symmetric ? 1 : 2;
    std::vector<std::vector<std::pair<int32_t, int32_t>>> of_part(k);  // (net, reader)
    auto make = [&] { return std::make_pair(Block(n, n), Buckets()); };
    in_parallel(k, threads, make, [&](std::pair<Block, Buckets>& state, int64_t p) {
        auto& [block, mine] = state;
        auto& pairs = of_part[p];
        const int32_t* rows = nodes.of(p);
        // Of a symmetric matrix each pair of parts, and each edge inside one, is seen once.
        auto range_of = [&](int64_t j) { return is_symmetric && owner[j] < p ? int64_t(NONE) : int64_t(owner[j]); };
        mine.fill(indptr, indices, nodes.count(p), [&](int64_t i) { return rows[i]; }, range_of, k);
        auto raw = [&](int32_t j, int32_t i) { pairs.push_back({per_vertex * j, i}); };
        auto partial = [&](int32_t i, int32_t j) { pairs.push_back({is_symmetric ? i : 2 * i + 1, j}); };
        for (int64_t e = mine.start[p]; e < mine.start[p + 1]; ++e) {
            const int32_t i = rows[mine.row[e]], j = mine.column[e];
            if (i == j || (is_symmetric && i > j)) continue;
            if (read_by[j] >= reads[i])
                raw(j, i);
            else
                partial(i, j);
        }
        for (int q = 0; q < k; ++q) {
            const int64_t begin = mine.start[q], size = mine.start[q + 1] - begin;
            if (q == p || size == 0) continue;
            block.solve(mine.column.data() + begin, mine.row.data() + begin, size);
            const auto& columns = block.cover_columns;
            for (int64_t e = begin; e < begin + size; ++e) {
                const int32_t i = rows[mine.row[e]], j = mine.column[e];
                if (std::binary_search(columns.begin(), columns.end(), j))
                    raw(j, i);
                else
                    partial(i, j);
            }
        }
    });
    CoverNets nets;
    nets.start.assign(int64_t(n) * per_vertex + 1, 0);
    for (const auto& pairs : of_part) {
        for (auto [net, reader] : pairs) ++nets.start[net + 1];
    }
    for (size_t e = 1; e < nets.start.size(); ++e) nets.start[e] += nets.start[e - 1];
    nets.readers.resize(nets.start.back());
    std::vector<int64_t> next(nets.start.begin(), nets.start.end() - 1);
    for (const auto& pairs : of_part) {
        for (auto [net, reader] : pairs) nets.readers[next[net]++] = reader;
    }
    return nets;
}

}  // namespace spgnn

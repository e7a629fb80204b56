// The hypergraph on which volume is counted, and its coarsening inside parts. No Python here.
//
// A net has an owner vertex and reader vertices. Each part that holds a reader and not the owner costs
// one row, times the net's weight. Vertices are ordered by part.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "../../../native/mix.h"
#include "../../cover.h"

namespace spgnn {

struct Level {
    int32_t n = 0;                   // vertices
    std::vector<int64_t> work;       // of a vertex
    std::vector<int32_t> part;       // of a vertex
    std::vector<int64_t> own_start;  // v owns the nets own_start[v] .. own_start[v + 1] - 1
    std::vector<int32_t> owner;      // of a net
    std::vector<uint8_t> kind;       // of a net: 0: its owner sends; 1: its readers' parts send to the owner
    std::vector<float> weight;       // of a net: rows
    std::vector<int64_t> pin_start;  // the readers of net e are pins[pin_start[e]] .. , each once, not its owner
    std::vector<int32_t> pins;
    std::vector<int64_t> read_start;  // v reads the nets reads[read_start[v]] ..
    std::vector<int32_t> reads;
    std::vector<int32_t> cluster;  // of a vertex of the level below: its vertex here

    int32_t nets() const { return int32_t(owner.size()); }

    void add_net(int32_t of, uint8_t of_kind, float of_weight) {
        owner.push_back(of);
        kind.push_back(of_kind);
        weight.push_back(of_weight);
        pin_start.push_back(int64_t(pins.size()));
    }

    void transpose() {
        read_start.assign(n + 1, 0);
        for (int32_t v : pins) ++read_start[v + 1];
        for (int32_t v = 0; v < n; ++v) read_start[v + 1] += read_start[v];
        reads.resize(pins.size());
        std::vector<int64_t> next(read_start.begin(), read_start.end() - 1);
        for (int32_t e = 0; e < nets(); ++e) {
            for (int64_t i = pin_start[e]; i < pin_start[e + 1]; ++i) reads[next[pins[i]]++] = e;
        }
    }
};

// The nets of the graph: per_vertex per node, net e of node e / per_vertex with kind e % per_vertex.
// Node order[v] is vertex v. Self-loops and repeated readers are dropped.
inline Level base_level(const int64_t* start, const int32_t* readers, int per_vertex, const std::vector<int32_t>& order,
                        const int32_t* owner, const int64_t* work) {
    Level level;
    const int32_t n = level.n = int32_t(order.size());
    std::vector<int32_t> place(n), seen(n, NONE);
    for (int32_t v = 0; v < n; ++v) place[order[v]] = v;
    level.own_start.assign(1, 0);
    level.pin_start.assign(1, 0);
    level.pins.reserve(start[int64_t(n) * per_vertex]);
    for (int32_t v = 0; v < n; ++v) {
        level.work.push_back(work[order[v]]);
        level.part.push_back(owner[order[v]]);
        for (int kind = 0; kind < per_vertex; ++kind) {
            const int64_t net = int64_t(order[v]) * per_vertex + kind;
            for (int64_t i = start[net]; i < start[net + 1]; ++i) {
                const int32_t u = place[readers[i]];
                if (u == v || seen[u] == level.nets()) continue;
                seen[u] = level.nets();
                level.pins.push_back(u);
            }
            std::sort(level.pins.begin() + level.pin_start.back(), level.pins.end());
            level.add_net(v, uint8_t(kind), 1.0f);
        }
        level.own_start.push_back(level.nets());
    }
    level.transpose();
    return level;
}

// Halve the number of vertices: v joins the cluster c of its part that maximises
// sum over nets of v and c of (weight / size) / sqrt(work of c). Identical nets become one.
class Coarsener {
  public:
    Coarsener(const Level& fine, int k, int64_t most_work, uint64_t seed)
        : fine_(fine), most_work_(most_work), seed_(seed), head_(fine.n), first_(k + 1, 0) {
        for (int32_t p : fine.part) ++first_[p + 1];
        for (int p = 0; p < k; ++p) first_[p + 1] += first_[p];
    }

    Level run(int threads) {
        auto state = [&] { return State{std::vector<float>(fine_.n, 0.0f), {}, {}}; };
        in_parallel(int64_t(first_.size()) - 1, threads, state,
                    [&](State& s, int64_t p) { match(s, first_[p], first_[p + 1]); });
        Level coarse;
        coarse.cluster.assign(fine_.n, NONE);
        for (int32_t v = 0; v < fine_.n; ++v) {
            if (head_[v] == v) coarse.cluster[v] = coarse.n++;
        }
        coarse.work.assign(coarse.n, 0);
        coarse.part.assign(coarse.n, 0);
        for (int32_t v = 0; v < fine_.n; ++v) {
            const int32_t c = coarse.cluster[v] = coarse.cluster[head_[v]];
            coarse.work[c] += fine_.work[v];
            coarse.part[c] = fine_.part[v];
        }
        contract(coarse);
        return coarse;
    }

  private:
    static constexpr int64_t WINDOW = 16;  // readers of a net and part that are considered
    struct State {
        std::vector<float> rating;
        std::vector<int32_t> touched;
        std::vector<std::pair<uint64_t, int32_t>> order;
    };
    const Level& fine_;
    const int64_t most_work_;
    const uint64_t seed_;
    std::vector<int32_t> head_;   // per vertex: the vertex that represents its cluster
    std::vector<int32_t> first_;  // part p has the vertices first_[p] .. first_[p + 1] - 1

    void match(State& s, int32_t low, int32_t high) {
        std::vector<int64_t> work(fine_.work.begin() + low, fine_.work.begin() + high);
        std::vector<char> is_single(high - low, 1);
        s.order.clear();
        for (int32_t v = low; v < high; ++v) {
            head_[v] = v;
            s.order.push_back({hashed(seed_ ^ uint64_t(v) << 8), v});
        }
        std::sort(s.order.begin(), s.order.end());
        int32_t clusters = high - low;
        for (auto [key, v] : s.order) {
            if (2 * clusters <= high - low) break;
            if (!is_single[v - low]) continue;
            for (int64_t e = fine_.own_start[v]; e < fine_.own_start[v + 1]; ++e)
                rate(s, int32_t(e), key, v, low, high);
            for (int64_t i = fine_.read_start[v]; i < fine_.read_start[v + 1]; ++i)
                rate(s, fine_.reads[i], key, v, low, high);
            int32_t best = NONE;
            float most = 0.0f;
            for (int32_t c : s.touched) {
                const float r = s.rating[c] / std::sqrt(float(work[c - low]));
                s.rating[c] = 0.0f;
                if (c == v || work[c - low] + work[v - low] > most_work_) continue;
                if (r > most || (r == most && c < best)) {
                    most = r;
                    best = c;
                }
            }
            s.touched.clear();
            if (best == NONE) continue;
            head_[v] = best;
            work[best - low] += work[v - low];
            is_single[best - low] = is_single[v - low] = 0;
            --clusters;
        }
    }

    // Add the rating of net e to the clusters of its vertices in the part low .. high - 1.
    void rate(State& s, int32_t e, uint64_t key, int32_t v, int32_t low, int32_t high) {
        const int32_t *begin = fine_.pins.data() + fine_.pin_start[e],
                      *end = fine_.pins.data() + fine_.pin_start[e + 1];
        if (begin == end) return;
        const float r = fine_.weight[e] / float(end - begin);
        auto vote = [&](int32_t u) {
            const int32_t c = head_[u];
            if (s.rating[c] == 0.0f) s.touched.push_back(c);
            s.rating[c] += r;
        };
        if (fine_.owner[e] >= low && fine_.owner[e] < high) vote(fine_.owner[e]);
        // The readers of a part are contiguous, as vertices are.
        begin = std::partition_point(begin, end, [&](int32_t u) { return u < low; });
        if (end - begin > WINDOW) end = std::partition_point(begin, end, [&](int32_t u) { return u < high; });
        if (end - begin > WINDOW) begin += hashed(key + uint64_t(e)) % uint64_t(end - begin - WINDOW + 1);
        for (int64_t i = 0; begin + i < end && i < WINDOW && begin[i] < high; ++i) vote(begin[i]);
    }

    void contract(Level& coarse) {
        std::vector<int64_t> start(coarse.n + 1, 0);
        for (int32_t of : fine_.owner) ++start[coarse.cluster[of] + 1];
        for (int32_t c = 0; c < coarse.n; ++c) start[c + 1] += start[c];
        std::vector<int32_t> nets(fine_.nets()), seen(coarse.n, NONE);
        std::vector<int64_t> next(start.begin(), start.end() - 1);
        for (int32_t e = 0; e < fine_.nets(); ++e) nets[next[coarse.cluster[fine_.owner[e]]]++] = e;
        std::vector<std::pair<uint64_t, int32_t>> bins[BINS];
        coarse.own_start.assign(1, 0);
        coarse.pin_start.assign(1, 0);
        int32_t stamp = 0;
        for (int32_t c = 0; c < coarse.n; ++c) {
            for (int64_t i = start[c]; i < start[c + 1]; ++i) {
                const int32_t e = nets[i];
                uint64_t hash = fine_.kind[e];
                const size_t first = coarse.pins.size();
                for (int64_t j = fine_.pin_start[e]; j < fine_.pin_start[e + 1]; ++j) {
                    const int32_t u = coarse.cluster[fine_.pins[j]];
                    if (u == c || seen[u] == stamp) continue;
                    seen[u] = stamp;
                    hash += hashed(uint64_t(u));
                    coarse.pins.push_back(u);
                }
                auto& bin = bins[hash % BINS];
                const int32_t twin = coarse.pins.size() == first
                                         ? NONE
                                         : find_twin(coarse, bin, hash, fine_.kind[e], first, seen, stamp);
                ++stamp;
                if (coarse.pins.size() == first) continue;
                if (twin != NONE) {
                    coarse.weight[twin] += fine_.weight[e];
                    coarse.pins.resize(first);
                } else {
                    bin.push_back({hash, coarse.nets()});
                    coarse.add_net(c, fine_.kind[e], fine_.weight[e]);
                }
            }
            for (auto& bin : bins) bin.clear();
            coarse.own_start.push_back(coarse.nets());
        }
        coarse.transpose();
    }

    static constexpr size_t BINS = 32;

    // Return an earlier net with the same owner, kind and readers as the new one, or NONE. The readers of the new one
    // are the pins from `first` on, the vertices u with seen[u] == stamp.
    static int32_t find_twin(const Level& coarse, const std::vector<std::pair<uint64_t, int32_t>>& bin, uint64_t hash,
                             uint8_t kind, size_t first, const std::vector<int32_t>& seen, int32_t stamp) {
        for (auto [other_hash, other] : bin) {
            const int64_t begin = coarse.pin_start[other], end = coarse.pin_start[other + 1];
            if (other_hash != hash || coarse.kind[other] != kind || end - begin != int64_t(coarse.pins.size() - first))
                continue;
            if (std::all_of(coarse.pins.begin() + begin, coarse.pins.begin() + end,
                            [&](int32_t u) { return seen[u] == stamp; }))
                return other;
        }
        return NONE;
    }
};

}  // namespace spgnn

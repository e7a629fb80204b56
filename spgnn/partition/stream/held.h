// A graph that is held while streaming: all edges where they fit, else the heaviest pairs of clusters.
#pragma once

#include <numeric>

#include "edges.h"

namespace spgnn::stream {

// A symmetric graph as CSR, no self-loops: weight of each entry, number of nodes of each vertex; empty: all 1.
struct Level {
    Large<Id> start = {0}, to, weight, size;

    int64_t vertices() const { return int64_t(start.size()) - 1; }
    Id size_of(int64_t v) const { return size.empty() ? 1 : size[v]; }
};

// All neighbours of all nodes, each once, by id: the same for any order of the stream.
class Held {
  public:
    Held(const uint32_t* degree, int64_t n) : n_(n) {
        level_.start.resize(n + 1);
        for (int64_t v = 0; v < n; ++v) level_.start[v + 1] = level_.start[v] + degree[v];
        level_.to.resize(level_.start[n]);
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        largest_id(edges, n_, seen);
        Id *const at = level_.start.data(), *const to = level_.to.data();
        const size_t end = level_.to.size();
        for (int64_t e = 0; e < edges.size; ++e) {
            const Id u = Id(edges.u(e)), v = Id(edges.v(e));
            if (u == v) continue;
            if (std::max(at[u], at[v]) >= end) refuse(seen + e, u, v, "the edges that were counted");
            to[at[u]++] = v;
            to[at[v]++] = u;
        }
        seen += edges.size;
    }

    // Sort the neighbours, drop copies and return the number of entries left. Call it once, after the stream.
    int64_t finish() {
        Id first = 0, end = 0;
        for (int64_t v = 0; v < n_; ++v) {
            Id *const begin = level_.to.data() + first, *const last = level_.to.data() + level_.start[v];
            first = level_.start[v];
            if (!std::is_sorted(begin, last)) std::sort(begin, last);
            level_.start[v] = end;
            end = Id(std::unique_copy(begin, last, level_.to.data() + end) - level_.to.data());
        }
        level_.start.back() = end;
        level_.to.resize(end);
        level_.to.shrink_to_fit();
        return end;
    }

    Level take() { return std::move(level_); }

    void owners(const Large<uint16_t>& part, int64_t, int32_t* owner) const {
        std::copy(part.begin(), part.end(), owner);
    }

    int64_t nodes() const { return n_; }

    int64_t seen = 0;

  private:
    int64_t n_;
    Level level_;  // while edges are added, start[v] is where the next neighbour of v goes
};

// The graph of the clusters: how many edges each pair of clusters has. When the table is full, the median count is
// subtracted from all pairs and those at or below it are dropped (Misra & Gries): heavy pairs stay, memory is bounded.
class ClusterGraph {
  public:
    // cluster: of each node, 0 to count - 1; most: pairs that are kept.
    ClusterGraph(const int32_t* cluster, int64_t n, int64_t count, int64_t most) : cluster_(cluster), n_(n) {
        level_.size.resize(count);
        for (int64_t v = 0; v < n; ++v)
            if (cluster[v] >= 0) ++level_.size[cluster[v]];
        int64_t slots = 1024;
        while (slots * 3 / 4 < most) slots *= 2;
        if (slots * 3 / 4 > 3 * most / 2) slots /= 2;
        slots_.resize(slots);
        most_ = slots * 3 / 4;
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        largest_id(edges, n_, seen);
        for (int64_t e = 0; e < edges.size; ++e) {
            if (e + AHEAD < edges.size) {
                __builtin_prefetch(&cluster_[edges.u(e + AHEAD)]);
                __builtin_prefetch(&cluster_[edges.v(e + AHEAD)]);
            }
            if (e + AHEAD / 4 < edges.size) __builtin_prefetch(&slots_[place(edges, e + AHEAD / 4)], 1);
            const Id a = Id(cluster_[edges.u(e)]), b = Id(cluster_[edges.v(e)]);
            if (a == b) continue;
            put({std::min(a, b), std::max(a, b), 1});
            if (pairs_ > most_) thin();
        }
        seen += edges.size;
    }

    Level take() {
        const int64_t count = int64_t(level_.size.size());
        level_.start.assign(count + 1, 0);
        for (const Pair& pair : slots_)
            if (pair.edges) ++level_.start[pair.a], ++level_.start[pair.b];
        std::exclusive_scan(level_.start.begin(), level_.start.end(), level_.start.begin(), Id(0));
        level_.to.resize(2 * pairs_);
        level_.weight.resize(2 * pairs_);
        uint64_t edges = 0, halved = 0;  // weights are halved until all of them together fit into an Id
        for (const Pair& pair : slots_) edges += 2 * uint64_t(pair.edges);
        while (edges >> halved > NONE / 2) ++halved;
        const auto entry = [&](Id a, Id b, Id weight) {
            level_.to[level_.start[a]] = b;
            level_.weight[level_.start[a]++] = std::max(weight >> halved, Id(1));
        };
        for (const Pair& pair : slots_)
            if (pair.edges) entry(pair.a, pair.b, pair.edges), entry(pair.b, pair.a, pair.edges);
        std::copy_backward(level_.start.begin(), level_.start.end() - 1, level_.start.end());
        level_.start[0] = 0;
        Large<Pair>().swap(slots_);
        return std::move(level_);
    }

    int64_t nodes() const { return n_; }

    // The part of each node is its cluster's; nodes without a cluster go to the least loaded part.
    void owners(const Large<uint16_t>& part, int64_t k, int32_t* owner) const {
        Loads loads(k);
        for (int64_t v = 0; v < n_; ++v) {
            owner[v] = cluster_[v] < 0 ? -1 : part[cluster_[v]];
            if (owner[v] >= 0) loads.add(owner[v], 1);
        }
        for (int64_t v = 0; v < n_; ++v)
            if (owner[v] < 0) owner[v] = int32_t(loads.take());
    }

    int64_t seen = 0;

  private:
    struct Pair {
        Id a, b, edges;  // edges = 0: free
    };

    const int32_t* cluster_;
    int64_t n_, most_ = 0, pairs_ = 0;
    Large<Pair> slots_;  // open addressing, linear probing
    Level level_;

    static uint64_t spread(Id a, Id b) { return (uint64_t(a) << 32 | b) * 0x9e3779b97f4a7c15ull; }
    size_t slot(uint64_t key) const { return (key ^ key >> 32) & (slots_.size() - 1); }

    template <class Index>
    size_t place(const Edges<Index>& edges, int64_t e) const {
        const Id a = Id(cluster_[edges.u(e)]), b = Id(cluster_[edges.v(e)]);
        return slot(spread(std::min(a, b), std::max(a, b)));
    }

    void put(const Pair& pair) {
        size_t at = slot(spread(pair.a, pair.b));
        for (; slots_[at].edges; at = (at + 1) & (slots_.size() - 1))
            if (slots_[at].a == pair.a && slots_[at].b == pair.b) {
                slots_[at].edges += std::min(pair.edges, NONE - slots_[at].edges);
                return;
            }
        slots_[at] = pair;
        ++pairs_;
    }

    void thin() {
        Large<Pair> kept;
        kept.reserve(pairs_);
        for (Pair& pair : slots_)
            if (pair.edges) kept.push_back(pair), pair.edges = 0;
        const auto middle = kept.begin() + pairs_ / 2;
        std::nth_element(kept.begin(), middle, kept.end(), [](auto& x, auto& y) { return x.edges < y.edges; });
        const Id lost = middle->edges;
        pairs_ = 0;
        for (Pair& pair : kept)
            if (pair.edges > lost) put({pair.a, pair.b, pair.edges - lost});
    }
};

}  // namespace spgnn::stream

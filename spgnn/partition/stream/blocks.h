// spring+ on a graph that does not fit in memory: one block of nodes after the other is held with its neighbours, and
// each takes a pass over the stream. Nodes of a block join clusters, or move between parts, by the current clusters or
// parts of all their neighbours.
#pragma once

#include "multilevel.h"

namespace spgnn::stream {

class Blocks {
  public:
    // A block holds at most `entries` neighbours, and there are about `most` blocks. Nodes with many neighbours hold a
    // sample of them, so that this suffices.
    Blocks(const uint32_t* degree, int64_t n, int64_t entries, int64_t most, int64_t k, int64_t cap, uint64_t seed)
        : levels_(k, cap, seed), entries_(entries), salt_(hash(seed, 1)), kept_(n) {
        std::vector<int64_t> nodes(TOP + 1);
        for (int64_t v = 0; v < n; ++v) ++nodes[std::min(degree[v], TOP)];
        int64_t held = 0, above = n - nodes[0];
        uint32_t limit = 0;
        while (limit < std::min<int64_t>(TOP, entries) && held + above <= entries * most)
            held += above, above -= nodes[++limit];
        for (int64_t v = 0; v < n; ++v) kept_[v] = uint16_t(std::min(degree[v], std::max(limit, 1u)));
    }

    // Begin the next block; false after the last, and the next call begins a round.
    bool next() {
        const int64_t n = nodes();
        first_ = last_;
        if (first_ == n) return last_ = 0, false;
        int64_t held = 0;
        while (last_ < n && (last_ == first_ || held + kept_[last_] <= entries_)) held += kept_[last_++];
        Large<Id>().swap(block_.start);
        Large<Id>().swap(seen_);
        block_.start.resize(last_ - first_ + 1);
        for (int64_t v = first_; v < last_; ++v) block_.start[v - first_ + 1] = block_.start[v - first_] + kept_[v];
        block_.to.reserve(entries_);  // once: pages that are not written take no memory
        block_.to.assign(held, 0);
        seen_.assign(last_ - first_, 0);
        seen = 0;
        return true;
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        largest_id(edges, nodes(), seen);
        const Id first = Id(first_), size = Id(last_ - first_);
        for (int64_t e = 0; e < edges.size; ++e) {
            const Id u = Id(edges.u(e)), v = Id(edges.v(e));
            if (u == v) continue;
            if (u - first < size) put(u - first, v);
            if (v - first < size) put(v - first, u);
        }
        seen += edges.size;
    }

    // Nodes of the block join clusters of at most `most` nodes.
    void join(int64_t most) {
        Large<Id>().swap(seen_);
        if (cluster_.empty()) {
            cluster_.resize(nodes());
            std::iota(cluster_.begin(), cluster_.end(), Id(0));
            size_.assign(nodes(), 1);
        }
        levels_.join(block_, first_, cluster_, size_, most);
    }

    // Number the clusters 0, 1, ... by their first nodes and return how many there are; -1 for nodes without edges.
    int64_t clusters(int32_t* number) {
        block_ = {};
        levels_.forget();
        std::fill(size_.begin(), size_.end(), NONE);
        Id count = 0;
        for (int64_t v = 0; v < nodes(); ++v) {
            number[v] = -1;
            if (!kept_[v]) continue;
            Id& of = size_[cluster_[v]];
            if (of == NONE) of = count++;
            number[v] = int32_t(of);
        }
        Large<Id>().swap(cluster_);
        Large<Id>().swap(size_);
        return count;
    }

    // Begin moves from these parts.
    void start(const int32_t* owner, int64_t k) {
        part_.resize(nodes());
        for (int64_t v = 0; v < nodes(); ++v) {
            if (owner[v] < 0 || owner[v] >= k) throw std::invalid_argument("an owner is not a part");
            part_[v] = uint16_t(owner[v]);
        }
        levels_.set_loads(part_);
    }

    // Move nodes of the block, `sweeps` times, with parts of at most `limit` nodes; noise as in Multilevel.
    void move(int64_t sweeps, int64_t limit, int64_t noise) {
        Large<Id>().swap(seen_);
        for (int64_t s = 0; s < sweeps; ++s) levels_.sweep(block_, first_, part_, limit, noise);
    }

    void owners(int32_t* owner) { levels_.owners(part_, owner); }

    int64_t nodes() const { return int64_t(kept_.size()); }

    int64_t seen = 0;

  private:
    static constexpr uint32_t TOP = std::numeric_limits<uint16_t>::max();

    Multilevel levels_;
    int64_t entries_, first_ = 0, last_ = 0;
    uint64_t salt_;
    Large<uint16_t> kept_, part_;  // of each node: neighbours that are held; its part
    Large<Id> cluster_, size_;
    Large<Id> seen_;  // of each node of the block: neighbours so far
    Level block_;

    // The neighbours that are held are a sample in which each is equally likely (Vitter's algorithm R).
    void put(Id v, Id neighbour) {
        const Id kept = kept_[first_ + v], nth = seen_[v]++;
        Id slot = nth;
        if (nth >= kept) slot = Id((hash(salt_, uint64_t(v) << 32 | nth) >> 32) * (uint64_t(nth) + 1) >> 32);
        if (slot < kept) block_.to[block_.start[v] + slot] = neighbour;
    }
};

}  // namespace spgnn::stream

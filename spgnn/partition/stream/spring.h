// SPRING: streaming clustering, merging by the richest neighbour, largest clusters first to the least loaded part.
// Source: SDT-GNN, Algorithm 1; Hollocou et al. 2017. Line numbers are those of the algorithm.
#pragma once

#include "edges.h"

namespace spgnn::stream {

class Spring {
  public:
    // degree: d(v) of each node, null where degrees are counted on the way; n, most: as in Degrees.
    Spring(const uint32_t* degree, int64_t n, double volume_limit, int64_t most)
        : is_online_(degree == nullptr), volume_limit_(volume_limit), limit_(n >= 0 ? n : std::min(most, MOST_NODES)) {
        if (n > MOST_NODES) throw std::invalid_argument("2^31 nodes or more are too many");
        nodes_.resize(std::max<int64_t>(n, 0));
        volume_.reserve(nodes_.size());
        if (degree)
            for (int64_t v = 0; v < n; ++v) nodes_[v].degree = degree[v];
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        const int64_t largest = largest_id(edges, limit_, seen);
        if (largest >= nodes()) nodes_.resize(largest + 1);
        is_online_ ? cluster<true>(edges) : cluster<false>(edges);
        seen += edges.size;
    }

    int64_t nodes() const { return int64_t(nodes_.size()); }

    // Merge the clusters and give each node its part. Call it once, after the stream.
    void partition(int64_t k, double balance, int32_t* owner) {
        number_clusters();
        const double most = balance * double(nodes_.size()) / double(k);
        merge(most);
        for (int64_t v = 0; v < nodes(); ++v) owner[v] = nodes_[v].cluster == NONE ? -1 : int32_t(nodes_[v].cluster);
        const int64_t n = nodes();
        Large<Node>().swap(nodes_);
        assign(k, most, owner, n);
    }

    Large<uint32_t> sizes_before, sizes_after;  // nodes of each cluster, before and after merging
    int64_t seen = 0;

  private:
    struct Node {
        Id cluster = NONE;
        uint32_t degree = 0;
        Id richest = NONE;            // n_v
        uint32_t richest_degree = 0;  // d(n_v), here so that the test costs no other node's line
    };

    bool is_online_;
    double volume_limit_;
    int64_t limit_;
    Large<Node> nodes_;
    Large<int64_t> volume_;
    Large<Id> root_, representative_;
    Large<uint32_t> size_;

    static constexpr int64_t AHEAD = 48;
    static constexpr Id SETTLED = Id(1) << 31;  // a bit of Node::cluster; NONE has it too

    // Lines 2-17. Self-loops say nothing about clusters and are passed over. A cluster above the limit neither takes nor
    // loses nodes any more, so its nodes are settled: most edges then touch no volume.
    template <bool online, class Index>
    void cluster(const Edges<Index>& edges) {
        Node* const node = nodes_.data();
        for (int64_t e = 0; e < edges.size; ++e) {
            if (e + AHEAD < edges.size) {
                __builtin_prefetch(&node[edges.u(e + AHEAD)], 1);
                __builtin_prefetch(&node[edges.v(e + AHEAD)], 1);
            }
            const Id u = Id(edges.u(e)), v = Id(edges.v(e));
            if (u == v) continue;
            Node &a = node[u], &b = node[v];
            if (online) {
                ++a.degree;
                ++b.degree;
                if (a.cluster < SETTLED) ++volume_[a.cluster];
                if (b.cluster < SETTLED) ++volume_[b.cluster];
            }
            if (a.cluster == NONE) found(a);
            if (b.cluster == NONE) found(b);
            if ((a.cluster | b.cluster) < SETTLED && a.cluster != b.cluster) join(a, b);
            if (a.richest_degree < b.degree) a.richest = v, a.richest_degree = b.degree;
            if (b.richest_degree < a.degree) b.richest = u, b.richest_degree = a.degree;
        }
    }

    // Lines 9-15.
    void join(Node& a, Node& b) {
        int64_t &of_a = volume_[a.cluster], &of_b = volume_[b.cluster];
        const bool a_is_full = double(of_a) > volume_limit_, b_is_full = double(of_b) > volume_limit_;
        if (a_is_full || b_is_full) {
            a.cluster |= a_is_full ? SETTLED : 0;
            b.cluster |= b_is_full ? SETTLED : 0;
        } else if (of_a <= of_b) {
            of_a -= a.degree, of_b += a.degree, a.cluster = b.cluster;
        } else {
            of_b -= b.degree, of_a += b.degree, b.cluster = a.cluster;
        }
    }

    void found(Node& node) {
        node.cluster = Id(volume_.size());
        volume_.push_back(node.degree);
    }

    // Number the clusters that are not empty 0, 1, ... in the order in which they were founded.
    void number_clusters() {
        Large<Id> number(volume_.size(), NONE);
        Large<int64_t>().swap(volume_);
        for (Node& node : nodes_) {
            if (node.cluster == NONE) continue;
            node.cluster &= ~SETTLED;
            number[node.cluster] = 0;
        }
        Id next = 0;
        for (Id& c : number)
            if (c != NONE) c = next++;
        size_.assign(next, 0);
        representative_.assign(next, NONE);
        for (int64_t v = 0; v < nodes(); ++v) {  // lines 18-20: r(c), ties to the lowest id
            Node& node = nodes_[v];
            if (node.cluster == NONE) continue;
            node.cluster = number[node.cluster];
            ++size_[node.cluster];
            Id& r = representative_[node.cluster];
            if (r == NONE || nodes_[r].richest_degree < node.richest_degree) r = Id(v);
        }
        sizes_before = size_;
    }

    Id root(Id c) {
        while (root_[c] != c) c = root_[c] = root_[root_[c]];
        return c;
    }

    // Lines 21-25. The merged cluster goes back to its rank, so that the smallest is always the next; ties to the lowest number.
    // Sizes only grow: an entry whose cluster has grown meanwhile is put back with the size that it has now.
    void merge(double most) {
        root_.resize(size_.size());
        Large<uint64_t> sorted(size_.size());
        for (size_t c = 0; c < size_.size(); ++c) {
            root_[c] = Id(c);
            sorted[c] = uint64_t(size_[c]) << 32 | c;
        }
        std::sort(sorted.begin(), sorted.end());
        std::vector<bool> is_queued(size_.size(), true);
        std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<uint64_t>> grown;
        for (size_t next = 0; next < sorted.size() || !grown.empty();) {
            const bool is_first = next < sorted.size() && (grown.empty() || sorted[next] < grown.top());
            const uint64_t entry = is_first ? sorted[next++] : grown.top();
            if (!is_first) grown.pop();
            const Id i = Id(entry);
            is_queued[i] = false;
            if (root_[i] != i) continue;
            auto enqueue = [&](Id c) {
                if (!is_queued[c]) grown.push(uint64_t(size_[c]) << 32 | c);
                is_queued[c] = true;
            };
            if (size_[i] != entry >> 32) {
                enqueue(i);
                continue;
            }
            const Id richest = nodes_[representative_[i]].richest;
            const Id t = richest == NONE ? i : root(nodes_[richest].cluster);
            if (t == i || double(size_[i]) + double(size_[t]) > most) continue;
            root_[i] = t;
            size_[t] += size_[i];
            size_[i] = 0;
            Id &of_t = representative_[t], of_i = representative_[i];
            if (nodes_[of_t].richest_degree < nodes_[of_i].richest_degree) of_t = of_i;
            enqueue(t);
        }
        Large<Id>().swap(representative_);
        for (size_t c = 0; c < root_.size(); ++c) root(Id(c));
        for (uint32_t size : size_)
            if (size) sizes_after.push_back(size);
    }

    // Lines 26-29, ties to the lowest number. Beyond the paper: a cluster that does not fit into the least loaded part is
    // taken apart into the clusters that were merged, and one of those into its nodes, so that balance is kept;
    // nodes without an edge come last. owner comes with the cluster of each node, and leaves with its part.
    void assign(int64_t k, double most, int32_t* owner, int64_t n) {
        const size_t clusters = root_.size();
        Large<Id> order, first(clusters, NONE), next(clusters, NONE);
        for (size_t c = clusters; c-- > 0;) {
            const Id r = root(Id(c));
            next[c] = first[r];
            first[r] = Id(c);
            if (r == c) order.push_back(Id(c));
        }
        auto largest_first = [](const Large<uint32_t>& size) {
            return [&size](Id a, Id b) { return size[a] != size[b] ? size[a] > size[b] : a < b; };
        };
        std::sort(order.begin(), order.end(), largest_first(size_));
        Loads loads(k);
        Large<int32_t> part(clusters, -1);
        Large<Id> pieces;
        auto fits = [&](int64_t p, uint32_t size) { return double(loads[p] + size) <= most; };
        for (Id r : order) {
            int64_t t = loads.least();
            const bool whole = fits(t, size_[r]);
            pieces.clear();
            for (Id c = first[r]; c != NONE; c = next[c]) pieces.push_back(c);
            if (!whole) std::sort(pieces.begin(), pieces.end(), largest_first(sizes_before));
            for (Id c : pieces) {
                if (!whole && !fits(t, sizes_before[c])) t = loads.least();
                if (!whole && !fits(t, sizes_before[c])) continue;
                part[c] = int32_t(t);
                loads.add(t, sizes_before[c]);
            }
        }
        for (int64_t v = 0; v < n; ++v) owner[v] = owner[v] < 0 ? -1 : part[owner[v]];
        for (int64_t v = 0; v < n; ++v) {
            if (owner[v] >= 0) continue;
            owner[v] = int32_t(loads.least());
            loads.add(owner[v], 1);
        }
    }
};

}  // namespace spgnn::stream

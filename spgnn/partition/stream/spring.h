// SPRING: streaming clustering, merging by the richest neighbour, largest clusters first to the least loaded part.
// Source: SDT-GNN, Algorithm 1; Hollocou et al. 2017. Line numbers are the algorithm's.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "edges.h"

namespace spgnn::stream {

// A test, from 4 bytes per node, whether an edge of the stream can still change a cluster. Most edges cannot. These
// summaries fit in a cache; the nodes themselves, 16 bytes each, do not.
//
// For a node v whose degree d(v) is known: whether its cluster is settled, the degree of its richest neighbour n_v
// rounded down, plus 1 (0: no cluster yet), and d(v) rounded up.
class NodeSummary {
  public:
    NodeSummary() = default;
    explicit NodeSummary(uint32_t degree) : word_(rounded_up(degree)) {}

    void set(bool is_settled, uint32_t richest_degree) {
        word_ = (rounded_down(richest_degree) + 1) << SHIFT | (is_settled ? SETTLED : 0) | (word_ & MASK);
    }

    // True for an edge that founds no cluster, moves no node and gives neither end a richer neighbour. Clusters stay
    // founded and settled and d(n_v) only grows, so an idle edge stays idle, and an outdated summary never calls a
    // useful edge idle.
    static bool is_idle(NodeSummary a, NodeSummary b) {
        return (((a.word_ | b.word_) & SETTLED) != 0) & (a.word_ >> SHIFT > (b.word_ & MASK)) &
               (b.word_ >> SHIFT > (a.word_ & MASK));
    }

  private:
    static constexpr int SHIFT = 16, FRACTION = 10;
    static constexpr uint32_t SETTLED = 1u << 15, MASK = SETTLED - 1;
    uint32_t word_ = 0;

    // A floating-point number of FRACTION bits, exact below 2^(FRACTION + 1) and rising with x: at most 23,551.
    static int exponent(uint32_t x) { return 31 - FRACTION - __builtin_clz(x | ((2u << FRACTION) - 1)); }
    static uint32_t rounded_down(uint32_t x) { return (uint32_t(exponent(x)) << FRACTION) + (x >> exponent(x)); }
    static uint32_t rounded_up(uint32_t x) { return rounded_down(x) + ((x & ((1u << exponent(x)) - 1)) != 0); }
};

class Spring {
  public:
    // degree: d(v) of each node, null if degrees are counted on the way; n, most: as in Degrees.
    Spring(const uint32_t* degree, int64_t n, double volume_limit, int64_t most)
        : is_online_(degree == nullptr), volume_limit_(volume_limit), limit_(n >= 0 ? n : std::min(most, MOST_NODES)) {
        if (n > MOST_NODES) throw std::invalid_argument("2^31 nodes or more are too many");
        nodes_.resize(std::max<int64_t>(n, 0));
        volume_.reserve(nodes_.size());
        if (!degree) return;
        summaries_.reserve(n);
        for (int64_t v = 0; v < n; ++v) {
            nodes_[v].degree = degree[v];
            summaries_.push_back(NodeSummary(degree[v]));
        }
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        const int64_t largest = largest_id(edges, limit_, seen);
        if (largest >= nodes()) nodes_.resize(largest + 1);
        for (int64_t first = 0; first < edges.size; first += BLOCK) {
            const int64_t size = std::min(BLOCK, edges.size - first);
            const Edges<Index> block{edges.ids + 2 * first, size};
            if (is_online_) {
                cluster<true>(block, size, [](int64_t e) { return e; });
            } else if (unsifted_ > 0) {
                --unsifted_;
                cluster<false>(block, size, [](int64_t e) { return e; });
            } else {
                const int64_t left = sift(block);
                if (left > size / 2) unsifted_ = REST;
                cluster<false>(block, left, [this](int64_t i) { return left_[i]; });
            }
        }
        seen += edges.size;
    }

    int64_t nodes() const { return int64_t(nodes_.size()); }

    // Give each node the number of its cluster, -1 for none. Call it or partition once, after the stream.
    void clusters(int32_t* number) {
        Large<NodeSummary>().swap(summaries_);
        number_clusters(number);
        sizes_before = size_;
    }

    // Merge the clusters and give each node its part.
    void partition(int64_t k, double balance, int32_t* owner) {
        const int64_t n = nodes();
        clusters(owner);
        const double most = balance * double(n) / double(k);
        merge(most);
        assign(k, most, owner, n);
    }

    Large<uint32_t> sizes_before, sizes_after;  // nodes of each cluster, before and after merging
    int64_t seen = 0;

  private:
    struct Node {
        Id cluster = NONE;
        uint32_t degree = 0;
        Id richest = NONE;            // n_v
        uint32_t richest_degree = 0;  // d(n_v), stored here to save a cache miss; online: as it was when n_v
                                      // became the richest
    };

    bool is_online_;
    double volume_limit_;
    int64_t limit_;
    Large<Node> nodes_;
    Large<NodeSummary> summaries_;  // of each node, unless degrees are counted on the way
    Large<int64_t> volume_;
    Large<Id> root_, target_;        // per cluster: the one it was merged into; that of r(c)'s richest neighbour
    Large<uint32_t> size_, degree_;  // per cluster: its nodes; the degree of that neighbour

    static constexpr int64_t BLOCK = 4096, REST = 8;
    static constexpr Id SETTLED = Id(1) << 31;  // a bit of Node::cluster; NONE has it too
    int64_t unsifted_ = 0;                      // blocks taken unsifted, since most edges of one were not idle
    int32_t left_[BLOCK];

    // List the edges of a block that are not idle and return their number.
    template <class Index>
    int64_t sift(const Edges<Index>& edges) {
        const NodeSummary* const summary = summaries_.data();
        int64_t left = 0;
        const auto look = [&](int64_t e) {
            left_[left] = int32_t(e);
            left += !NodeSummary::is_idle(summary[Id(edges.u(e))], summary[Id(edges.v(e))]);
        };
        int64_t e = 0;
        for (; e + AHEAD < edges.size; ++e) {
            __builtin_prefetch(&summary[Id(edges.u(e + AHEAD))]);
            __builtin_prefetch(&summary[Id(edges.v(e + AHEAD))]);
            look(e);
        }
        for (; e < edges.size; ++e) look(e);
        return left;
    }

    // Lines 2-17 for the edges at(0), at(1), ... at(count - 1). Self-loops are skipped. A cluster above
    // the limit neither takes nor loses nodes, so its nodes are settled and change no volume.
    template <bool online, class Index, class At>
    void cluster(const Edges<Index>& edges, int64_t count, At at) {
        Node* const node = nodes_.data();
        for (int64_t i = 0; i < count; ++i) {
            const int64_t ahead = at(std::min(i + AHEAD / 2, count - 1)), e = at(i);
            __builtin_prefetch(&node[edges.u(ahead)], 1);
            __builtin_prefetch(&node[edges.v(ahead)], 1);
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
            if (online) continue;
            summaries_[u].set(a.cluster & SETTLED, a.richest_degree);
            summaries_[v].set(b.cluster & SETTLED, b.richest_degree);
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

    // Number the clusters that are not empty 0, 1, ... in the order in which they were founded, and store for each
    // its number of nodes, the degree of their richest neighbour, and the cluster of this neighbour of r(c)
    // (lines 18-20; ties to the lowest id). Nodes are read by id, their clusters in any order, so clusters are
    // prefetched. number gets that of each node's cluster, -1 for none; nothing else of the nodes is needed later.
    void number_clusters(int32_t* number) {
        struct Found {
            uint32_t size = 0, degree = 0;  // size is replaced by the number later, NONE if empty
            Id target = NONE;
        };
        const int64_t founded = int64_t(volume_.size()), n = nodes();
        Large<int64_t>().swap(volume_);
        Large<Found> found(founded);
        for (int64_t v = 0; v < n; ++v) {
            if (v + AHEAD < n && nodes_[v + AHEAD].cluster != NONE)
                __builtin_prefetch(&found[nodes_[v + AHEAD].cluster & ~SETTLED], 1);
            const Node& node = nodes_[v];
            if (node.cluster == NONE) continue;
            Found& of = found[node.cluster & ~SETTLED];
            ++of.size;
            of.degree = std::max(of.degree, node.richest_degree);
        }
        int64_t count = 0;
        for (const Found& of : found) count += of.size > 0;
        size_.reserve(count);
        for (Found& of : found) {
            if (of.size == 0) {
                of.size = NONE;
                continue;
            }
            size_.push_back(of.size);
            of.size = uint32_t(size_.size() - 1);
        }
        for (int64_t v = 0; v < n; ++v) {
            if (v + AHEAD < n && nodes_[v + AHEAD].cluster != NONE)
                __builtin_prefetch(&found[nodes_[v + AHEAD].cluster & ~SETTLED], 1);
            const Node& node = nodes_[v];
            number[v] = -1;
            if (node.cluster == NONE) continue;
            Found& of = found[node.cluster & ~SETTLED];
            number[v] = int32_t(of.size);
            if (node.richest_degree == of.degree && of.target == NONE) of.target = node.richest;
        }
        Large<Node>().swap(nodes_);
        degree_.reserve(count);
        target_.reserve(count);
        for (const Found& of : found) {
            if (of.size == NONE) continue;
            degree_.push_back(of.degree);
            target_.push_back(of.target);
        }
        for (int64_t c = 0; c < count; ++c) {
            if (c + AHEAD < count && target_[c + AHEAD] != NONE) __builtin_prefetch(&number[target_[c + AHEAD]]);
            target_[c] = target_[c] == NONE ? Id(c) : Id(number[target_[c]]);
        }
    }

    Id root(Id c) {
        while (root_[c] != c) c = root_[c] = root_[root_[c]];
        return c;
    }

    // (size, number) of each cluster as one word, rising. Nearly all clusters are small: those are counted and put in
    // place.
    Large<uint64_t> by_size() const {
        constexpr uint32_t SMALL = 1024;
        std::array<size_t, SMALL + 1> at{};
        for (uint32_t size : size_) ++at[std::min(size, SMALL)];
        std::exclusive_scan(at.begin(), at.end(), at.begin(), size_t(0));
        const size_t large = at[SMALL];
        Large<uint64_t> sorted(size_.size());
        for (size_t c = 0; c < size_.size(); ++c)
            sorted[at[std::min(size_[c], SMALL)]++] = uint64_t(size_[c]) << 32 | c;
        std::sort(sorted.begin() + large, sorted.end());
        return sorted;
    }

    // Lines 21-25. The merged cluster goes back to its rank, so that the smallest is always the next; ties to the
    // lowest number. Sizes only grow: an entry whose cluster has grown meanwhile is put back with its new size.
    void merge(double most) {
        root_.resize(size_.size());
        std::iota(root_.begin(), root_.end(), Id(0));
        const Large<uint64_t> sorted = by_size();
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
            const Id t = root(target_[i]);
            if (t == i || double(size_[i]) + double(size_[t]) > most) continue;
            root_[i] = t;
            size_[t] += size_[i];
            size_[i] = 0;
            if (degree_[t] < degree_[i]) degree_[t] = degree_[i], target_[t] = target_[i];
            enqueue(t);
        }
        Large<Id>().swap(target_);
        Large<uint32_t>().swap(degree_);
        for (size_t c = 0; c < root_.size(); ++c) root_[c] = root(Id(c));
        for (uint32_t size : size_)
            if (size) sizes_after.push_back(size);
    }

    // Lines 26-29, ties to the lowest number. Beyond the paper: a cluster that does not fit into the least loaded part
    // is split into the clusters that were merged, and one of those into its nodes, so that the balance holds;
    // nodes without an edge come last. owner holds the cluster of each node before and its part after.
    void assign(int64_t k, double most, int32_t* owner, int64_t n) {
        const size_t clusters = root_.size();
        // The clusters that were merged into r are members[end[r - 1]] to members[end[r] - 1].
        Large<Id> order, end(clusters, 0), members(clusters);
        for (Id r : root_) ++end[r];
        Id before = 0;
        for (size_t c = 0; c < clusters; ++c) {
            if (end[c] > 0) order.push_back(Id(c));
            before += std::exchange(end[c], before);
        }
        for (size_t c = 0; c < clusters; ++c) members[end[root_[c]]++] = Id(c);
        auto largest_first = [](const Large<uint32_t>& size) {
            return [&size](Id a, Id b) { return size[a] != size[b] ? size[a] > size[b] : a < b; };
        };
        std::sort(order.begin(), order.end(), largest_first(size_));
        Loads loads(k);
        Large<int32_t> part(clusters, -1);
        std::vector<bool> is_whole(clusters);
        auto fits = [&](int64_t p, uint32_t size) { return double(loads[p] + size) <= most; };
        for (Id r : order) {
            int64_t t = loads.least();
            is_whole[r] = fits(t, size_[r]);
            if (is_whole[r]) {
                part[r] = int32_t(t);
                loads.add(t, size_[r]);
                continue;
            }
            const auto first = members.begin() + (r > 0 ? end[r - 1] : 0), last = members.begin() + end[r];
            std::sort(first, last, largest_first(sizes_before));
            for (auto c = first; c != last; ++c) {
                if (!fits(t, sizes_before[*c])) t = loads.least();
                if (!fits(t, sizes_before[*c])) continue;
                part[*c] = int32_t(t);
                loads.add(t, sizes_before[*c]);
            }
        }
        for (size_t c = 0; c < clusters; ++c)
            if (is_whole[root_[c]]) part[c] = part[root_[c]];
        for (int64_t v = 0; v < n; ++v) {
            const int32_t p = owner[v] < 0 ? -1 : part[owner[v]];
            owner[v] = p < 0 ? int32_t(loads.take()) : p;
        }
    }
};

}  // namespace spgnn::stream

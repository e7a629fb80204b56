// spring+: passes over the stream with a sketch of the neighbours' parts per node; a node moves when its last edge of
// the pass was seen. Sketch: Misra & Gries 1982, 4 entries; the node's own part is counted separately and exactly.
#pragma once

#include "edges.h"

namespace spgnn::stream {

class Refine {
  public:
    Refine(const uint32_t* degree, const int32_t* owner, int64_t n, int64_t k) : load_(k) {
        nodes_.resize(n);
        for (int64_t v = 0; v < n; ++v) {
            if (owner[v] < 0 || owner[v] >= k) throw std::invalid_argument("an owner is not a part");
            nodes_[v].owner = uint16_t(owner[v]);
            nodes_[v].degree = nodes_[v].left = degree[v];
            ++load_[owner[v]];
        }
    }

    // Begin a pass: parts take nodes up to cap; price is in 1/1024 of the edges of a node.
    void begin(int64_t cap, int64_t price) {
        cap_ = cap;
        price_ = price;
        seen = moved = 0;
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        largest_id(edges, nodes(), seen);
        for (int64_t e = 0; e < edges.size; ++e) {
            if (e + AHEAD < edges.size) {
                __builtin_prefetch(&nodes_[edges.u(e + AHEAD)], 1);
                __builtin_prefetch(&nodes_[edges.v(e + AHEAD)], 1);
            }
            if (edges.u(e) == edges.v(e)) continue;
            Node &a = nodes_[edges.u(e)], &b = nodes_[edges.v(e)];
            const uint16_t of_a = a.owner, of_b = b.owner;
            a.see(of_b);
            b.see(of_a);
            if (--a.left == 0) decide(a);
            if (--b.left == 0) decide(b);
        }
        seen += edges.size;
    }

    // Nodes of parts that are still above cap go to the least loaded part, lowest ids first.
    void owners(int64_t cap, int32_t* owner) {
        for (int64_t v = 0; v < nodes(); ++v) {
            owner[v] = nodes_[v].owner;
            if (load_[owner[v]] <= cap) continue;
            --load_[owner[v]];
            owner[v] = int32_t(std::min_element(load_.begin(), load_.end()) - load_.begin());
            ++load_[owner[v]];
        }
    }

    int64_t nodes() const { return int64_t(nodes_.size()); }

    int64_t seen = 0, moved = 0;

  private:
    static constexpr int SLOTS = 4;
    static constexpr int64_t AHEAD = 16;

    struct Node {
        uint32_t degree = 0, left = 0;  // edges of a pass, and those not seen yet
        uint16_t count[SLOTS] = {0, 0, 0, 0}, part[SLOTS] = {0, 0, 0, 0}, own = 0, owner = 0;

        void see(uint16_t p) {
            if (p == owner) {
                if (++own == TOP) halve();
                return;
            }
            int least = 0;
            for (int s = 0; s < SLOTS; ++s) {
                if (count[s] && part[s] == p) {
                    if (++count[s] == TOP) halve();
                    return;
                }
                if (count[s] < count[least]) least = s;
            }
            if (count[least] == 0) {
                part[least] = p;
                count[least] = 1;
            } else {
                for (uint16_t& c : count) --c;
            }
        }

        static constexpr uint16_t TOP = std::numeric_limits<uint16_t>::max();

        void halve() {
            own /= 2;
            for (uint16_t& c : count) c /= 2;
        }
    };

    Large<Node> nodes_;
    std::vector<int64_t> load_;
    int64_t cap_ = 0, price_ = 0;

    // What total edges pay in part p, in 1/1024: more where the part has more than N/k nodes.
    int64_t paid(int64_t total, int64_t p) const {
        const int64_t excess = load_[p] * int64_t(load_.size()) * 1024 / nodes() - 1024;
        return total * price_ * excess / 1024;
    }

    // Move v to the part with room where count - price is largest, if that is more than its own part gives, or
    // if that is above cap; ties to the lowest part. Then clear the sketch.
    void decide(Node& node) {
        int64_t total = node.own;
        for (uint16_t count : node.count) total += count;
        int64_t best = -1, best_score = 0;
        for (int s = 0; s < SLOTS; ++s) {
            const int64_t p = node.part[s];
            if (!node.count[s] || load_[p] >= cap_) continue;
            const int64_t score = 1024 * int64_t(node.count[s]) - paid(total, p);
            if (best < 0 || score > best_score || (score == best_score && p < best)) best = p, best_score = score;
        }
        if (best >= 0 &&
            (load_[node.owner] > cap_ || best_score > 1024 * int64_t(node.own) - paid(total, node.owner))) {
            --load_[node.owner];
            ++load_[best];
            node.owner = uint16_t(best);
            ++moved;
        }
        node.left = node.degree;
        std::fill(node.count, node.count + SLOTS, node.own = 0);
    }
};

}  // namespace spgnn::stream

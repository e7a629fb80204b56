// The border between two parts, redrawn as the cheapest cut within their work. No Python here.
//
// A net is a row that is sent: its owner sends it once to each other part that holds a reader. With a price
// for a row from part q to part p, the cost of two parts a and b is a sum of submodular terms, one per net, so
// the cheapest assignment of their nodes is a minimum cut; nodes far from the border do not move.
// For balance the lighter side grows, node by node, until both fit.
// Sources: FlowCutter, Hamann & Strasser 2018; its form for hypergraphs and as a refinement, Gottesbueren et al.
// 2019 and 2020; nets as nodes of a flow network, Lawler 1973. Prices per sender and reader are ours.
#pragma once

#include <random>

#include "network.h"

namespace spgnn {

// A sparse pattern from both sides: what each node reads, and who reads it.
struct Pattern {
    int64_t n;
    const int64_t* reads_start;
    const int32_t* reads;
    const int64_t* readers_start;
    const int32_t* readers;
    const int64_t* work;  // of each node

    template <class Visit>
    void each_read(int32_t v, const Visit& visit) const {
        for (int64_t e = reads_start[v]; e < reads_start[v + 1]; ++e) visit(reads[e]);
    }
    template <class Visit>
    void each_reader(int32_t v, const Visit& visit) const {
        for (int64_t e = readers_start[v]; e < readers_start[v + 1]; ++e) visit(readers[e]);
    }
    template <class Visit>
    void each_neighbour(int32_t v, const Visit& visit) const {
        each_read(v, visit);
        each_reader(v, visit);
    }
};

// What a row costs, by the part that sends it and the part that reads it.
struct RowPrices {
    std::vector<int32_t> sent, read;
    int32_t of(int q, int p) const { return sent[q] + read[p]; }
};

class PairCutter {
  public:
    PairCutter(const Pattern& pattern, const std::vector<int32_t>& owner, int k, uint64_t seed)
        : pattern_(pattern),
          owner_(owner),
          id_(pattern.n, -1),
          distance_(pattern.n, 0),
          net_seen_(pattern.n, 0),
          part_seen_(k, 0),
          random_(seed) {}

    // Nodes of a and b that change sides in the cheapest cut that is found with at most `most_work` on either side;
    // empty if none is as cheap as the present border. `corridor`: the share of a part's work that may move, nodes
    // nearest to the border first.
    const std::vector<int32_t>& cut(int a, int b, const std::vector<int32_t>& of_a, const std::vector<int32_t>& of_b,
                                    const RowPrices& prices, int64_t most_work, double corridor) {
        moved_.clear();
        nodes_.clear();
        part_[0] = a, part_[1] = b;
        settled_work_[0] = lay_corridor(of_a, b, corridor);
        settled_work_[1] = lay_corridor(of_b, a, corridor);
        if (!nodes_.empty()) {
            draw(prices);
            if (network_.fits()) pierce(most_work);
        }
        for (int32_t v : nodes_) id_[v] = -1;
        return moved_;
    }

  private:
    using Side = FlowNetwork::Side;
    static constexpr Side A = FlowNetwork::SOURCE, B = FlowNetwork::TARGET;
    static constexpr int32_t AT_A = -2, AT_B = -3, ELSEWHERE = -1;  // nodes outside the corridor
    static constexpr int64_t MOST_NODES = 1 << 12;                  // of a corridor on either side: time

    const Pattern& pattern_;
    const std::vector<int32_t>& owner_;
    FlowNetwork network_;
    std::vector<int32_t> id_, distance_, net_seen_;
    std::vector<int64_t> part_seen_;
    std::vector<int32_t> nodes_, queue_, pins_, moved_, rim_[2];
    int32_t net_now_ = 0;
    int64_t part_now_ = 0;
    int part_[2];
    int64_t settled_work_[2], cost_ = 0;
    int32_t source_, target_;
    std::mt19937_64 random_;

    // Breadth first from the border of one of the two parts; the work of the rest.
    int64_t lay_corridor(const std::vector<int32_t>& own, int other, double corridor) {
        const int me = owner_[own[0]];
        int64_t work = 0, taken = 0;
        queue_.clear();
        for (int32_t v : own) {
            work += pattern_.work[v];
            distance_[v] = 0;
            bool is_border = false;
            pattern_.each_neighbour(v, [&](int32_t u) { is_border |= owner_[u] == other; });
            if (is_border) distance_[v] = 1, queue_.push_back(v);
        }
        const int64_t room = int64_t(corridor * double(work));
        const size_t most = nodes_.size() + MOST_NODES;
        for (size_t head = 0; head < queue_.size() && nodes_.size() < most; ++head) {
            const int32_t v = queue_[head];
            if (taken + pattern_.work[v] > room) break;
            taken += pattern_.work[v];
            nodes_.push_back(v);
            pattern_.each_neighbour(v, [&](int32_t u) {
                if (owner_[u] == me && !distance_[u]) distance_[u] = distance_[v] + 1, queue_.push_back(u);
            });
        }
        return work - taken;
    }

    int32_t place(int32_t v) const {
        if (id_[v] >= 0) return id_[v];
        return owner_[v] == part_[0] ? AT_A : owner_[v] == part_[1] ? AT_B : ELSEWHERE;
    }

    void draw(const RowPrices& prices) {
        network_.clear();
        for (int32_t v : nodes_) id_[v] = network_.add_node(pattern_.work[v]);
        source_ = network_.add_node();
        target_ = network_.add_node();
        cost_ = 0;
        ++net_now_;
        for (int32_t v : nodes_) {
            draw_net(v, prices);
            pattern_.each_read(v, [&](int32_t j) { draw_net(j, prices); });
        }
    }

    // Add the arcs of one row; its present cost, less what it costs in any case, is added to cost_.
    void draw_net(int32_t j, const RowPrices& prices) {
        if (net_seen_[j] == net_now_) return;
        net_seen_[j] = net_now_;
        const int a = part_[0], b = part_[1], from = owner_[j];
        const int32_t own = place(j);
        bool at_a = false, at_b = false, is_read_by_a = false, is_read_by_b = false;
        int elsewhere = 0;
        pins_.clear();
        ++part_now_;
        pattern_.each_reader(j, [&](int32_t i) {
            if (i == j) return;
            const int p = owner_[i];
            if (p == a || p == b) {
                (p == a ? is_read_by_a : is_read_by_b) = true;
                const int32_t x = place(i);
                if (x >= 0)
                    pins_.push_back(x);
                else
                    (x == AT_A ? at_a : at_b) = true;
            } else if (part_seen_[p] != part_now_) {
                part_seen_[p] = part_now_;
                ++elsewhere;
            }
        });
        if (own == ELSEWHERE) {
            const int32_t to_a = prices.of(from, a), to_b = prices.of(from, b), both = std::min(to_a, to_b);
            if (pins_.empty() || (at_a && at_b)) return;
            if (at_a) return pay_for_b(source_, to_b, is_read_by_b);
            if (at_b) return pay_for_a(target_, to_a, is_read_by_a);
            if (pins_.size() > 1) pay_where_split(both, is_read_by_a && is_read_by_b);
            pay_for_a(target_, to_a - both, is_read_by_a);
            pay_for_b(source_, to_b - both, is_read_by_b);
            return;
        }
        const int32_t of_a = prices.of(a, b), of_b = prices.of(b, a);
        if (own == AT_A) {
            if (!at_b) pay_for_b(source_, of_a, is_read_by_b);
        } else if (own == AT_B) {
            if (!at_a) pay_for_a(target_, of_b, is_read_by_a);
        } else {
            const int32_t dearer = (prices.sent[a] - prices.sent[b]) * elsewhere;  // at a than at b, to the other parts
            if (dearer > 0) pay(own, target_, dearer, from == a);
            if (dearer < 0) pay(source_, own, -dearer, from == b);
            if (at_b)
                pay(own, target_, of_a, from == a);
            else
                pay_for_b(own, of_a, from == a && is_read_by_b);
            if (at_a)
                pay(source_, own, of_b, from == b);
            else
                pay_for_a(own, of_b, from == b && is_read_by_a);
        }
    }

    void pay(int32_t x, int32_t y, int32_t price, bool is_paid) {
        network_.add_arc(x, y, price);
        if (is_paid) cost_ += price;
    }

    // The price where x is at a and some pin at b.
    void pay_for_b(int32_t x, int32_t price, bool is_paid) {
        if (pins_.empty() || price == 0) return;
        const int32_t some = network_.add_node();
        pay(x, some, price, is_paid);
        for (int32_t pin : pins_) network_.add_arc(some, pin, FlowNetwork::UNBOUNDED);
    }

    // The price where x is at b and some pin at a.
    void pay_for_a(int32_t x, int32_t price, bool is_paid) {
        if (pins_.empty() || price == 0) return;
        const int32_t some = network_.add_node();
        pay(some, x, price, is_paid);
        for (int32_t pin : pins_) network_.add_arc(pin, some, FlowNetwork::UNBOUNDED);
    }

    // The price where pins are on both sides.
    void pay_where_split(int32_t price, bool is_paid) {
        const int32_t in = network_.add_node(), out = network_.add_node();
        pay(in, out, price, is_paid);
        for (int32_t pin : pins_) {
            network_.add_arc(pin, in, FlowNetwork::UNBOUNDED);
            network_.add_arc(out, pin, FlowNetwork::UNBOUNDED);
        }
    }

    // Grow the lighter side until a cut fits the work, as long as it costs no more than the present border.
    void pierce(int64_t most_work) {
        const int64_t all = settled_work_[0] + settled_work_[1] + work_of(nodes_);
        for (int s : {0, 1}) rim_[s].clear();
        for (int32_t v : nodes_) {
            bool at[2] = {false, false};
            pattern_.each_neighbour(v, [&](int32_t u) {
                const int32_t x = place(u);
                at[0] |= x == AT_A, at[1] |= x == AT_B;
            });
            for (int s : {0, 1})
                if (at[s]) rim_[s].push_back(id_[v]);
        }
        bool is_within = network_.start(source_, target_, cost_);
        while (is_within) {
            const int64_t work[2] = {settled_work_[0] + network_.reached_weight(A),
                                     settled_work_[1] + network_.reached_weight(B)};
            for (int s : {0, 1})
                if (std::max(work[s], all - work[s]) <= most_work) return take(s);
            const int s = work[0] <= work[1] ? 0 : 1;
            if (work[s] > most_work) return;
            settled_work_[s] = work[s];
            const int32_t x = next_node(s);
            if (x < 0) return;
            is_within = network_.settle(side_of(s), x, cost_);
        }
    }

    static Side side_of(int s) { return s == 0 ? A : B; }

    int64_t work_of(const std::vector<int32_t>& nodes) const {
        int64_t work = 0;
        for (int32_t v : nodes) work += pattern_.work[v];
        return work;
    }

    void take(int s) {
        const Side side = side_of(s);
        for (int32_t x = 0; x < int32_t(nodes_.size()); ++x) {
            if ((network_.side(x) == side) != (owner_[nodes_[x]] == part_[s])) moved_.push_back(nodes_[x]);
        }
    }

    // The next node for a side: first one that lets no more flow pass, then the farthest behind the present border.
    int32_t next_node(int s) {
        const Side side = side_of(s);
        const int32_t n = int32_t(nodes_.size());
        std::vector<int32_t>& rim = rim_[s];
        for (int32_t x : network_.reached(side)) {
            if (x < n)
                pattern_.each_neighbour(nodes_[x], [&](int32_t u) {
                    if (id_[u] >= 0) rim.push_back(id_[u]);
                });
        }
        int32_t best = -1;
        int64_t best_score = 0;
        size_t kept = 0;
        for (int32_t x : rim) {
            if (network_.is_settled(x) || network_.side(x) == side) continue;
            rim[kept++] = x;
            const int32_t v = nodes_[x], behind = owner_[v] == part_[s] ? distance_[v] : -distance_[v];
            const int64_t score =
                (int64_t(behind) - (network_.side(x) == side_of(1 - s) ? int64_t(1) << 32 : 0)) * 1024 +
                int64_t(random_() % 1024);
            if (best < 0 || score > best_score) best = x, best_score = score;
        }
        rim.resize(kept);
        return best;
    }
};

}  // namespace spgnn

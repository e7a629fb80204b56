// Largest flow between two sets of nodes that grow, and what either set reaches. No Python here.
//
// The first flow is found by preflows. Then a tree of reachable nodes grows from each set; where the trees meet, flow
// is augmented, and nodes cut off by it find another parent or become free. When neither tree can grow, the flow is
// maximal and either tree is one side of a minimum cut. The trees are reused, so that one more terminal is cheap.
// Source: Boykov & Kolmogorov 2004, "An experimental comparison of min-cut/max-flow algorithms".
#pragma once

#include <deque>

#include "preflow.h"

namespace spgnn {

class FlowNetwork {
  public:
    enum Side : uint8_t { NONE, SOURCE, TARGET };
    static constexpr int32_t UNBOUNDED = 1 << 29;  // no flow is as large: see fits()

    void clear() {
        weight_.clear();
        drawn_.clear();
        bounded_ = 0;
    }
    int32_t add_node(int64_t weight = 0) {
        weight_.push_back(weight);
        return int32_t(weight_.size()) - 1;
    }
    void add_arc(int32_t from, int32_t to, int32_t capacity) {
        drawn_.push_back({from, to, capacity});
        if (capacity < UNBOUNDED) bounded_ += capacity;
    }
    bool fits() const { return bounded_ < UNBOUNDED && 2 * drawn_.size() < size_t(UNBOUNDED); }

    // After the last arc: the largest flow from one node to another; false if it exceeds `most`, here and below.
    bool start(int32_t source, int32_t target, int64_t most) {
        lay_arcs();
        const int32_t n = int32_t(weight_.size());
        node_.assign(n, Node{});
        now_ = 0;
        active_.clear();
        for (Side side : {SOURCE, TARGET}) {
            joined_[side].clear();
            reached_weight_[side] = 0;
        }
        flow_ = preflow_.run(begin_, arcs_, source, target, most);
        if (flow_ > most) return false;
        root(SOURCE, source);
        root(TARGET, target);
        return push(most);
    }

    // Add a terminal; all that its side reaches becomes terminals first, which changes no flow.
    bool settle(Side side, int32_t terminal, int64_t most) {
        for (int32_t v : reached(side)) node_[v].is_settled = true, node_[v].parent = ROOT;
        joined_[side].clear();
        reached_weight_[side] = 0;
        const Side other = side == SOURCE ? TARGET : SOURCE;
        while (node_[terminal].tree == other) {
            const int32_t amount = narrowest(terminal, other);
            pass(terminal, other, amount);
            flow_ += amount;
            adopt();
            if (flow_ > most) return false;
        }
        if (node_[terminal].tree == NONE) root(side, terminal);
        return push(most);
    }

    int64_t flow() const { return flow_; }
    Side side(int32_t v) const { return node_[v].tree; }
    bool is_settled(int32_t v) const { return node_[v].is_settled; }
    // What a side reaches beyond what was settled, the newest terminal included.
    int64_t reached_weight(Side side) const { return reached_weight_[side]; }
    const std::vector<int32_t>& reached(Side side) {
        std::vector<int32_t>& list = joined_[side];
        size_t kept = 0;
        for (int32_t v : list) {
            Node& node = node_[v];
            if (node.tree != side || node.is_listed) continue;
            node.is_listed = true;
            list[kept++] = v;
        }
        list.resize(kept);
        for (int32_t v : list) node_[v].is_listed = false;
        return list;
    }

  private:
    static constexpr int32_t ROOT = -1, ORPHAN = -2;
    struct Drawn {
        int32_t from, to, capacity;
    };
    struct Node {
        int32_t parent = ORPHAN;  // the arc to it
        int32_t checked = 0, depth = 0;
        Side tree = NONE;
        bool is_active = false, is_settled = false, is_listed = false;
    };
    std::vector<int64_t> weight_;
    std::vector<Drawn> drawn_;
    std::vector<int32_t> begin_;
    std::vector<Arc> arcs_;
    std::vector<Node> node_;
    Preflow preflow_;
    std::deque<int32_t> active_;
    std::vector<int32_t> orphans_, joined_[3];
    int64_t reached_weight_[3] = {}, flow_ = 0, bounded_ = 0;
    int32_t now_ = 0;

    void lay_arcs() {
        const int32_t n = int32_t(weight_.size());
        begin_.assign(n + 1, 0);
        for (const Drawn& a : drawn_) ++begin_[a.from], ++begin_[a.to];
        for (int32_t sum = 0, v = 0; v <= n; ++v)
            sum += begin_[v], begin_[v] = sum;  // the end of v's arcs, then their begin
        arcs_.resize(2 * drawn_.size());
        for (const Drawn& a : drawn_) {
            const int32_t there = --begin_[a.from], back = --begin_[a.to];
            arcs_[there] = {a.to, a.capacity, back};
            arcs_[back] = {a.from, 0, there};
        }
    }

    // What is left from u to the node behind its arc e, the way that the tree's flow goes: away from sources, towards
    // targets.
    int32_t outward(Side tree, int32_t e) const { return tree == SOURCE ? arcs_[e].left : arcs_[arcs_[e].back].left; }
    int32_t inward(Side tree, int32_t e) const { return tree == SOURCE ? arcs_[arcs_[e].back].left : arcs_[e].left; }

    void root(Side side, int32_t v) {
        join(side, v, ROOT);
        node_[v].checked = now_;
        node_[v].depth = 1;
    }

    void join(Side side, int32_t v, int32_t parent) {
        node_[v].tree = side;
        node_[v].parent = parent;
        joined_[side].push_back(v);
        reached_weight_[side] += weight_[v];
        activate(v);
    }

    void activate(int32_t v) {
        if (!node_[v].is_active) node_[v].is_active = true, active_.push_back(v);
    }

    // Grow both trees until neither can.
    bool push(int64_t most) {
        while (!active_.empty()) {
            const int32_t u = active_.front();
            const int32_t meeting = node_[u].tree == NONE ? -1 : grow(u);
            if (meeting < 0) {
                active_.pop_front();
                node_[u].is_active = false;
                continue;
            }
            const int32_t e =
                node_[u].tree == SOURCE ? meeting : arcs_[meeting].back;  // from the sources' tree to the targets'
            const int32_t from = arcs_[arcs_[e].back].to, to = arcs_[e].to;
            const int32_t amount = std::min({arcs_[e].left, narrowest(from, SOURCE), narrowest(to, TARGET)});
            arcs_[e].left -= amount;
            arcs_[arcs_[e].back].left += amount;
            pass(from, SOURCE, amount);
            pass(to, TARGET, amount);
            flow_ += amount;
            adopt();
            if (flow_ > most) return false;
        }
        return true;
    }

    // Free nodes beside u join its tree; an arc to the other tree, or -1 where there is none.
    int32_t grow(int32_t u) {
        const Node& from = node_[u];
        for (int32_t e = begin_[u]; e < begin_[u + 1]; ++e) {
            if (outward(from.tree, e) == 0) continue;
            const int32_t v = arcs_[e].to;
            Node& node = node_[v];
            if (node.tree == NONE) {
                join(from.tree, v, arcs_[e].back);
                node.checked = from.checked;
                node.depth = from.depth + 1;
            } else if (node.tree != from.tree) {
                return e;
            } else if (node.parent != ROOT && node.checked <= from.checked && node.depth > from.depth + 1) {
                node.parent = arcs_[e].back;  // a shorter way
                node.checked = from.checked;
                node.depth = from.depth + 1;
            }
        }
        return -1;
    }

    int32_t narrowest(int32_t v, Side tree) const {
        int32_t most = UNBOUNDED;
        for (int32_t e; (e = node_[v].parent) != ROOT; v = arcs_[e].to) most = std::min(most, inward(tree, e));
        return most;
    }

    // Flow between v and the root of its tree; nodes whose arc to the parent is saturated are orphans.
    void pass(int32_t v, Side tree, int32_t amount) {
        for (int32_t e; (e = node_[v].parent) != ROOT;) {
            Arc &up = arcs_[e], &down = arcs_[up.back];
            (tree == SOURCE ? down : up).left -= amount;
            (tree == SOURCE ? up : down).left += amount;
            if ((tree == SOURCE ? down : up).left == 0) orphan(v);
            v = up.to;
        }
    }

    void orphan(int32_t v) {
        node_[v].parent = ORPHAN;
        orphans_.push_back(v);
    }

    void adopt() {
        ++now_;
        for (size_t i = 0; i < orphans_.size(); ++i) {
            const int32_t v = orphans_[i];
            const Side tree = node_[v].tree;
            int32_t parent = ORPHAN, least = UNBOUNDED;
            for (int32_t e = begin_[v]; e < begin_[v + 1]; ++e) {
                const int32_t u = arcs_[e].to;
                if (node_[u].tree != tree || inward(tree, e) == 0) continue;
                const int32_t depth = depth_of(u);
                if (depth < least) least = depth, parent = e;
            }
            if (parent != ORPHAN) {
                node_[v].parent = parent;
                node_[v].checked = now_;
                node_[v].depth = least + 1;
                continue;
            }
            for (int32_t e = begin_[v]; e < begin_[v + 1]; ++e) {
                const int32_t u = arcs_[e].to;
                if (node_[u].tree != tree) continue;
                if (inward(tree, e) > 0) activate(u);
                if (node_[u].parent == arcs_[e].back) orphan(u);
            }
            node_[v].tree = NONE;
            reached_weight_[tree] -= weight_[v];
        }
        orphans_.clear();
    }

    // Steps from v to a root, or UNBOUNDED behind an orphan; distances found in this adoption are reused.
    int32_t depth_of(int32_t v) {
        int32_t steps = 0, u = v;
        while (node_[u].checked != now_) {
            const int32_t e = node_[u].parent;
            if (e == ORPHAN) return UNBOUNDED;
            if (e == ROOT) {
                node_[u].checked = now_;
                node_[u].depth = 1;
                break;
            }
            ++steps;
            u = arcs_[e].to;
        }
        const int32_t depth = node_[u].depth + steps;
        for (int32_t d = depth; v != u; v = arcs_[node_[v].parent].to) node_[v].checked = now_, node_[v].depth = d--;
        return depth;
    }
};

}  // namespace spgnn

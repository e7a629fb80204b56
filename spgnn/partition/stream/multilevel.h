// Parts of a graph that is held, in levels: clusters by label propagation until few vertices are left, which become
// parts by growing and noisy moves, then moves level by level. Meyerhenke, Sanders & Schulz 2014 for the clusters.
#pragma once

#include <cmath>

#include "held.h"

namespace spgnn::stream {

class Multilevel {
  public:
    // Parts have at most cap of the graph's nodes where vertices are small enough.
    Multilevel(int64_t k, int64_t cap, uint64_t seed) : k_(k), cap_(cap), drawn_(hash(seed, 0)), load_(k), price_(k) {}

    // The part of each vertex. nodes: of the graph, those of no vertex included; entries: of the graph.
    Large<uint16_t> run(Level&& finest, int64_t nodes, int64_t entries) {
        total_ = std::max<int64_t>(nodes, 1);
        std::vector<Level> levels;
        std::vector<Large<Id>> cluster;
        levels.push_back(std::move(finest));
        while (levels.back().vertices() > LEAST * k_) {
            const Level& level = levels.back();
            const double grown = std::pow(GROWTH, double(levels.size())), share = double(total_) / double(SHARE * k_);
            Large<Id> of = clusters(level, std::max<int64_t>(2, int64_t(std::min(grown, share))));
            Level coarse = contracted(level, of);
            if (double(coarse.vertices()) > 0.95 * double(level.vertices())) break;
            cluster.push_back(std::move(of));
            levels.push_back(std::move(coarse));
        }
        Large<uint16_t> part = first(levels.back(), entries);
        int64_t noise = NOISE * 2 / 5;
        for (size_t l = cluster.size(); l-- > 0; noise = noise * 7 / 10) {
            levels.pop_back();
            Large<uint16_t> finer(cluster[l].size());
            for (size_t v = 0; v < finer.size(); ++v) finer[v] = part[cluster[l][v]];
            part.swap(finer);
            Large<Id>().swap(cluster[l]);
            const int sweeps = l ? SWEEPS : LAST_SWEEPS;
            for (int s = 0; s < sweeps; ++s) {
                const int64_t left = std::max(0, sweeps - 2 - s);
                const int64_t limit = l || left ? cap_ * (102 + 5 * left / (sweeps - 2)) / 100 : cap_;
                sweep(levels[l], 0, part, limit, noise * left / (sweeps - 2));
            }
        }
        return part;
    }

    // One round of label propagation: a vertex joins the cluster, of at most `most` nodes, to which it has most edges.
    // The level has the vertices from `first` on, `of` and `size` all.
    void join(const Level& level, int64_t first, Large<Id>& of, Large<Id>& size, int64_t most) {
        const int64_t n = level.vertices();
        gain_.resize(of.size());
        const Large<Id> order = by_degree(level);
        const uint64_t drawn = draw();
        for (int64_t i = 0; i < n; ++i) {
            if (i + 8 < n) __builtin_prefetch(&level.to[level.start[order[i + 8]]]);
            const Id v = order[i], mine = of[first + v], nodes = level.size_of(v);
            touched_.clear();
            for (Id e = level.start[v]; e < level.start[v + 1]; ++e) {
                const Id c = of[level.to[e]];
                if (gain_[c] == 0) touched_.push_back(c);
                gain_[c] += level.weight.empty() ? 1 : level.weight[e];
            }
            Id best = mine;
            uint64_t best_score = uint64_t(gain_[mine]) << 12 | 2048;
            for (Id c : touched_) {
                const uint64_t noise = ((drawn ^ c) * 0x9e3779b97f4a7c15ull ^ v) >> 52;
                const uint64_t score = uint64_t(std::exchange(gain_[c], 0)) << 12 | noise;
                if (score > best_score && c != mine && int64_t(size[c]) + nodes <= most) best = c, best_score = score;
            }
            if (best == mine) continue;
            size[mine] -= nodes;
            size[best] += nodes;
            of[first + v] = best;
        }
    }

    // Each vertex moves to the part with room that has the largest (edges to it + noise - price), among the parts of
    // its neighbours and, if its own part is above the limit, the least loaded part. Blocks of vertices are in random
    // order; noise is in 1/1024 of a vertex's edges. The level has the vertices from `first` on, part all.
    void sweep(const Level& level, int64_t first, Large<uint16_t>& part, int64_t limit, int64_t noise) {
        const int64_t n = level.vertices();
        std::vector<Id> count(k_);
        std::vector<uint16_t> near;
        for (Id block : shuffled((n + BLOCK - 1) / BLOCK))
            for (int64_t v = int64_t(block) * BLOCK; v < std::min(n, int64_t(block + 1) * BLOCK); ++v) {
                const uint16_t mine = part[first + v];
                int64_t edges = 0;
                near.clear();
                for (Id e = level.start[v]; e < level.start[v + 1]; ++e) {
                    const uint16_t p = part[level.to[e]];
                    const Id weight = level.weight.empty() ? 1 : level.weight[e];
                    if (count[p] == 0) near.push_back(p);
                    count[p] += weight;
                    edges += weight;
                }
                const bool is_above = load_[mine] > limit;
                if (is_above) near.push_back(uint16_t(std::min_element(load_.begin(), load_.end()) - load_.begin()));
                const bool is_inner = near.size() == 1 && near[0] == mine;
                uint16_t best = mine;
                if (!is_inner) best = best_of(near, count, mine, edges, noise, {limit, is_above, level.size_of(v)});
                for (uint16_t p : near) count[p] = 0;
                if (best == mine) continue;
                set_load(mine, load_[mine] - level.size_of(v));
                set_load(best, load_[best] + level.size_of(v));
                part[first + v] = best;
            }
    }

    void forget() { Large<Id>().swap(gain_); }

    // Begin moves of single nodes from these parts.
    void set_loads(const Large<uint16_t>& part) {
        least_price_ = 0;
        total_ = std::max<int64_t>(int64_t(part.size()), 1);
        std::fill(load_.begin(), load_.end(), 0);
        for (uint16_t p : part) ++load_[p];
        for (int64_t p = 0; p < k_; ++p) set_load(p, load_[p]);
    }

    // Nodes of parts that are above cap go to the least loaded part, lowest ids first.
    void owners(const Large<uint16_t>& part, int32_t* owner) {
        for (size_t v = 0; v < part.size(); ++v) {
            owner[v] = part[v];
            if (load_[owner[v]] <= cap_) continue;
            --load_[owner[v]];
            owner[v] = int32_t(std::min_element(load_.begin(), load_.end()) - load_.begin());
            ++load_[owner[v]];
        }
    }

  private:
    static constexpr int64_t LEAST = 60, SHARE = 14;  // coarsest vertices, and the smallest clusters of all, a part
    static constexpr double GROWTH = 12;              // of the largest cluster, from level to level
    static constexpr int TRIES = 9, FIRST_SWEEPS = 30, SWEEPS = 4, LAST_SWEEPS = 3, BLOCK = 64;
    static constexpr int64_t HUBS = 20;
    static constexpr int64_t NOISE = 230, PRICE = 512, LEAST_PRICE = -154;  // of a vertex's edges, in 1/1024

    int64_t k_, cap_, total_ = 0, least_price_ = LEAST_PRICE;
    uint64_t drawn_;
    std::vector<int64_t> load_, price_;  // of each part: nodes; what the edges of a vertex pay there, in 1/1024
    Large<Id> gain_, touched_;

    uint64_t draw() { return hashed(drawn_++); }

    void set_load(int64_t p, int64_t load) {
        load_[p] = load;
        price_[p] = std::max(PRICE * (load * k_ - total_) / total_, least_price_);
    }

    // Vertices by rising degree, ties by id.
    static Large<Id> by_degree(const Level& level) {
        constexpr Id MOST = 1024;
        const int64_t n = level.vertices();
        std::vector<Id> at(MOST + 1);
        Large<Id> order(n);
        const auto key = [&](int64_t v) { return std::min(level.start[v + 1] - level.start[v], MOST - 1); };
        for (int64_t v = 0; v < n; ++v) ++at[key(v) + 1];
        std::partial_sum(at.begin(), at.end(), at.begin());
        for (int64_t v = 0; v < n; ++v) order[at[key(v)]++] = Id(v);
        return order;
    }

    Large<Id> clusters(const Level& level, int64_t most) {
        const int64_t n = level.vertices();
        Large<Id> of(n), size(level.size);
        std::iota(of.begin(), of.end(), Id(0));
        if (size.empty()) size.assign(n, 1);
        join(level, 0, of, size, most);
        return of;
    }

    // The graph of the clusters, which are numbered in `of` by their first vertices.
    Level contracted(const Level& level, Large<Id>& of) {
        const int64_t n = level.vertices();
        Large<Id> number(n, NONE), members(n);
        Id count = 0;
        for (Id& c : of) {
            if (number[c] == NONE) number[c] = count++;
            c = number[c];
        }
        Level coarse;
        coarse.size.assign(count, 0);
        Large<Id> at(count + 1, 0);
        for (int64_t v = 0; v < n; ++v) ++at[of[v] + 1], coarse.size[of[v]] += level.size_of(v);
        std::partial_sum(at.begin(), at.end(), at.begin());
        for (int64_t v = 0; v < n; ++v) members[at[of[v]]++] = Id(v);
        gain_.assign(count, 0);
        coarse.start.reserve(count + 1);
        coarse.to.reserve(level.to.size());  // pages that are not written take no memory
        coarse.weight.reserve(level.to.size());
        for (Id c = 0, m = 0; c < count; ++c) {
            touched_.clear();
            for (; m < at[c]; ++m)
                for (Id e = level.start[members[m]]; e < level.start[members[m] + 1]; ++e) {
                    const Id d = of[level.to[e]];
                    if (d == c) continue;
                    if (gain_[d] == 0) touched_.push_back(d);
                    gain_[d] += level.weight.empty() ? 1 : level.weight[e];
                }
            for (Id d : touched_) {
                coarse.to.push_back(d);
                coarse.weight.push_back(std::exchange(gain_[d], 0));
            }
            coarse.start.push_back(Id(coarse.to.size()));
        }
        return coarse;
    }

    // The best of several partitions of the coarsest level: first the fewest nodes above cap, then the fewest edges
    // between parts. One that starts from hubs, with a price of 0 up to N/k nodes, must be better by a share of 1/HUBS.
    Large<uint16_t> first(const Level& level, int64_t entries) {
        const int64_t cost = std::max<int64_t>(1, FIRST_SWEEPS * int64_t(level.to.size()));
        const int tries = int(std::clamp<int64_t>(4 * entries / cost, 3, TRIES));
        Large<uint16_t> part, best;
        std::vector<int64_t> best_load;
        int64_t best_price = 0;
        std::pair<int64_t, int64_t> least{std::numeric_limits<int64_t>::max(), 0};
        for (int t = 0; t < tries; ++t) {
            const bool from_hubs = t % 3 == 2;
            least_price_ = from_hubs ? 0 : LEAST_PRICE;
            t % 3 == 1 ? cut_in_order(level, part) : grow(level, part, from_hubs);
            const int64_t noise = t % 4 < 2 && !from_hubs ? NOISE : NOISE * 3 / 10;
            for (int s = 0; s < FIRST_SWEEPS + 2; ++s) {
                const int64_t left = std::max(0, FIRST_SWEEPS - 3 - s);
                const int64_t limit = s < FIRST_SWEEPS ? cap_ * (102 + left) / 100 : cap_;
                sweep(level, 0, part, limit, noise * left / (FIRST_SWEEPS - 3));
            }
            std::pair<int64_t, int64_t> found{0, 0};
            for (int64_t load : load_) found.first += std::max<int64_t>(0, load - cap_ * 103 / 100);
            for (int64_t v = 0; v < level.vertices(); ++v)
                for (Id e = level.start[v]; e < level.start[v + 1]; ++e)
                    if (part[v] != part[level.to[e]]) found.second += level.weight.empty() ? 1 : level.weight[e];
            if (from_hubs) found.second += found.second / HUBS;
            if (found < least) least = found, best = part, best_load = load_, best_price = least_price_;
        }
        least_price_ = best_price;
        for (int64_t p = 0; p < k_; ++p) set_load(p, best_load[p]);
        return best;
    }

    template <class T>
    void shuffle(T& order) {
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw() % i]);
    }

    Large<Id> shuffled(int64_t n) {
        Large<Id> order(n);
        std::iota(order.begin(), order.end(), Id(0));
        shuffle(order);
        return order;
    }

    // Parts are pieces of a breadth-first order from random vertices.
    void cut_in_order(const Level& level, Large<uint16_t>& part) {
        const int64_t n = level.vertices();
        std::vector<bool> is_in(n);
        Large<Id> queue;
        queue.reserve(n);
        const auto add = [&](Id v) {
            if (!is_in[v]) queue.push_back(v);
            is_in[v] = true;
        };
        size_t next = 0;
        for (Id root : shuffled(n))
            for (add(root); next < queue.size(); ++next)
                for (Id e = level.start[queue[next]]; e < level.start[queue[next] + 1]; ++e) add(level.to[e]);
        std::fill(load_.begin(), load_.end(), 0);
        part.resize(n);
        int64_t done = 0;
        for (Id v : queue) {
            part[v] = uint16_t(std::min(k_ - 1, done * k_ / total_));
            load_[part[v]] += level.size_of(v);
            done += level.size_of(v);
        }
        for (int64_t p = 0; p < k_; ++p) set_load(p, load_[p]);
    }

    // Part after part grows by the vertex that has the largest share of its edges in it; the last part gets the rest.
    // From hubs: a part begins with the vertex of most edges and grows by the vertex with most edges into it, so that a
    // dense core shares a part.
    void grow(const Level& level, Large<uint16_t>& part, bool from_hubs) {
        const int64_t n = level.vertices();
        part.assign(n, uint16_t(k_ - 1));
        std::vector<bool> is_in(n);
        Large<Id> order = shuffled(n);
        Large<uint64_t> inside(n), edges(n);
        for (int64_t v = 0; v < n; ++v)
            for (Id e = level.start[v]; e < level.start[v + 1]; ++e)
                edges[v] += level.weight.empty() ? 1 : level.weight[e];
        if (from_hubs) std::sort(order.begin(), order.end(), [&](Id a, Id b) { return edges[a] > edges[b]; });
        int64_t left = total_;
        size_t next = 0;
        for (int64_t p = 0; p < k_ - 1; ++p) {
            std::priority_queue<std::pair<uint64_t, Id>> queue;
            std::fill(inside.begin(), inside.end(), 0);
            int64_t load = 0;
            for (const int64_t wanted = left / (k_ - p); load < wanted;) {
                while (!queue.empty() && is_in[queue.top().second]) queue.pop();
                while (queue.empty() && next < order.size() && is_in[order[next]]) ++next;
                if (queue.empty() && next == order.size()) break;
                const Id v = queue.empty() ? order[next] : queue.top().second;
                is_in[v] = true;
                part[v] = uint16_t(p);
                load += level.size_of(v);
                for (Id e = level.start[v]; e < level.start[v + 1]; ++e) {
                    const Id u = level.to[e];
                    if (is_in[u]) continue;
                    inside[u] += level.weight.empty() ? 1 : level.weight[e];
                    queue.push({from_hubs ? inside[u] : (inside[u] << 20) / edges[u], u});
                }
            }
            left -= load;
            set_load(p, load);
        }
        set_load(k_ - 1, left);
    }

    struct Room {
        int64_t limit;
        bool is_above;
        int64_t nodes;
    };

    uint16_t best_of(const std::vector<uint16_t>& near, const std::vector<Id>& count, uint16_t mine, int64_t edges,
                     int64_t noise, Room room) {
        uint64_t drawn = noise > 0 ? draw() : 0;
        const auto score = [&](uint16_t p) {
            const int64_t shift = int64_t(drawn >> 53) - 1024;
            drawn *= 0x9e3779b97f4a7c15ull;
            return 1024 * int64_t(count[p]) - edges * price_[p] + edges * noise * (noise > 0 ? shift : 0) / 1024;
        };
        uint16_t best = mine;
        int64_t best_score = room.is_above ? std::numeric_limits<int64_t>::min() : score(mine);
        for (uint16_t p : near) {
            if (p == mine || load_[p] + room.nodes > room.limit) continue;
            const int64_t of_p = score(p);
            if (of_p > best_score) best = p, best_score = of_p;
        }
        return best;
    }
};

}  // namespace spgnn::stream

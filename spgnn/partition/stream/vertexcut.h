// Vertex-cut baselines: each edge to a part, its ends replicated there; then one replica of each node is its owner.
// Sources: DBH, Xie et al. 2014; greedy, Gonzalez et al. 2012 (PowerGraph); HDRF, Petroni et al. 2015; 2PS-L, Mayer et
// al. 2022. Ties go to the lowest part. Self-loops are skipped.
#pragma once

#include "edges.h"

namespace spgnn::stream {

// A set of parts for each node: k bits in words of 64.
class Replicas {
  public:
    Replicas(int64_t n, int64_t k) : words_(int64_t(k + 63) / 64), bits_(n * words_) {}

    int64_t words() const { return words_; }
    int64_t nodes() const { return int64_t(bits_.size()) / words_; }
    uint64_t* of(int64_t v) { return bits_.data() + v * words_; }
    const uint64_t* of(int64_t v) const { return bits_.data() + v * words_; }
    bool has(int64_t v, int64_t p) const { return of(v)[p >> 6] >> (p & 63) & 1; }
    void set(int64_t v, int64_t p) { of(v)[p >> 6] |= uint64_t(1) << (p & 63); }

    int64_t count(int64_t v) const {
        int64_t sum = 0;
        for (int64_t w = 0; w < words_; ++w) sum += __builtin_popcountll(of(v)[w]);
        return sum;
    }

    int64_t total() const {
        int64_t sum = 0;
        for (uint64_t word : bits_) sum += __builtin_popcountll(word);
        return sum;
    }

    template <class F>
    void each(int64_t v, F f) const {
        for (int64_t w = 0; w < words_; ++w)
            for (uint64_t word = of(v)[w]; word; word &= word - 1) f(w * 64 + __builtin_ctzll(word));
    }

  private:
    int64_t words_;
    Large<uint64_t> bits_;
};

// Which parts hold each node when every part stores all neighbours of its nodes within some hops.
class Halo {
  public:
    Halo(const int32_t* owner, int64_t n, int64_t k) : reached_(n, k), before_(0, 1), owner_(owner, owner + n), k_(k) {
        for (int64_t v = 0; v < n; ++v) {
            if (owner[v] < 0 || owner[v] >= k) throw std::invalid_argument("an owner is not a part");
            reached_.set(v, owner[v]);
        }
    }

    // Begin a hop: neighbours of the nodes held now are added next.
    void next_hop() {
        before_ = hops_++ ? reached_ : Replicas(0, 1);
        seen = 0;
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        largest_id(edges, int64_t(owner_.size()), seen);
        const int64_t words = reached_.words();
        for (int64_t e = 0; e < edges.size; ++e) {
            const int64_t u = edges.u(e), v = edges.v(e);
            if (hops_ < 2) {
                reached_.set(u, owner_[v]);
                reached_.set(v, owner_[u]);
                continue;
            }
            for (int64_t w = 0; w < words; ++w) {
                reached_.of(u)[w] |= before_.of(v)[w];
                reached_.of(v)[w] |= before_.of(u)[w];
            }
        }
        seen += edges.size;
    }

    // rows[q * k + p]: nodes that q owns and p holds a copy of; zero diagonal.
    void rows(int64_t* rows) const {
        std::fill(rows, rows + k_ * k_, 0);
        for (size_t v = 0; v < owner_.size(); ++v)
            reached_.each(int64_t(v), [&](int64_t p) { rows[owner_[v] * k_ + p] += p != owner_[v]; });
    }

    int64_t parts() const { return k_; }

    int64_t seen = 0;

  private:
    Replicas reached_, before_;
    Large<int32_t> owner_;
    int64_t k_;
    int hops_ = 0;
};

class VertexCut {
  public:
    VertexCut(int64_t n, int64_t k) : k(k), replicas(n, k), load(k) {}

    int64_t nodes() const { return replicas.nodes(); }

    // One replica of each node, drawn by hash; a node without an edge goes to the part with fewest owned nodes.
    void owners(uint64_t seed, int32_t* owner) const {
        Loads loads(k);
        for (int64_t v = 0; v < nodes(); ++v) {
            const int64_t choices = replicas.count(v);
            int64_t skip = choices ? int64_t(hash(seed, v) % uint64_t(choices)) : -1;
            owner[v] = -1;
            replicas.each(v, [&](int64_t p) {
                if (skip-- == 0) owner[v] = int32_t(p);
            });
            if (owner[v] >= 0) loads.add(owner[v], 1);
        }
        for (int64_t v = 0; v < nodes(); ++v)
            if (owner[v] < 0) owner[v] = int32_t(loads.take());
    }

    int64_t k;
    Replicas replicas;
    std::vector<int64_t> load;  // edges of each part
    int64_t seen = 0;

  protected:
    static constexpr int64_t AHEAD = 32;

    void put(int64_t u, int64_t v, int64_t p) {
        replicas.set(u, p);
        replicas.set(v, p);
        ++load[p];
    }

    int64_t least_loaded() const { return std::min_element(load.begin(), load.end()) - load.begin(); }

    template <class Index, class Choose>
    void each(const Edges<Index>& edges, Choose choose) {
        largest_id(edges, nodes(), seen);
        for (int64_t e = 0; e < edges.size; ++e) {
            if (e + AHEAD < edges.size) {
                __builtin_prefetch(replicas.of(edges.u(e + AHEAD)), 1);
                __builtin_prefetch(replicas.of(edges.v(e + AHEAD)), 1);
            }
            const int64_t u = edges.u(e), v = edges.v(e), p = u == v ? -1 : choose(u, v);
            if (p >= 0) put(u, v, p);
        }
        seen += edges.size;
    }
};

// DBH: the hash of the end of lower degree; ties to the lower id.
class DegreeHash : public VertexCut {
  public:
    DegreeHash(const uint32_t* degree, int64_t n, int64_t k, uint64_t seed)
        : VertexCut(n, k), degree_(degree, degree + n), seed_(seed) {}

    template <class Index>
    void add(const Edges<Index>& edges) {
        each(edges, [&](int64_t u, int64_t v) {
            if (degree_[v] < degree_[u] || (degree_[v] == degree_[u] && v < u)) u = v;
            return int64_t(hash(seed_, u) % uint64_t(k));
        });
    }

  private:
    Large<uint32_t> degree_;
    uint64_t seed_;
};

// PowerGraph's greedy rules 1 to 4; among the parts that a rule allows, the least loaded.
class Greedy : public VertexCut {
  public:
    Greedy(const uint32_t* degree, int64_t n, int64_t k)
        : VertexCut(n, k), unassigned_(degree, degree + n), allowed_(replicas.words()) {}

    template <class Index>
    void add(const Edges<Index>& edges) {
        each(edges, [&](int64_t u, int64_t v) {
            const uint64_t *a = replicas.of(u), *b = replicas.of(v);
            uint64_t both = 0, of_u = 0, of_v = 0;
            for (int64_t w = 0; w < replicas.words(); ++w) both |= a[w] & b[w], of_u |= a[w], of_v |= b[w];
            // 1: a part that has both; 2: of two disjoint sets, that of the node with more unassigned edges (u at a
            // tie); 3: the only nonempty set; 4: any part.
            const bool from_u = of_u && (!of_v || unassigned_[u] >= unassigned_[v]);
            for (int64_t w = 0; w < replicas.words(); ++w) allowed_[w] = both ? a[w] & b[w] : from_u ? a[w] : b[w];
            --unassigned_[u];
            --unassigned_[v];
            return of_u || of_v ? least_allowed() : least_loaded();
        });
    }

  private:
    Large<uint32_t> unassigned_;
    std::vector<uint64_t> allowed_;

    int64_t least_allowed() const {
        int64_t best = -1;
        for (int64_t w = 0; w < replicas.words(); ++w)
            for (uint64_t word = allowed_[w]; word; word &= word - 1) {
                const int64_t p = w * 64 + __builtin_ctzll(word);
                if (best < 0 || load[p] < load[best]) best = p;
            }
        return best;
    }
};

// g(u, p) of HDRF and 2PS-L, where u is replicated on p.
inline double replica_score(double degree_u, double degree_v) { return 1 + (1 - degree_u / (degree_u + degree_v)); }

// HDRF: partial degrees, this edge included.
class Hdrf : public VertexCut {
  public:
    Hdrf(int64_t n, int64_t k, double lambda, double epsilon)
        : VertexCut(n, k), degree_(n), lambda_(lambda), epsilon_(epsilon) {}

    template <class Index>
    void add(const Edges<Index>& edges) {
        each(edges, [&](int64_t u, int64_t v) {
            const double du = ++degree_[u], dv = ++degree_[v];
            const double gu = replica_score(du, dv), gv = replica_score(dv, du);
            const auto [least, most] = std::minmax_element(load.begin(), load.end());
            const double high = double(*most), spread = epsilon_ + double(*most - *least);
            int64_t best = 0;
            double best_score = -1;
            for (int64_t p = 0; p < k; ++p) {
                double score = 0;
                if (replicas.has(u, p)) score += gu;
                if (replicas.has(v, p)) score += gv;
                score += lambda_ * (high - double(load[p])) / spread;
                if (score > best_score) best = p, best_score = score;
            }
            return best;
        });
    }

  private:
    Large<uint32_t> degree_;
    double lambda_, epsilon_;
};

// 2PS-L: a pass of clustering, one for the edges whose clusters share a part, one for the rest.
class TwoPhase : public VertexCut {
  public:
    TwoPhase(const uint32_t* degree, int64_t n, int64_t k, double balance, uint64_t seed)
        : VertexCut(n, k), degree_(degree, degree + n), cluster_(n, NONE), balance_(balance), seed_(seed) {
        for (uint32_t d : degree_) volume_of_graph_ += d;
        volume_.reserve(n);
    }

    template <class Index>
    void cluster(const Edges<Index>& edges) {
        largest_id(edges, nodes(), seen);
        const int64_t k_limit = volume_of_graph_;  // a volume is at most 2 |E| / k
        auto fits = [&](int64_t volume) { return volume * k <= k_limit; };
        for (int64_t e = 0; e < edges.size; ++e) {
            if (e + AHEAD < edges.size) {
                __builtin_prefetch(&cluster_[edges.u(e + AHEAD)], 1);
                __builtin_prefetch(&cluster_[edges.v(e + AHEAD)], 1);
            }
            const int64_t u = edges.u(e), v = edges.v(e);
            if (u == v) continue;
            for (int64_t w : {u, v})
                if (cluster_[w] == NONE) {
                    cluster_[w] = Id(volume_.size());
                    volume_.push_back(degree_[w]);
                }
            int64_t &of_u = volume_[cluster_[u]], &of_v = volume_[cluster_[v]];
            if (!fits(of_u) || !fits(of_v)) continue;
            const int64_t du = degree_[u], dv = degree_[v];
            if (of_u - du <= of_v - dv) {
                if (fits(of_v + du)) of_v += du, of_u -= du, cluster_[u] = cluster_[v];
            } else if (fits(of_u + dv)) {
                of_u += dv, of_v -= dv, cluster_[v] = cluster_[u];
            }
        }
        seen += edges.size;
    }

    // Clusters by falling volume to the part with the least volume; ties to the cluster founded first, the lowest part.
    void place_clusters() {
        Large<Id> order;
        for (size_t c = 0; c < volume_.size(); ++c)
            if (volume_[c]) order.push_back(Id(c));
        std::sort(order.begin(), order.end(),
                  [&](Id a, Id b) { return volume_[a] != volume_[b] ? volume_[a] > volume_[b] : a < b; });
        part_.assign(volume_.size(), 0);
        Loads loads(k);
        for (Id c : order) {
            part_[c] = int32_t(loads.least());
            loads.add(part_[c], volume_[c]);
        }
        full_ = int64_t(balance_ * double(volume_of_graph_ / 2) / double(k));
        seen = 0;
    }

    template <class Index>
    void add(const Edges<Index>& edges, bool is_second) {
        each(edges, [&](int64_t u, int64_t v) {
            const int64_t pu = part_[cluster_[u]], pv = part_[cluster_[v]];
            if ((pu != pv) != is_second) return int64_t(-1);
            return with_room(u, v, pu == pv || score(u, v, pu) >= score(u, v, pv) ? pu : pv);
        });
    }

    int64_t clusters() const {
        return std::count_if(volume_.begin(), volume_.end(), [](int64_t volume) { return volume > 0; });
    }

  private:
    Large<uint32_t> degree_;
    Large<Id> cluster_;
    double balance_;
    uint64_t seed_;
    Large<int64_t> volume_;
    Large<int32_t> part_;
    int64_t volume_of_graph_ = 0, full_ = 0;

    double score(int64_t u, int64_t v, int64_t p) const {
        const double du = degree_[u], dv = degree_[v];
        const double vol_u = double(volume_[cluster_[u]]), vol_v = double(volume_[cluster_[v]]);
        double sum = 0;
        if (replicas.has(u, p)) sum += replica_score(du, dv);
        if (replicas.has(v, p)) sum += replica_score(dv, du);
        if (part_[cluster_[u]] == p) sum += vol_u / (vol_u + vol_v);
        if (part_[cluster_[v]] == p) sum += vol_v / (vol_u + vol_v);
        return sum;
    }

    // Part p if it has room, else the hash of the end of higher degree if that has, else the least loaded part.
    int64_t with_room(int64_t u, int64_t v, int64_t p) const {
        if (load[p] < full_) return p;
        const int64_t high = degree_[v] > degree_[u] || (degree_[v] == degree_[u] && v < u) ? v : u;
        p = int64_t(hash(seed_, high) % uint64_t(k));
        return load[p] < full_ ? p : least_loaded();
    }
};

}  // namespace spgnn::stream

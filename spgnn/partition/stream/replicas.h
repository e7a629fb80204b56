// Sets of parts, one per node, and the parts that hold a node when full neighbour lists are stored.
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

}  // namespace spgnn::stream

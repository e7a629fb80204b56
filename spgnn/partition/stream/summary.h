// A test, from 4 bytes per node, whether an edge of the stream can still change a cluster. Most edges cannot. These
// summaries fit in a cache; the nodes themselves, 16 bytes each, do not.
#pragma once

#include <cstdint>

namespace spgnn::stream {

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

}  // namespace spgnn::stream

// Which of a node's neighbours are taken: k of them without replacement, or those whose own random number is small.
#pragma once

#include <cstdint>
#include <vector>

#include "../native/rng.h"

namespace spgnn {

constexpr int64_t ALL = -1;  // a fan-out of all neighbours

// One number for each node: r_t is number t of the splitmix64 that starts at (seed, stream, index).
class NodeNumbers {
  public:
    NodeNumbers(uint64_t seed, uint64_t stream, uint64_t index) : key(hash3(seed, stream, index)) {}

    uint64_t operator()(int64_t node) const {
        uint64_t state = key + uint64_t(node) * GOLDEN;
        return splitmix64(state);
    }

  private:
    const uint64_t key;
};

// min(degree, fanout) neighbours, every set as likely (Floyd; Bentley & Floyd 1987).
class WithoutReplacement {
  public:
    WithoutReplacement(uint64_t seed, uint64_t stream, uint64_t index) : rng(seed, stream, index) {}

    // Calls take(place) with the chosen places of 0 .. degree - 1, ascending.
    template <class Take>
    void operator()(const int32_t*, int32_t degree, int64_t fanout, Take take) {
        if (fanout == ALL || degree <= fanout) {
            for (int32_t k = 0; k < degree; ++k) take(k);
        } else if (degree <= 64) {
            take_of_word(uint32_t(degree), uint32_t(fanout), take);
        } else {
            take_of_bits(uint32_t(degree), uint32_t(fanout), take);
        }
    }

  private:
    template <class Take>
    void take_of_word(uint32_t degree, uint32_t fanout, Take take) {
        const bool leaves_out = 2 * fanout > degree;  // choose those that are left out: fewer
        uint64_t chosen = 0;
        for (uint32_t last = degree - (leaves_out ? degree - fanout : fanout); last < degree; ++last) {
            const uint32_t k = rng.below(last + 1);
            chosen |= uint64_t(1) << (chosen >> k & 1 ? last : k);
        }
        if (leaves_out) chosen ^= ~uint64_t(0) >> (64 - degree);
        for (; chosen; chosen &= chosen - 1) take(int32_t(__builtin_ctzll(chosen)));
    }

    template <class Take>
    void take_of_bits(uint32_t degree, uint32_t fanout, Take take) {
        const size_t words = (size_t(degree) + 63) / 64;
        if (bits.size() < words) bits.resize(words);
        for (uint32_t last = degree - fanout; last < degree; ++last) {
            uint32_t k = rng.below(last + 1);
            if (bits[k / 64] >> (k % 64) & 1) k = last;
            bits[k / 64] |= uint64_t(1) << (k % 64);
        }
        for (size_t word = 0; word < words; ++word)
            for (uint64_t& chosen = bits[word]; chosen; chosen &= chosen - 1)
                take(int32_t(word * 64) + __builtin_ctzll(chosen));
    }

    Rng rng;
    std::vector<uint64_t> bits;  // zero between calls
};

// LABOR-0: each neighbour t with r_t < fanout / degree, r_t uniform on [0, 1) and the same for all rows and layers.
//
// Source: Balin & Catalyurek, Layer-neighbor sampling, 2023, section 3.2, with c_s = fanout / degree and pi = 1.
class Poisson {
  public:
    Poisson(uint64_t seed, uint64_t stream, uint64_t index) : number(seed, stream, index) {}

    template <class Take>
    void operator()(const int32_t* neighbours, int32_t degree, int64_t fanout, Take take) const {
        if (fanout == ALL || degree <= fanout) {
            for (int32_t k = 0; k < degree; ++k) take(k);
        } else {
            const uint64_t below = uint64_t((__uint128_t(uint64_t(fanout)) << 64) / uint64_t(degree));
            for (int32_t k = 0; k < degree; ++k)
                if (number(neighbours[k]) < below) take(k);
        }
    }

  private:
    const NodeNumbers number;
};

}  // namespace spgnn

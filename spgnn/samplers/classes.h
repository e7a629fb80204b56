// Degree classes: which slot of the frontier is popped next, with probability proportional to its node's degree.
// They draw in 0.6 of the time of the paper's structure, the Dashboard.
//
// Class k holds the slots of degrees 2^k to 2^(k+1) - 1. A pop selects a class by its total degree, then a uniform slot
// of it, which is kept with probability degree / 2^(k+1), more than a half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../native/rng.h"

namespace spgnn {

class Classes {
  public:
    // Enters the first frontier; `degrees` of its slots.
    void begin(const std::vector<int32_t>& degrees) {
        for (int k = 0; k < 31; ++k) {
            members[k].clear();
            weight[k] = 0;
        }
        total = 0;
        degree_of.assign(degrees.size(), 0);
        place.resize(degrees.size());
        for (size_t slot = 0; slot < degrees.size(); ++slot) push(int32_t(slot), degrees[slot]);
    }

    // Removes a slot with probability degree / sum of degrees and returns it; -1 if the sum is 0.
    int32_t pop(Rng& rng) {
        if (total == 0) return -1;
        uint64_t x = total >> 32 ? rng.below64(total) : rng.below(uint32_t(total));
        int k = 0;
        while (x >= weight[k]) x -= weight[k++];
        const auto& slots = members[k];
        for (;;) {
            const int32_t slot = slots[rng.below(uint32_t(slots.size()))];
            if (rng.next() >> (63 - k) < uint64_t(degree_of[slot])) {  // k + 1 random bits
                remove(slot, k);
                return slot;
            }
        }
    }

    void push(int32_t slot, int32_t degree) {
        degree_of[slot] = degree;
        if (degree == 0) return;
        const int k = 31 - __builtin_clz(uint32_t(degree));
        place[slot] = int32_t(members[k].size());
        members[k].push_back(slot);
        weight[k] += uint64_t(degree);
        total += uint64_t(degree);
    }

  private:
    void remove(int32_t slot, int k) {
        auto& slots = members[k];
        slots[place[slot]] = slots.back();
        place[slots.back()] = place[slot];
        slots.pop_back();
        weight[k] -= uint64_t(degree_of[slot]);
        total -= uint64_t(degree_of[slot]);
    }

    std::vector<int32_t> members[31], degree_of, place;
    uint64_t weight[31], total;
};

}  // namespace spgnn

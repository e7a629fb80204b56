// Draws from a fixed discrete distribution in constant time.
//
// Source: Walker 1977; the linear construction is Vose's, 1991.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "../native/rng.h"

namespace spgnn {

class Alias {
  public:
    // P(i) = weight[i] / sum of weights.
    Alias(const double* weight, int64_t n) : keep(size_t(n), 1.0), other(size_t(n)) {
        double total = 0;
        for (int64_t i = 0; i < n; ++i) {
            if (!(weight[i] >= 0) || std::isinf(weight[i]))
                throw std::invalid_argument("weights must be finite and not negative");
            total += weight[i];
            other[size_t(i)] = i;
        }
        if (!(total > 0) || std::isinf(total)) throw std::invalid_argument("the sum of weights must be positive");
        std::vector<double> share(static_cast<size_t>(n));
        std::vector<int64_t> small, large;
        for (int64_t i = 0; i < n; ++i) {
            share[size_t(i)] = weight[i] / total * double(n);
            (share[size_t(i)] < 1 ? small : large).push_back(i);
        }
        while (!small.empty() && !large.empty()) {
            const size_t s = size_t(small.back()), l = size_t(large.back());
            small.pop_back();
            keep[s] = share[s];
            other[s] = int64_t(l);
            share[l] -= 1 - share[s];
            if (share[l] < 1) {
                large.pop_back();
                small.push_back(int64_t(l));
            }
        }
        // Entries left over by rounding have a share of about 1; an entry of weight 0 is never among them.
        for (const int64_t i : small)
            if (weight[i] == 0) {
                keep[size_t(i)] = 0;
                other[size_t(i)] = largest(weight, n);
            }
    }

    int64_t draw(Rng& rng) const {
        const uint64_t n = keep.size(), slot = n >> 32 ? rng.below64(n) : rng.below(uint32_t(n));
        return rng.uniform() < keep[slot] ? int64_t(slot) : other[slot];
    }

  private:
    static int64_t largest(const double* weight, int64_t n) {
        int64_t best = 0;
        for (int64_t i = 1; i < n; ++i)
            if (weight[i] > weight[best]) best = i;
        return best;
    }
    std::vector<double> keep;    // P(slot | slot was chosen)
    std::vector<int64_t> other;  // drawn if the slot is not kept
};

}  // namespace spgnn

// Random numbers that are a function of (seed, stream, index): xoshiro256++ seeded by splitmix64.
//
// Source: Blackman & Vigna, Scrambled linear pseudorandom number generators, 2021; bounded integers: Lemire 2019.
#pragma once

#include <cstdint>

#include "mix.h"

namespace spgnn {

// A hash of three numbers: one random number per key.
inline uint64_t hash3(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t state = a;
    state = splitmix64(state) ^ b;
    state = splitmix64(state) ^ c;
    return splitmix64(state);
}

class Rng {
  public:
    // stream: separates the uses of one seed, such as training and presampling.
    Rng(uint64_t seed, uint64_t stream, uint64_t index) {
        uint64_t state = hash3(seed, stream, index);
        for (auto& word : s) word = splitmix64(state);
    }

    uint64_t next() {
        const uint64_t result = rotated(s[0] + s[3], 23) + s[0], t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = rotated(s[3], 45);
        return result;
    }

    // An integer of 0 to n - 1, 0 < n < 2^32, without bias.
    uint32_t below(uint32_t n) {
        uint64_t product = uint64_t(uint32_t(next() >> 32)) * n;
        if (uint32_t(product) < n)
            for (const uint32_t least = -n % n; uint32_t(product) < least;)
                product = uint64_t(uint32_t(next() >> 32)) * n;
        return uint32_t(product >> 32);
    }

    // An integer of 0 to n - 1, 0 < n < 2^63, without bias.
    uint64_t below64(uint64_t n) {
        __uint128_t product = __uint128_t(next()) * n;
        if (uint64_t(product) < n)
            for (const uint64_t least = -n % n; uint64_t(product) < least;) product = __uint128_t(next()) * n;
        return uint64_t(product >> 64);
    }

    // A number of [0, 1) with 53 bits.
    double uniform() { return double(next() >> 11) * 0x1.0p-53; }

  private:
    static uint64_t rotated(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
    uint64_t s[4];
};

}  // namespace spgnn

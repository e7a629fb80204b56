// Hashes of 64 and 32 bits.
#pragma once

#include <cstdint>

namespace spgnn {

constexpr uint64_t GOLDEN = 0x9e3779b97f4a7c15ull;  // 2^64 divided by the golden ratio

// The finaliser of splitmix64: every output bit depends on every input bit. Source: Steele, Lea & Flood 2014.
static inline __attribute__((always_inline)) uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// The next number of the sequence splitmix64.
inline uint64_t splitmix64(uint64_t& state) { return mix(state += GOLDEN); }

// A hash of one number, also of 0.
static inline __attribute__((always_inline)) uint64_t hashed(uint64_t x) { return mix(x + GOLDEN); }

// Two rounds of a 32-bit mixer on (row key, feature): vectors of 32-bit multiplies are cheap.
static inline __attribute__((always_inline)) uint32_t mix32(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

static inline __attribute__((always_inline)) uint32_t drop_bits(uint32_t low, uint32_t high, uint32_t feature) {
    return mix32(mix32(feature * 0x9e3779b9u + low) ^ high);
}

static inline __attribute__((always_inline)) uint64_t drop_id(int64_t id) { return hashed(uint64_t(id)); }

}  // namespace spgnn

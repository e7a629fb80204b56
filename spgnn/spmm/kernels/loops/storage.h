// What matrices are stored in: float, double, or bfloat16, the upper half of a float, as uint16_t.
// Arithmetic on bfloat16 is done in float; Compute<S> names the type.
#pragma once

#include <cstdint>
#include <cstring>

namespace spgnn {

typedef uint16_t bfloat16;

template <class S>
struct Compute {
    typedef S type;
};
template <>
struct Compute<bfloat16> {
    typedef float type;
};

static inline __attribute__((always_inline)) float widen(float x) { return x; }
static inline __attribute__((always_inline)) double widen(double x) { return x; }
static inline __attribute__((always_inline)) float widen(bfloat16 x) {
    const uint32_t bits = uint32_t(x) << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

static inline __attribute__((always_inline)) void narrow(float x, float& y) { y = x; }
static inline __attribute__((always_inline)) void narrow(double x, double& y) { y = x; }
static inline __attribute__((always_inline)) void narrow(float x, bfloat16& y) {  // to nearest, ties to even; NaN stays
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    y = bfloat16((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

}  // namespace spgnn

// Rows as they travel: bfloat16 or half.
#pragma once

#include "isa.h"

namespace spgnn::SPGNN_SET {

// The nearest half of x, ties to even, as bits; finite values beyond 65504 become 65504. NaN stays.
static inline uint32_t half_bits(float x) {
    uint32_t b;
    std::memcpy(&b, &x, sizeof b);
    const uint32_t sign = b >> 16 & 0x8000, a = b & 0x7fffffff, finite = std::min(a, 0x477fe000u);
    float small;  // below 2^-14 the place of the last bit is fixed: adding 0.5 rounds there
    std::memcpy(&small, &finite, sizeof small);
    small += 0.5f;
    uint32_t subnormal;
    std::memcpy(&subnormal, &small, sizeof subnormal);
    subnormal -= 0x3f000000;
    const uint32_t normal = (finite - 0x38000000 + 0xfff + (finite >> 13 & 1)) >> 13;
    const uint32_t number = finite < 0x38800000 ? subnormal : normal;
    return sign | (a > 0x7f800000 ? 0x7e00 : a == 0x7f800000 ? 0x7c00 : number);
}

static inline float half_value(uint32_t h) {
    const uint32_t a = (h & 0x7fff) << 13, exponent = a & 0x0f800000;
    const uint32_t normal = a + 0x38000000, beyond = a + 0x70000000, smallest = 0x38800000;
    float subnormal, least;
    const uint32_t shifted = normal + 0x800000;
    std::memcpy(&subnormal, &shifted, sizeof subnormal);
    std::memcpy(&least, &smallest, sizeof least);
    subnormal -= least;
    uint32_t small;
    std::memcpy(&small, &subnormal, sizeof small);
    const uint32_t b = (exponent == 0x0f800000 ? beyond : exponent == 0 ? small : normal) | (h & 0x8000) << 16;
    float x;
    std::memcpy(&x, &b, sizeof x);
    return x;
}

struct Bfloat16 {
    static inline uint16_t encode(float x) {
        bfloat16 y;
        narrow(x, y);
        return y;
    }
    static inline float decode(uint16_t y) { return widen(y); }
};

struct Half {
    static inline uint16_t encode(float x) { return uint16_t(half_bits(x)); }
    static inline float decode(uint16_t y) { return half_value(y); }
};

template <class Format, class S>
static inline void encode_row(const S* x, uint16_t* out, int64_t F) {
    for (int64_t f = 0; f < F; ++f) out[f] = Format::encode(float(widen(x[f])));
}

template <class S>
void encode_rows(Format format, const S* X, uint8_t* out, int64_t begin, int64_t end, int64_t F) {
    for (int64_t i = begin; i < end; ++i) {
        const S* x = X + i * F;
        uint16_t* y = reinterpret_cast<uint16_t*>(out) + i * F;
        if (format == HALF)
            encode_row<Half>(x, y, F);
        else
            encode_row<Bfloat16>(x, y, F);
    }
}

template <class S>
void decode_rows(Format format, const uint8_t* rows, S* out, int64_t begin, int64_t end, int64_t F) {
    for (int64_t i = begin; i < end; ++i) {
        S* x = out + i * F;
        const uint16_t* y = reinterpret_cast<const uint16_t*>(rows) + i * F;
        if (format == HALF) {
            for (int64_t f = 0; f < F; ++f) narrow(typename Compute<S>::type(half_value(y[f])), x[f]);
        } else {
            for (int64_t f = 0; f < F; ++f) narrow(typename Compute<S>::type(widen(y[f])), x[f]);
        }
    }
}

}  // namespace spgnn::SPGNN_SET

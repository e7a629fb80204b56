// Rows as they travel: bfloat16, half, or int8 with a float scale behind each row. What the format
// loses may be kept in a residual, which is added before the next rows are encoded.
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

static inline uint32_t magnitude(float x) {
    uint32_t b;
    std::memcpy(&b, &x, sizeof b);
    return b & 0x7fffffff;  // ordered as the absolute values are, NaN above infinity
}

// One row of 16-bit numbers. The residual of what is not finite is 0.
template <class Format, class S>
static inline void encode_two_bytes(const S* x, float* residual, uint16_t* out, int64_t F) {
    if (!residual) {
        for (int64_t f = 0; f < F; ++f) out[f] = Format::encode(float(widen(x[f])));
        return;
    }
#pragma GCC ivdep
    for (int64_t f = 0; f < F; ++f) {
        const float v = float(widen(x[f])) + residual[f];
        const uint16_t y = Format::encode(v);
        const float lost = v - Format::decode(y);
        out[f] = y;
        residual[f] = magnitude(lost) < 0x7f800000 ? lost : 0.0f;
    }
}

// One row of int8 and, behind it, its scale max|row| / 127: 0 for a row of zeros (or below 1e-36), NaN
// for one that is not finite.
template <class S>
static inline void encode_int8(const S* x, float* residual, uint8_t* out, float* row, int64_t F) {
    uint32_t most = 0;
    for (int64_t f = 0; f < F; ++f) {
        row[f] = float(widen(x[f])) + (residual ? residual[f] : 0.0f);
        most = std::max(most, magnitude(row[f]));
    }
    float top, scale;
    std::memcpy(&top, &most, sizeof top);
    scale = most >= 0x7f800000 ? std::numeric_limits<float>::quiet_NaN() : top < 1e-36f ? 0.0f : top / 127;
    const float inverse = scale > 0 ? 127 / top : 0.0f, magic = 12582912.0f;  // 1.5 * 2^23 rounds in the low bits
    int8_t* q = reinterpret_cast<int8_t*>(out);
    for (int64_t f = 0; f < F; ++f) {
        const float t = row[f] * inverse + magic;
        int32_t bits;
        std::memcpy(&bits, &t, sizeof bits);
        q[f] = int8_t(bits - 0x4b400000);
    }
    std::memcpy(out + F, &scale, sizeof scale);
    if (!residual) return;
#pragma GCC ivdep
    for (int64_t f = 0; f < F; ++f) residual[f] = scale == scale ? row[f] - float(q[f]) * scale : 0.0f;
}

template <class S>
void encode_rows(Format format, const S* X, float* residual, uint8_t* out, int64_t begin, int64_t end, int64_t F) {
    std::vector<float> row(format == INT8 ? F : 0);
    for (int64_t i = begin; i < end; ++i) {
        const S* x = X + i * F;
        float* r = residual ? residual + i * F : nullptr;
        if (format == INT8)
            encode_int8(x, r, out + i * (F + 4), row.data(), F);
        else if (format == HALF)
            encode_two_bytes<Half>(x, r, reinterpret_cast<uint16_t*>(out) + i * F, F);
        else
            encode_two_bytes<Bfloat16>(x, r, reinterpret_cast<uint16_t*>(out) + i * F, F);
    }
}

template <class S>
void decode_rows(Format format, const uint8_t* rows, S* out, int64_t begin, int64_t end, int64_t F) {
    for (int64_t i = begin; i < end; ++i) {
        S* x = out + i * F;
        const uint16_t* y = reinterpret_cast<const uint16_t*>(rows) + i * F;
        if (format == HALF) {
            for (int64_t f = 0; f < F; ++f) narrow(typename Compute<S>::type(half_value(y[f])), x[f]);
        } else if (format == BFLOAT16) {
            for (int64_t f = 0; f < F; ++f) narrow(typename Compute<S>::type(widen(y[f])), x[f]);
        } else {
            const int8_t* q = reinterpret_cast<const int8_t*>(rows) + i * (F + 4);
            float scale;
            std::memcpy(&scale, q + F, sizeof scale);
            for (int64_t f = 0; f < F; ++f) narrow(typename Compute<S>::type(float(q[f]) * scale), x[f]);
        }
    }
}

}  // namespace spgnn::SPGNN_SET

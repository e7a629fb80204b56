// What all CUDA kernels share: storage types, words of up to 16 bytes, rounding, the dropout hash.
// No header is included, so that NVRTC needs no toolkit; compile.py puts this text before each .cu.
// Rounding and hash are the integer arithmetic of arguments.h, wire.h and dense.h: the same bits as on the CPU.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

struct bfloat16 {
    u16 bits;
};
struct float16 {
    u16 bits;
};

// Arithmetic on two-byte numbers is done in float.
template <class S>
struct Compute {
    typedef float type;
};
template <>
struct Compute<double> {
    typedef double type;
};

// The nearest half of x, ties to even, as bits; finite values beyond 65504 become 65504. NaN stays.
__device__ inline u32 half_bits(float x) {
    const u32 b = __float_as_uint(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff,
              finite = a < 0x477fe000u ? a : 0x477fe000u;
    // Below 2^-14 the place of the last bit is fixed: adding 0.5 rounds there.
    const u32 subnormal = __float_as_uint(__uint_as_float(finite) + 0.5f) - 0x3f000000;
    const u32 normal = (finite - 0x38000000 + 0xfff + (finite >> 13 & 1)) >> 13;
    const u32 number = finite < 0x38800000 ? subnormal : normal;
    return sign | (a > 0x7f800000 ? 0x7e00 : a == 0x7f800000 ? 0x7c00 : number);
}

#ifdef SPGNN_EMULATED
__device__ inline float half_value(u32 h) {
    const u32 a = (h & 0x7fff) << 13, exponent = a & 0x0f800000, normal = a + 0x38000000;
    const u32 small = __float_as_uint(__uint_as_float(normal + 0x800000) - __uint_as_float(0x38800000u));
    return __uint_as_float((exponent == 0x0f800000 ? a + 0x70000000
                            : exponent == 0        ? small
                                                   : normal) |
                           (h & 0x8000) << 16);
}
#else
__device__ inline float half_value(u32 h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)h));
    return x;
}
#endif

__device__ inline u16 bfloat16_bits(float x) {  // to nearest, ties to even; NaN stays
    const u32 bits = __float_as_uint(x);
    return u16((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(bfloat16 x) { return __uint_as_float(u32(x.bits) << 16); }
__device__ inline float widen(float16 x) { return half_value(x.bits); }

__device__ inline void narrow(float x, float& y) { y = x; }
__device__ inline void narrow(double x, double& y) { y = x; }
__device__ inline void narrow(float x, bfloat16& y) { y.bits = bfloat16_bits(x); }
__device__ inline void narrow(float x, float16& y) { y.bits = u16(half_bits(x)); }

// One word of memory; the read-only path is for what the whole kernel leaves as it is.
template <class W>
__device__ inline W loaded(const W* p, bool is_constant) {
    return is_constant ? __ldg(p) : *p;
}

// A word of 2, 4, 8 or 16 bytes as 32-bit registers, written past the cache: the rows of X are read
// again, those of Y are not.
template <int BYTES>
struct Word;
template <>
struct Word<2> {
    __device__ static inline void load(const void* p, u32* w, bool is_constant) {
        w[0] = loaded((const u16*)p, is_constant);
    }
    __device__ static inline void store(void* p, const u32* w) { __stcs((u16*)p, u16(w[0])); }
};
template <>
struct Word<4> {
    __device__ static inline void load(const void* p, u32* w, bool is_constant) {
        w[0] = loaded((const u32*)p, is_constant);
    }
    __device__ static inline void store(void* p, const u32* w) { __stcs((u32*)p, w[0]); }
};
template <>
struct Word<8> {
    __device__ static inline void load(const void* p, u32* w, bool is_constant) {
        const uint2 x = loaded((const uint2*)p, is_constant);
        w[0] = x.x, w[1] = x.y;
    }
    __device__ static inline void store(void* p, const u32* w) {
        uint2 x;
        x.x = w[0], x.y = w[1];
        __stcs((uint2*)p, x);
    }
};
template <>
struct Word<16> {
    __device__ static inline void load(const void* p, u32* w, bool is_constant) {
        const uint4 x = loaded((const uint4*)p, is_constant);
        w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
    }
    __device__ static inline void store(void* p, const u32* w) {
        uint4 x;
        x.x = w[0], x.y = w[1], x.z = w[2], x.w = w[3];
        __stcs((uint4*)p, x);
    }
};

// Entry k of a pack that lies in 32-bit registers, and back.
__device__ inline float entry(const u32* w, int k, const float*) { return __uint_as_float(w[k]); }
__device__ inline double entry(const u32* w, int k, const double*) {
    return __longlong_as_double(i64(u64(w[2 * k + 1]) << 32 | w[2 * k]));
}
__device__ inline float entry(const u32* w, int k, const bfloat16*) {
    return __uint_as_float(k % 2 ? w[k / 2] & 0xffff0000u : w[k / 2] << 16);
}
__device__ inline float entry(const u32* w, int k, const float16*) {
    return half_value(w[k / 2] >> 16 * (k % 2) & 0xffff);
}

__device__ inline void set_entry(u32* w, int k, float x, const float*) { w[k] = __float_as_uint(x); }
__device__ inline void set_entry(u32* w, int k, double x, const double*) {
    const u64 bits = u64(__double_as_longlong(x));
    w[2 * k] = u32(bits), w[2 * k + 1] = u32(bits >> 32);
}
__device__ inline void set_half(u32* w, int k, u32 bits) { w[k / 2] = k % 2 ? w[k / 2] | bits << 16 : bits; }
__device__ inline void set_entry(u32* w, int k, float x, const bfloat16*) { set_half(w, k, bfloat16_bits(x)); }
__device__ inline void set_entry(u32* w, int k, float x, const float16*) { set_half(w, k, half_bits(x)); }

// V entries at p, aligned to their size or to 16 bytes.
template <class S, int V>
struct Pack {
    typedef typename Compute<S>::type T;
    static constexpr int BYTES = V * int(sizeof(S)), WORD = BYTES < 16 ? BYTES : 16, REGISTERS = (BYTES + 3) / 4;
    __device__ static inline void load(const S* p, u32* w, bool is_constant = true) {
#pragma unroll
        for (int b = 0; b < BYTES; b += WORD) Word<WORD>::load((const char*)p + b, w + b / 4, is_constant);
    }
    __device__ static inline void store(S* p, const T* x) {
        u32 w[REGISTERS];
#pragma unroll
        for (int k = 0; k < V; ++k) set_entry(w, k, x[k], p);
#pragma unroll
        for (int b = 0; b < BYTES; b += WORD) Word<WORD>::store((char*)p + b, w + b / 4);
    }
};

template <class T>
__device__ inline T positive(T x) {
    return x < T(0) ? T(0) : x;  // NaN stays, as in torch.relu
}

// A product that is not merged with the sum around it: a score is the same number in each kernel.
__device__ inline float product(float x, float y) { return __fmul_rn(x, y); }
__device__ inline double product(double x, double y) { return __dmul_rn(x, y); }

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }

// The finaliser of splitmix64, and two rounds of a 32-bit mixer: bits of (row key, feature), see dense.h.
__device__ inline u64 mix(u64 x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

__device__ inline u32 mix32(u32 x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ inline u64 row_key(u64 key, i64 node) { return mix(key ^ mix(u64(node) + 0x9e3779b97f4a7c15ull)); }
__device__ inline u32 drop_bits(u64 row, u32 feature) {
    return mix32(mix32(feature * 0x9e3779b9u + u32(row)) ^ u32(row >> 32));
}

// Vectors of one instruction set.
//
// A row of any width needs no masks: the last vector overlaps the one before it, so width 41 is
// three loads of 16 lanes at 0, 16 and 25. Widths below one vector use a narrower one.
#pragma once

#include "isa.h"

namespace spgnn::SPGNN_SET {

// 32-bit lanes whose upper halves are the 16-bit numbers at p, and back.
template <int BYTES>
struct Halves;

#ifdef SPGNN_DISPATCH
template <>
struct Halves<16> {
    static inline __m128i load(const uint16_t* p) {
        return _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    }
    static inline void store(uint16_t* p, __m128i v) {
        v = _mm_srai_epi32(v, 16);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(v, v));
    }
};
#if SPGNN_BYTES >= 32
template <>
struct Halves<32> {
    static inline __m256i load(const uint16_t* p) {
        return _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
    }
    static inline void store(uint16_t* p, __m256i v) {
        v = _mm256_srai_epi32(v, 16);
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(v, v), 0x08);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
    }
};
#endif
#if SPGNN_BYTES >= 64
template <>
struct Halves<64> {
    static constexpr __mmask16 all = 0xffff;  // gcc 12 warns of its own unmasked forms
    static inline __m512i load(const uint16_t* p) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return _mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, halves), 16);
    }
    static inline void store(uint16_t* p, __m512i v) {
        v = _mm512_maskz_srli_epi32(all, v, 16);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtepi32_epi16(all, v));
    }
};
#endif
#else
template <>
struct Halves<16> {
    typedef uint32_t reg __attribute__((vector_size(16)));
    static inline reg load(const uint16_t* p) {
        return reg{uint32_t(p[0]) << 16, uint32_t(p[1]) << 16, uint32_t(p[2]) << 16, uint32_t(p[3]) << 16};
    }
    static inline void store(uint16_t* p, reg v) {
        for (int i = 0; i < 4; ++i) p[i] = uint16_t(v[i] >> 16);
    }
};
#endif

template <class T, int BYTES>
struct Lanes {
    static constexpr int count = BYTES / sizeof(T);
    typedef T vec __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
    typedef T reg __attribute__((vector_size(BYTES)));
    static inline reg load(const T* p) { return *reinterpret_cast<const vec*>(p); }
    static inline void store(T* p, reg v) { *reinterpret_cast<vec*>(p) = v; }
    static inline reg all(T x) { return x - reg{}; }

    static inline reg load(const bfloat16* p) { return (reg)Halves<BYTES>::load(p); }
    static inline void store(bfloat16* p, reg v) {  // rounded as narrow() of arguments.h does
        typedef decltype(v < v) ints;
        const ints b = (ints)v, rounded = b + 0x7fff + (b >> 16 & 1), quiet = b | 0x400000;
        const ints up = v == v ? rounded : quiet;
        Halves<BYTES>::store(p, (decltype(Halves<BYTES>::load(p)))up);
    }
};

template <class T>
struct Lanes<T, 0> {  // one scalar
    static constexpr int count = 1;
    typedef T reg;
    template <class S>
    static inline reg load(const S* p) {
        return widen(*p);
    }
    template <class S>
    static inline void store(S* p, reg v) {
        narrow(v, *p);
    }
    static inline reg all(T x) { return x; }
};

template <class V>
static inline typename V::reg positive(typename V::reg x) {
    return x < typename V::reg{} ? typename V::reg{} : x;  // NaN stays, as in torch.relu
}

// sum + w x, in NV sums side by side. A single one is a chain of additions, each of which waits for the one before: the
// product is kept out of it, as an addition alone is sooner done than a fused one (Zen 5: 2 cycles, not 4). Loops that
// are to give the same bits add with this.
template <class V, int NV>
static inline __attribute__((always_inline)) typename V::reg plus(typename V::reg sum, typename V::reg w,
                                                                  typename V::reg x) {
    x *= w;
    if constexpr (NV == 1) {
#if defined(__x86_64__)
        asm("" : "+v"(x));  // the compiler does not fuse across this
#elif defined(__aarch64__)
        asm("" : "+w"(x));
#endif
    }
    return sum + x;
}

}  // namespace spgnn::SPGNN_SET

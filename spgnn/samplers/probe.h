// Sixteen uniform probes of the Dashboard at a time, for each instruction set: 0 baseline, 1 AVX2, 2 AVX-512. All take
// the same random numbers and return the same probe.
#pragma once

#include <cstdint>

#include "../native/cpu.h"
#include "../native/rng.h"

#ifdef SPGNN_DISPATCH
#include <immintrin.h>
#endif

namespace spgnn {

// Eight streams of xoshiro256++ side by side, word k of all streams in one vector.
struct alignas(64) Streams {
    uint64_t s[4][8];

    void seed(uint64_t seed, uint64_t stream, uint64_t index) {
        Rng rng(seed, stream, index);
        for (int k = 0; k < 8; ++k)
            for (auto& word : s) word[k] = rng.next();
    }
};

// Probe 2 k is the lower half of word k, probe 2 k + 1 its upper half: x = half * total / 2^32, or no probe where that
// would be biased (Lemire 2019). A probe is live if x is on the board, below used, and DB[x] is not NULL, or if x
// belongs to the hubs. Returns the first live x in this order, -1 if there is none.
inline int64_t first_live(const uint64_t* words, const int32_t* db, uint32_t used, uint32_t total) {
    uint32_t least = 0;
    for (int k = 0; k < 16; ++k) {
        const uint64_t product = uint64_t(uint32_t(words[k / 2] >> (k % 2 * 32))) * total;
        if (uint32_t(product) < total) {
            if (!least) least = -total % total;
            if (uint32_t(product) < least) continue;
        }
        const uint32_t x = uint32_t(product >> 32);
        if (x >= used || db[x] >= 0) return x;
    }
    return -1;
}

// One round of 16 probes, 0 < total < 2^31.
inline int64_t probe_base(Streams& streams, const int32_t* db, uint32_t used, uint32_t total) {
    uint64_t words[8];
    auto* s = streams.s;
    for (int k = 0; k < 8; ++k) {
        const uint64_t sum = s[0][k] + s[3][k], t = s[1][k] << 17;
        words[k] = ((sum << 23) | (sum >> 41)) + s[0][k];
        s[2][k] ^= s[0][k];
        s[3][k] ^= s[1][k];
        s[1][k] ^= s[2][k];
        s[0][k] ^= s[3][k];
        s[2][k] ^= t;
        s[3][k] = (s[3][k] << 45) | (s[3][k] >> 19);
    }
    return first_live(words, db, used, total);
}

#ifdef SPGNN_DISPATCH
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of its own header (its bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
__attribute__((target("avx2"))) inline int64_t probe_avx2(Streams& streams, const int32_t* db, uint32_t used,
                                                          uint32_t total) {
    alignas(32) uint64_t words[8];
    alignas(32) uint32_t x[8];
    for (int half = 0; half < 2; ++half) {
        __m256i* s[4];
        for (int k = 0; k < 4; ++k) s[k] = reinterpret_cast<__m256i*>(streams.s[k]) + half;
        __m256i a = *s[0], b = *s[1], c = *s[2], d = *s[3];
        const __m256i sum = _mm256_add_epi64(a, d), t = _mm256_slli_epi64(b, 17);
        const __m256i turned = _mm256_or_si256(_mm256_slli_epi64(sum, 23), _mm256_srli_epi64(sum, 41));
        _mm256_store_si256(reinterpret_cast<__m256i*>(words) + half, _mm256_add_epi64(turned, a));
        c = _mm256_xor_si256(c, a);
        d = _mm256_xor_si256(d, b);
        *s[1] = _mm256_xor_si256(b, c);
        *s[0] = _mm256_xor_si256(a, d);
        *s[2] = _mm256_xor_si256(c, t);
        *s[3] = _mm256_or_si256(_mm256_slli_epi64(d, 45), _mm256_srli_epi64(d, 19));
    }
    const __m256i n = _mm256_set1_epi32(int(total)), board = _mm256_set1_epi32(int(used));
    for (int half = 0; half < 2; ++half) {
        const __m256i word = reinterpret_cast<const __m256i*>(words)[half];
        const __m256i even = _mm256_mul_epu32(word, n), odd = _mm256_mul_epu32(_mm256_srli_epi64(word, 32), n);
        const __m256i at = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
        const __m256i low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
        const __m256i is_fine = _mm256_cmpeq_epi32(_mm256_max_epu32(low, n), low);  // low >= n: without bias for sure
        if (_mm256_movemask_epi8(is_fine) != -1) return first_live(words, db, used, total);
        const __m256i on_board = _mm256_cmpgt_epi32(board, at), none = _mm256_set1_epi32(-1);
        const __m256i slot = _mm256_mask_i32gather_epi32(none, db, at, on_board, 4);
        const __m256i is_null = _mm256_and_si256(on_board, _mm256_cmpgt_epi32(_mm256_setzero_si256(), slot));
        const int live = ~_mm256_movemask_ps(_mm256_castsi256_ps(is_null)) & 0xff;
        if (!live) continue;
        _mm256_store_si256(reinterpret_cast<__m256i*>(x), at);
        return x[__builtin_ctz(live)];
    }
    return -1;
}

__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"))) inline int64_t probe_avx512(Streams& streams,
                                                                                          const int32_t* db,
                                                                                          uint32_t used,
                                                                                          uint32_t total) {
    __m512i a = _mm512_load_si512(streams.s[0]), b = _mm512_load_si512(streams.s[1]);
    __m512i c = _mm512_load_si512(streams.s[2]), d = _mm512_load_si512(streams.s[3]);
    const __m512i word = _mm512_add_epi64(_mm512_rol_epi64(_mm512_add_epi64(a, d), 23), a);
    const __m512i t = _mm512_slli_epi64(b, 17);
    c = _mm512_xor_si512(c, a);
    d = _mm512_xor_si512(d, b);
    _mm512_store_si512(streams.s[1], _mm512_xor_si512(b, c));
    _mm512_store_si512(streams.s[0], _mm512_xor_si512(a, d));
    _mm512_store_si512(streams.s[2], _mm512_xor_si512(c, t));
    _mm512_store_si512(streams.s[3], _mm512_rol_epi64(d, 45));
    const __m512i n = _mm512_set1_epi32(int(total));
    const __m512i even = _mm512_mul_epu32(word, n), odd = _mm512_mul_epu32(_mm512_srli_epi64(word, 32), n);
    const __m512i at = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    const __m512i low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
    if (_mm512_cmplt_epu32_mask(low, n)) {
        alignas(64) uint64_t words[8];
        _mm512_store_si512(words, word);
        return first_live(words, db, used, total);
    }
    const __mmask16 on_board = _mm512_cmplt_epu32_mask(at, _mm512_set1_epi32(int(used)));
    const __m512i slot = _mm512_mask_i32gather_epi32(_mm512_set1_epi32(0), on_board, at, db, 4);
    const __mmask16 live = _mm512_cmpge_epi32_mask(slot, _mm512_setzero_si512());
    if (!live) return -1;
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_maskz_compress_epi32(live, at)));
}
#pragma GCC diagnostic pop
#endif

using Probe = int64_t (*)(Streams&, const int32_t*, uint32_t, uint32_t);

inline Probe probe_of(int isa) {
#ifdef SPGNN_DISPATCH
    if (isa == 2) return probe_avx512;
    if (isa == 1) return probe_avx2;
#endif
    return probe_base;
}

}  // namespace spgnn

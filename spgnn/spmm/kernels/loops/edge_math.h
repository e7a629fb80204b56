// Block arrays, one entry for each head of each nonzero: exponential, logarithm, sums over nonzeros.
#pragma once

#include "edge_block.h"
#include "lanes.h"

namespace spgnn::SPGNN_SET {

template <class T>
using Full = Lanes<T, SPGNN_BYTES>;
template <class T>
using Reg = typename Full<T>::reg;

// Of block arrays: entry h of nonzero e is at e * stride + h, and an array ends at a multiple of `period`.
template <int KT>  // K where it has a path of its own (1, 2, 4, 8, 16), else 0
struct Heads {
    int64_t number, padded;
    explicit Heads(int64_t K) : number(K), padded(padded_heads(K)) {}
    inline int64_t K() const { return KT ? KT : number; }
    inline int64_t stride() const { return KT ? KT : padded; }
    template <class T>
    inline int64_t period() const {
        return std::max<int64_t>(stride(), Full<T>::count);
    }
    template <class T>
    inline int64_t length(int64_t n) const {
        return (n * stride() + period<T>() - 1) / period<T>() * period<T>();
    }
};

// The number of heads that loops are compiled for: few for double and for SSE2, which hardly any
// machine is limited to.
static constexpr int heads_here(int KT, int bytes) {
    return (SPGNN_BYTES > 16 && bytes == 4) || KT == 1 || KT == 8 ? KT : 0;
}

// f(Heads of K), with loops of their own where K has them, else of any number.
template <class T, class F>
static inline void of_heads(int64_t K, const F& f) {
    switch (K) {
        case 1:
            return f(Heads<heads_here(1, sizeof(T))>(K));
        case 2:
            return f(Heads<heads_here(2, sizeof(T))>(K));
        case 4:
            return f(Heads<heads_here(4, sizeof(T))>(K));
        case 8:
            return f(Heads<heads_here(8, sizeof(T))>(K));
        case 16:
            return f(Heads<heads_here(16, sizeof(T))>(K));
        default:
            return f(Heads<0>(K));
    }
}

// The vector that the heads of a row fit best, of 16 bytes at least; a load of more than was stored would wait for it.
template <int KT, class T>
using HeadLanes = Lanes<T, KT == 0 ? SPGNN_BYTES : std::min(SPGNN_BYTES, std::max(16, KT* int(sizeof(T))))>;

// exp(x) for x <= 0 in every lane, to 2 units in the last place; 0 where it would be subnormal, NaN stays. x = k ln 2 +
// r, a polynomial in r, exponent bits by k; adding 1.5 * 2^23, or 2^52, rounds to the nearest integer, in the low bits.
// LESS_ONE: exp(x) - 1, as exact for small x.
template <class T, int BYTES, bool LESS_ONE = false>
static inline __attribute__((always_inline)) typename Lanes<T, BYTES>::reg exp_of(typename Lanes<T, BYTES>::reg given) {
    typedef Lanes<T, BYTES> V;
    typedef typename V::reg reg;
    typedef decltype(given < given) ints;
    constexpr bool SINGLE = sizeof(T) == 4;
    const reg least = V::all(SINGLE ? T(-87) : T(-708)), magic = V::all(SINGLE ? T(12582912) : T(6755399441055744.0));
    const reg x = given < least ? least : given, zero = {};
    const reg t = x * T(1.4426950408889634) + magic, k = t - magic;
    reg p, r;
    if constexpr (SINGLE) {
        r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
        p = r * 1.9875691500e-4f + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
    } else {
        r = (x - k * 6.93147180369123816490e-1) - k * 1.90821492927058770002e-10;
        p = r * (1 / 6227020800.0) + 1 / 479001600.0;  // Taylor's terms up to r^13 / 13!
        for (const double factor : {1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0, 1 / 720.0,
                                    1 / 120.0, 1 / 24.0, 1 / 6.0, 0.5})
            p = p * r + factor;
    }
    const reg power = (reg)(((ints)t - (ints)magic + (SINGLE ? 127 : 1023)) << (SINGLE ? 23 : 52));
    if constexpr (LESS_ONE) return given < least ? V::all(T(-1)) : (p * r * r + r) * power + (power - T(1));
    p = p * r * r + r + T(1);
    p = p * power;
    return given < least ? zero : p;
}

// exp(e - top) of a score that backward computes again: at most 1, even where a compiler rounds it in another way.
template <class T>
static inline __attribute__((always_inline)) typename Lanes<T, SPGNN_BYTES>::reg share_of(
    typename Lanes<T, SPGNN_BYTES>::reg x) {
    return exp_of<T, SPGNN_BYTES>(x > 0 ? typename Lanes<T, SPGNN_BYTES>::reg{} : x);
}

// ln(x) of a normal x > 0 in every lane; NaN stays. x = 2^k m, m near 1, ln m = 2 artanh((m - 1) / (m + 1)) as a
// series.
template <class T, int BYTES>
static inline __attribute__((always_inline)) typename Lanes<T, BYTES>::reg log_of(typename Lanes<T, BYTES>::reg x) {
    constexpr bool SINGLE = sizeof(T) == 4;
    constexpr int BITS = SINGLE ? 23 : 52;
    typedef Lanes<T, BYTES> V;
    typedef typename V::reg reg;
    typedef decltype(x < x) ints;
    const ints bits = (ints)x, power = (bits - (ints)V::all(T(0.70710678118654752))) >> BITS;
    const reg m = (reg)(bits - (power << BITS)), k = __builtin_convertvector(power, reg);
    const reg r = (m - T(1)) / (m + T(1)), square = r * r;
    reg p = V::all(T(2) / (SINGLE ? 11 : 23));
    for (int odd = SINGLE ? 9 : 21; odd > 1; odd -= 2) p = p * square + T(2) / T(odd);
    const reg ln = k * T(0.693359375) + (r * T(2) + (p * square * r - k * T(2.12194440054690583e-4)));
    return x == x ? ln : x;
}

// (a, b)
template <class T, int BYTES>
static inline __attribute__((always_inline)) typename Lanes<T, BYTES>::reg joined(typename Lanes<T, BYTES / 2>::reg a,
                                                                                  typename Lanes<T, BYTES / 2>::reg b) {
#if SPGNN_BYTES >= 64
    if constexpr (BYTES == 64) {
        __m512 wide = _mm512_maskz_broadcast_f32x8(0xffff, (__m256)a);
        return (typename Lanes<T, BYTES>::reg)_mm512_maskz_insertf32x8(0xffff, wide, (__m256)b, 1);
    }
#endif
#if SPGNN_BYTES >= 32
    if constexpr (BYTES == 32)
        return (typename Lanes<T, BYTES>::reg)_mm256_insertf128_ps(_mm256_castps128_ps256((__m128)a), (__m128)b, 1);
#endif
    __builtin_unreachable();
}

// Lane e K + k: base[at[e] stride + k]; of more heads than lanes those of at[0] from base on.
template <int KT, int BYTES, class T>
static inline __attribute__((always_inline)) typename Lanes<T, BYTES>::reg gathered(const T* base, const int64_t* at,
                                                                                    int64_t stride) {
    typedef Lanes<T, BYTES> V;
    if constexpr (V::count <= KT) {
        return V::load(base + at[0] * stride);
    } else if constexpr (BYTES > 16) {
        constexpr int HALF = V::count / KT / 2;
        return joined<T, BYTES>(gathered<KT, BYTES / 2, T>(base, at, stride),
                                gathered<KT, BYTES / 2, T>(base, at + HALF, stride));
    } else {
        typename V::reg v;
        for (int e = 0; e < V::count / KT; ++e)
            for (int k = 0; k < KT; ++k) v[e * KT + k] = base[at[e] * stride + k];
        return v;
    }
}

// The vector at p, in pieces of K entries as they were stored.
template <int KT, int BYTES, class T>
static inline __attribute__((always_inline)) typename Lanes<T, BYTES>::reg in_pieces(const T* p) {
    typedef Lanes<T, BYTES> V;
    if constexpr (V::count <= KT || BYTES == 16 || KT == 0)
        return V::load(p);
    else
        return joined<T, BYTES>(in_pieces<KT, BYTES / 2, T>(p), in_pieces<KT, BYTES / 2, T>(p + V::count / 2));
}

struct Most {
    static constexpr bool IS_SUM = false;
    template <class R>
    static inline __attribute__((always_inline)) R of(R a, R b) {
        return b > a ? b : a;  // a is never NaN: what begins at -inf leaves it out
    }
};
struct Total {
    static constexpr bool IS_SUM = true;
    template <class R>
    static inline __attribute__((always_inline)) R of(R a, R b) {
        return a + b;
    }
};

// out[h] = lanes of v combined that hold head h, K heads in turn.
template <class Op, int K, class T, int BYTES>
static inline __attribute__((always_inline)) void fold_heads(typename Lanes<T, BYTES>::reg v, T* out) {
    typedef Lanes<T, BYTES> V;
    if constexpr (V::count == K) {
        V::store(out, v);
    } else if constexpr (BYTES > 16) {
        typedef Lanes<T, BYTES / 2> Half;
        T a[V::count];
        V::store(a, v);
        fold_heads<Op, K, T, BYTES / 2>(Op::of(Half::load(a), Half::load(a + Half::count)), out);
    } else if constexpr (V::count == 4 && K == 2) {
        out[0] = Op::of(v[0], v[2]);
        out[1] = Op::of(v[1], v[3]);
    } else if constexpr (V::count == 4) {
        out[0] = Op::of(Op::of(v[0], v[2]), Op::of(v[1], v[3]));
    } else {
        out[0] = Op::of(v[0], v[1]);
    }
}

// Entries of each head combined, in whole vectors of a block array; v: place of a vector within the period.
template <class Op, int KT, class T>
struct HeadSums {
    typedef Full<T> V;
    static constexpr int NW = KT > V::count ? KT / V::count : 1;
    Reg<T> sums[NW];
    inline __attribute__((always_inline)) HeadSums() {
        for (int w = 0; w < NW; ++w) sums[w] = V::all(Op::IS_SUM ? T(0) : -std::numeric_limits<T>::infinity());
    }
    inline __attribute__((always_inline)) void add(int64_t v, Reg<T> x) {
        sums[v / V::count] = Op::of(sums[v / V::count], x);
    }
    inline __attribute__((always_inline)) void store(T* out) const {
        if constexpr (KT > V::count)
            for (int w = 0; w < NW; ++w) V::store(out + w * V::count, sums[w]);
        else
            fold_heads<Op, KT, T, SPGNN_BYTES>(sums[0], out);
    }
};

// out[h] = entries of head h of n nonzeros combined, for any number of heads.
template <class Op, class T>
static inline void reduce(Heads<0> h, const T* block, int64_t n, T* out) {
    std::fill_n(out, h.stride(), Op::IS_SUM ? T(0) : -std::numeric_limits<T>::infinity());
    for (int64_t e = 0; e < n; ++e)
        for (int64_t k = 0; k < h.K(); ++k) out[k] = Op::of(out[k], block[e * h.stride() + k]);
}

template <int KT, class T>
static inline __attribute__((always_inline)) void copy_heads(Heads<KT> h, const T* from, T* to) {
    if constexpr (KT > 0)
        std::memcpy(to, from, KT * sizeof(T));
    else
        std::copy_n(from, h.K(), to);
}

// The entries of K heads repeated up to the period.
template <int KT, class T>
static inline void repeat(Heads<KT> h, const T* heads, T* pattern) {
    for (int64_t q = 0; q < h.template period<T>(); q += h.stride()) copy_heads(h, heads, pattern + q);
}

// f(q, v) for each vector of a block array: at q + v, v within the period.
template <int KT, class T, class F>
static inline __attribute__((always_inline)) void each_vector(Heads<KT> h, int64_t n, const F& f) {
    const int64_t length = h.template length<T>(n), period = h.template period<T>();
    for (int64_t q = 0; q < length; q += period)
        for (int64_t v = 0; v < period; v += Full<T>::count) f(q + v, v);
}

// x in the first lanes, as many as valid, else other.
template <class V, class T>
static inline __attribute__((always_inline)) typename V::reg only(typename V::reg x, int64_t valid, T other) {
    typename V::reg lane;
    for (int l = 0; l < V::count; ++l) lane[l] = T(l);
    return lane < V::all(T(valid)) ? x : V::all(other);
}

// CHUNK bytes at p, again and again.
template <class V, int CHUNK>
static inline __attribute__((always_inline)) typename V::reg spread_bytes(const void* p) {
    constexpr int BYTES = sizeof(typename V::reg);
    if constexpr (CHUNK >= BYTES) {
        typename V::reg v;
        std::memcpy(&v, p, BYTES);
        return v;
    } else if constexpr (CHUNK == 4 || CHUNK == 8) {
        typedef std::conditional_t<CHUNK == 4, int32_t, int64_t> word;
        typedef word words __attribute__((vector_size(BYTES)));
        word x;
        std::memcpy(&x, p, CHUNK);
        return (typename V::reg)(x - words{});
    } else {
#if SPGNN_BYTES >= 64
        if constexpr (BYTES == 64 && CHUNK == 16)
            return (typename V::reg)_mm512_maskz_broadcast_f32x4(0xffff, _mm_loadu_ps(static_cast<const float*>(p)));
        if constexpr (BYTES == 64 && CHUNK == 32)
            return (typename V::reg)_mm512_maskz_broadcast_f32x8(0xffff, _mm256_loadu_ps(static_cast<const float*>(p)));
#endif
#if SPGNN_BYTES >= 32
        if constexpr (BYTES == 32) return (typename V::reg)_mm256_broadcast_ps(static_cast<const __m128*>(p));
#endif
        __builtin_unreachable();
    }
}

// The weights of the heads of columns [column, column + V::count).
template <class V, int K, class T>
static inline __attribute__((always_inline)) typename V::reg of_columns(const T* heads, int64_t column) {
    if constexpr (K < V::count)
        return spread_bytes<V, K * sizeof(T)>(heads);
    else if constexpr (K == V::count)
        return V::load(heads);
    else
        return V::load(heads + column % K);
}

}  // namespace spgnn::SPGNN_SET

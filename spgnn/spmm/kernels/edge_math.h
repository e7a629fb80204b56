// Block arrays, one entry for each head of each nonzero: exponential, logarithm, sums over nonzeros. Included once for
// each instruction set; needs edge_block.h, storage.h and lanes.h.

#include "hash.h"

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

// The number of heads that loops are made for where KT is asked for: few of double, and in the instruction set that
// hardly a machine is left with.
static constexpr int heads_here(int KT, int bytes) {
    return (SPGNN_BYTES > 16 && bytes == 4) || KT == 1 || KT == 8 ? KT : 0;
}

// exp(x) for x <= 0 in every lane, to 2 units in the last place; 0 where it would be subnormal, NaN stays.
static inline Reg<float> exp_of(Reg<float> x) {
    typedef decltype(x < x) ints;
    const Reg<float> least = Full<float>::all(-87.0f), magic = Full<float>::all(12582912.0f), zero = {};
    const Reg<float> t = (x < least ? least : x) * 1.44269504f + magic, k = t - magic;
    const Reg<float> r = ((x < least ? least : x) - k * 0.693359375f) + k * 2.12194440e-4f;
    Reg<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    p = p * (Reg<float>)(((ints)t - (ints)magic + 127) << 23);
    return x < least ? zero : p;
}

static inline Reg<double> exp_of(Reg<double> x) {
    typedef decltype(x < x) ints;
    const Reg<double> least = Full<double>::all(-708.0), magic = Full<double>::all(6755399441055744.0), zero = {};
    const Reg<double> t = (x < least ? least : x) * 1.4426950408889634 + magic, k = t - magic;
    const Reg<double> r = ((x < least ? least : x) - k * 6.93147180369123816490e-1) - k * 1.90821492927058770002e-10;
    Reg<double> p = r * (1 / 6227020800.0) + 1 / 479001600.0;  // Taylor's terms up to r^13 / 13!
    for (const double factor : {1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0, 1 / 720.0,
                                1 / 120.0, 1 / 24.0, 1 / 6.0, 0.5})
        p = p * r + factor;
    p = p * r * r + r + 1.0;
    p = p * (Reg<double>)(((ints)t - (ints)magic + 1023) << 52);
    return x < least ? zero : p;
}

// ln(x) for x >= 1: Halley's iteration on exp from the bits of x, which are log2(x) to 0.09.
template <class T>
static inline Reg<T> log_of(Reg<T> x) {
    constexpr bool SINGLE = sizeof(T) == 4;
    typedef decltype(x < x) ints;
    const ints one = (ints)Full<T>::all(T(1));
    Reg<T> y = __builtin_convertvector((ints)x - one, Reg<T>) * T(0.6931471805599453 / (SINGLE ? 1 << 23 : 1ll << 52));
    for (int i = 0; i < (SINGLE ? 2 : 3); ++i) {
        const Reg<T> z = x * exp_of(-y);
        y += T(2) * (z - T(1)) / (z + T(1));
    }
    return y;
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

// out[h] = entries of head h of n nonzeros combined. What follows them up to the period is the identity of Op.
template <class Op, int KT, class T>
static inline void reduce(Heads<KT> h, const T* block, int64_t n, T* out) {
    const T identity = Op::IS_SUM ? T(0) : -std::numeric_limits<T>::infinity();
    typedef Full<T> V;
    if constexpr (KT > 0) {
        constexpr int NW = KT > V::count ? KT / V::count : 1;
        Reg<T> sums[NW];
        for (int v = 0; v < NW; ++v) sums[v] = V::all(identity);
        const int64_t length = h.template length<T>(n);
        for (int64_t q = 0; q < length; q += NW * V::count)
            for (int v = 0; v < NW; ++v) sums[v] = Op::of(sums[v], V::load(block + q + v * V::count));
        if constexpr (KT > V::count)
            for (int v = 0; v < NW; ++v) V::store(out + v * V::count, sums[v]);
        else
            fold_heads<Op, KT, T, SPGNN_BYTES>(sums[0], out);
    } else {
        std::fill_n(out, h.stride(), identity);
        for (int64_t e = 0; e < n; ++e)
            for (int64_t k = 0; k < h.K(); ++k) out[k] = Op::of(out[k], block[e * h.stride() + k]);
    }
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

// Of a block array, what follows n nonzeros up to the period.
template <int KT, class T>
static inline void fill_rest(Heads<KT> h, int64_t n, T* block, T value) {
    for (int64_t q = n * h.stride(); q < h.template length<T>(n); ++q) block[q] = value;
}

// Row-wise passes over dense (n, C) matrices that a training step needs between its products.
#pragma once

#include "act.h"

namespace spgnn::SPGNN_SET {

template <int ACT, class S>
static inline void mask_rows_of(const S* G, const S* H, S* out, double* sums, int64_t begin, int64_t end, int64_t C) {
    // Sums of 64 rows are kept in T, then added in double: fast, and independent of the thread count.
    typedef typename Compute<S>::type T;
    std::vector<T> part(C);
    for (int64_t r = begin; r < end; r += 64) {
        std::fill(part.begin(), part.end(), T(0));
        T* __restrict s = part.data();
        for (int64_t i = r; i < std::min(r + 64, end); ++i) {
            const S* g = G + i * C;
            if (out) {
                const S* h = H + i * C;
                S* __restrict o = out + i * C;
                for (int64_t c = 0; c < C; ++c) {
                    S x;
                    narrow(through<ACT>(T(widen(g[c])), T(widen(h[c]))), x);
                    o[c] = x;
                    s[c] += widen(x);
                }
            } else {
                for (int64_t c = 0; c < C; ++c) s[c] += widen(g[c]);
            }
        }
        for (int64_t c = 0; c < C; ++c) sums[c] += s[c];
    }
}

// out = G act'(Z + b), H = act(Z + b) (null: out = G); sums[c] += out[:, c]. out may be null: sums alone; or G.
template <class S>
void mask_rows(const S* G, const S* H, S* out, double* sums, int act, int64_t begin, int64_t end, int64_t C) {
    with_act(act, [&](auto a) { mask_rows_of<a.value>(G, H, out, sums, begin, end, C); });
}

// out = act(Z + bias), bias null: none; in place where out is Z.
template <class S, class D, class T>
void finish_rows(const S* Z, D* out, const T* bias, int act, int64_t begin, int64_t end, int64_t C) {
    with_act(act, [&](auto a) {
        for (int64_t i = begin; i < end; ++i) end_row<a.value>(Z + i * C, out + i * C, bias, C);
    });
}

// out[i, f] = X[i, f] scale where bits(key, node[i], f) >= threshold, else 0.
template <class S, class T>
void drop_rows(const S* X, S* out, const int64_t* node, uint64_t key, uint32_t threshold, T scale, int64_t begin,
               int64_t end, int64_t F) {
    for (int64_t i = begin; i < end; ++i) {
        const uint64_t row = mix(key ^ drop_id(node[i]));
        const uint32_t low = uint32_t(row), high = uint32_t(row >> 32);
        const S* x = X + i * F;
        S* o = out + i * F;
        for (int64_t f = 0; f < F; ++f)
            narrow(drop_bits(low, high, uint32_t(f)) >= threshold ? widen(x[f]) * scale : T(0), o[f]);
    }
}

// The same for the stored entries of a CSR X: the mask of (node, feature) is the dense one's.
template <class T, class I>
void drop_csr(const int64_t* indptr, const I* indices, const T* X, T* out, const int64_t* node, uint64_t key,
              uint32_t threshold, T scale, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        const uint64_t row = mix(key ^ drop_id(node[i]));
        const uint32_t low = uint32_t(row), high = uint32_t(row >> 32);
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e)
            out[e] = drop_bits(low, high, uint32_t(indices[e])) >= threshold ? X[e] * scale : T(0);
    }
}

// Combine the lanes of v by halves.
template <class Op, int BYTES>
static inline __attribute__((always_inline)) float fold(typename Lanes<float, BYTES>::reg v) {
    if constexpr (BYTES == 16) {
        return Op::of(Op::of(v[0], v[2]), Op::of(v[1], v[3]));
    } else {
        typedef Lanes<float, BYTES / 2> Half;
        float a[2 * Half::count];
        Lanes<float, BYTES>::store(a, v);
        return fold<Op, BYTES / 2>(Op::of(Half::load(a), Half::load(a + Half::count)));
    }
}

struct Larger {
    template <class T>
    static inline __attribute__((always_inline)) T of(T a, T b) {
        return b > a ? b : a;
    }
};
struct Sum {
    template <class T>
    static inline __attribute__((always_inline)) T of(T a, T b) {
        return a + b;
    }
};

// g = scale softmax(z) for a row of C numbers in NV vectors, of which the last overlaps the one before; top = max z.
// Returns the sum of exp(z - top). is_new: 1 in the lanes of the last vector that are in no other, else 0. g may be z.
template <class V, int NV>
static inline float softmax_row(const float* z, float* g, int64_t C, float scale, typename V::reg is_new, float& top) {
    typename V::reg x[NV];
    for (int n = 0; n < NV; ++n) x[n] = V::load(z + (n < NV - 1 ? n * V::count : C - V::count));
    typename V::reg m = x[0], sum = V::all(0.0f);
    for (int n = 1; n < NV; ++n) m = Larger::of(m, x[n]);
    top = fold<Larger, V::count * 4>(m);
    for (int n = 0; n < NV; ++n) {
        x[n] = exp_of<float, V::count * 4>(x[n] - top);
        sum += n < NV - 1 ? x[n] : x[n] * is_new;
    }
    const float total = fold<Sum, V::count * 4>(sum), factor = scale / total;
    for (int n = 0; n < NV; ++n) V::store(g + (n < NV - 1 ? n * V::count : C - V::count), x[n] * factor);
    return total;
}

// The same for a row of any width from one vector on.
template <class V>
static inline float softmax_long_row(const float* z, float* g, int64_t C, float scale, typename V::reg is_new,
                                     float& top) {
    constexpr int64_t L = V::count;
    const int64_t before = (C - 1) / L * L, last = C - L;
    const typename V::reg tail = V::load(z + last);  // before g is written over it
    typename V::reg m = tail, sum = V::all(0.0f);
    for (int64_t c = 0; c < before; c += L) m = Larger::of(m, V::load(z + c));
    const float largest = top = fold<Larger, V::count * 4>(m);
    for (int64_t c = 0; c < before; c += L) {
        const typename V::reg e = exp_of<float, V::count * 4>(V::load(z + c) - largest);
        V::store(g + c, e);
        sum += e;
    }
    const typename V::reg e = exp_of<float, V::count * 4>(tail - largest);
    const float total = fold<Sum, V::count * 4>(sum + e * is_new), factor = scale / total;
    for (int64_t c = 0; c < before; c += L) V::store(g + c, V::load(g + c) * factor);
    V::store(g + last, e * factor);
    return total;
}

// Rows too narrow for a vector, or of double.
template <class T>
static inline T softmax_plain_row(const T* z, T* g, int64_t C, T scale, T& top) {
    top = z[0];
    for (int64_t c = 1; c < C; ++c) top = z[c] > top ? z[c] : top;
    T sum = 0;
    for (int64_t c = 0; c < C; ++c) sum += g[c] = std::exp(z[c] - top);
    const T factor = scale / sum;
    for (int64_t c = 0; c < C; ++c) g[c] *= factor;
    return sum;
}

// The loss of rows of NV vectors, of any number of them for 0; of rows without vectors for -1.
template <class V, int NV, class T>
static inline double xent_of(const T* Z, const int64_t* y, T scale, T* G, int64_t begin, int64_t end, int64_t C) {
    T is_new[V::count];
    for (int64_t l = 0; l < V::count; ++l) is_new[l] = C - V::count + l >= (C - 1) / V::count * V::count ? T(1) : T(0);
    double loss = 0;
    T sums[64];  // of rows whose logarithm is still to be taken
    int waiting = 0;
    for (int64_t i = begin; i < end; ++i) {
        const T* z = Z + i * C;
        T* g = G + i * C;
        if (y[i] < 0) {
            std::fill_n(g, C, T(0));
        } else {
            const T label = z[y[i]];  // before g is written, which may be z
            T top;
            if constexpr (NV > 0)
                sums[waiting++] = softmax_row<V, NV>(z, g, C, scale, V::load(is_new), top);
            else if constexpr (NV == 0)
                sums[waiting++] = softmax_long_row<V>(z, g, C, scale, V::load(is_new), top);
            else
                sums[waiting++] = softmax_plain_row(z, g, C, scale, top);
            g[y[i]] -= scale;
            loss += double(top) - double(label);
        }
        if (waiting == 64 || (i + 1 == end && waiting)) {
            for (int w = 0; w < waiting; ++w) loss += double(std::log(sums[w]));  // a NaN in a row is in its sum
            waiting = 0;
        }
    }
    return loss;
}

template <int BYTES>
static inline double xent_in_vectors(const float* Z, const int64_t* y, float scale, float* G, int64_t begin,
                                     int64_t end, int64_t C) {
    typedef Lanes<float, BYTES> V;
    switch ((C + V::count - 1) / V::count) {
        case 1:
            return xent_of<V, 1>(Z, y, scale, G, begin, end, C);
        case 2:
            return xent_of<V, 2>(Z, y, scale, G, begin, end, C);
        case 3:
            return xent_of<V, 3>(Z, y, scale, G, begin, end, C);
        case 4:
            return xent_of<V, 4>(Z, y, scale, G, begin, end, C);
        default:
            return xent_of<V, 0>(Z, y, scale, G, begin, end, C);
    }
}

// Softmax cross-entropy of the rows with y >= 0: returns the sum of -log softmax(Z)[y] and writes
// G = scale (softmax(Z) - onehot(y)), zero in the other rows. G may be Z.
template <class T>
double xent_rows(const T* Z, const int64_t* y, T scale, T* G, int64_t begin, int64_t end, int64_t C) {
    if constexpr (std::is_same<T, float>::value) {
        if (C * 4 >= SPGNN_BYTES) return xent_in_vectors<SPGNN_BYTES>(Z, y, scale, G, begin, end, C);
        if (SPGNN_BYTES > 32 && C >= 8)
            return xent_in_vectors<std::min(SPGNN_BYTES, 32)>(Z, y, scale, G, begin, end, C);
        if (SPGNN_BYTES > 16 && C >= 4) return xent_in_vectors<16>(Z, y, scale, G, begin, end, C);
    }
    return xent_of<Lanes<T, 0>, -1>(Z, y, scale, G, begin, end, C);
}

}  // namespace spgnn::SPGNN_SET

// Row-wise passes over dense (n, C) matrices that a training step needs between its products.
// Included once for each instruction set; plain loops that the compiler turns into vectors.

// out = 0 where H <= 0, else G (H null: out = G); sums[c] += out[:, c]. out may be null: sums alone.
template <class S>
void mask_rows(const S* G, const S* H, S* out, double* sums, int64_t begin, int64_t end, int64_t C) {
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
                    const S x = widen(h[c]) <= 0 ? S(0) : g[c];
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

// out = Z + bias (null: none), then ReLU where asked; in place where out is Z.
template <class S, class D, class T>
void finish_rows(const S* Z, D* out, const T* bias, bool relu, int64_t begin, int64_t end, int64_t C) {
    for (int64_t i = begin; i < end; ++i) {
        const S* z = Z + i * C;
        D* o = out + i * C;
#pragma GCC ivdep
        for (int64_t c = 0; c < C; ++c) {
            T x = bias ? widen(z[c]) + bias[c] : T(widen(z[c]));
            x = relu && x < 0 ? T(0) : x;
            narrow(x, o[c]);
        }
    }
}

// A mixing function of 64 bits (the finaliser of splitmix64): every output bit depends on every input bit.
static inline uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Two rounds of a 32-bit mixer on (row key, feature): vectors of 32-bit multiplies are cheap.
static inline uint32_t mix32(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

static inline uint32_t drop_bits(uint32_t low, uint32_t high, uint32_t feature) {
    return mix32(mix32(feature * 0x9e3779b9u + low) ^ high);
}

// out[i, f] = X[i, f] scale where bits(key, node[i], f) >= threshold, else 0.
template <class S, class T>
void drop_rows(const S* X, S* out, const int64_t* node, uint64_t key, uint32_t threshold, T scale, int64_t begin, int64_t end, int64_t F) {
    for (int64_t i = begin; i < end; ++i) {
        const uint64_t row = mix(key ^ mix(uint64_t(node[i]) + 0x9e3779b97f4a7c15ull));
        const uint32_t low = uint32_t(row), high = uint32_t(row >> 32);
        const S* x = X + i * F;
        S* o = out + i * F;
        for (int64_t f = 0; f < F; ++f) narrow(drop_bits(low, high, uint32_t(f)) >= threshold ? widen(x[f]) * scale : T(0), o[f]);
    }
}

// The same for the stored entries of a CSR X: the mask of (node, feature) is the dense one's.
template <class T, class I>
void drop_csr(const int64_t* indptr, const I* indices, const T* X, T* out, const int64_t* node, uint64_t key, uint32_t threshold, T scale, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        const uint64_t row = mix(key ^ mix(uint64_t(node[i]) + 0x9e3779b97f4a7c15ull));
        const uint32_t low = uint32_t(row), high = uint32_t(row >> 32);
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e)
            out[e] = drop_bits(low, high, uint32_t(indices[e])) >= threshold ? X[e] * scale : T(0);
    }
}

// exp(x) for x <= 0 in every lane, to 2 units in the last place: x = k ln 2 + r, a polynomial in r,
// exponent bits by k. NaN stays. Adding 1.5 * 2^23 rounds to the nearest integer, in the low bits.
template <class V>
static inline typename V::reg exp_lanes(typename V::reg x) {
    typedef int32_t bits __attribute__((vector_size(sizeof(x))));
    const typename V::reg least = V::all(-87.0f), magic = V::all(12582912.0f);
    x = x < least ? least : x;
    const typename V::reg t = x * 1.44269504f + magic, k = t - magic;
    const typename V::reg r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    typename V::reg p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (typename V::reg)(((bits)t - (bits)magic + 127) << 23);
}

// Combine the lanes of v by halves.
template <class V, class T, class Op>
static inline T fold(typename V::reg v, Op op) {
    T a[V::count];
    V::store(a, v);
    for (int half = V::count / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) a[i] = op(a[i], a[i + half]);
    return a[0];
}

// g = exp(z - max z), top = max z; returns the sum of g. At least one vector wide: the last overlaps.
static inline float exp_row(const float* z, float* g, int64_t C, float& top) {
    typedef Lanes<float, SPGNN_BYTES> V;
    constexpr int64_t L = V::count;
    const int64_t whole = C / L * L, last = C - L;
    typename V::reg m = V::load(z + last), sum = V::all(0.0f);
    for (int64_t c = 0; c < whole; c += L) {
        const typename V::reg x = V::load(z + c);
        m = x > m ? x : m;
    }
    top = fold<V, float>(m, [](float a, float b) { return b > a ? b : a; });
    for (int64_t c = 0; c < whole; c += L) {
        const typename V::reg e = exp_lanes<V>(V::load(z + c) - top);
        V::store(g + c, e);
        sum += e;
    }
    float total = fold<V, float>(sum, [](float a, float b) { return a + b; });
    if (whole < C) {
        V::store(g + last, exp_lanes<V>(V::load(z + last) - top));
        for (int64_t c = whole; c < C; ++c) total += g[c];
    }
    return total;
}

template <class T>
static inline T exp_row_plain(const T* z, T* g, int64_t C, T& top) {
    top = z[0];
    for (int64_t c = 1; c < C; ++c) top = z[c] > top ? z[c] : top;
    T sum = 0;
    for (int64_t c = 0; c < C; ++c) sum += g[c] = std::exp(z[c] - top);
    return sum;
}

static inline float exp_of_row(const float* z, float* g, int64_t C, float& top) {
    return C * int64_t(sizeof(float)) >= SPGNN_BYTES ? exp_row(z, g, C, top) : exp_row_plain(z, g, C, top);
}
static inline double exp_of_row(const double* z, double* g, int64_t C, double& top) { return exp_row_plain(z, g, C, top); }

// Softmax cross-entropy of the rows with y >= 0: returns the sum of -log softmax(Z)[y] and writes
// G = scale (softmax(Z) - onehot(y)), zero in the other rows. G may be Z.
template <class T>
double xent_rows(const T* Z, const int64_t* y, T scale, T* G, int64_t begin, int64_t end, int64_t C) {
    double loss = 0;
    std::vector<T> copy(Z == G ? C : 0);  // of a row that is written over while it is read
    for (int64_t i = begin; i < end; ++i) {
        const T* z = Z == G ? std::copy_n(Z + i * C, C, copy.data()) - C : Z + i * C;
        T* __restrict g = G + i * C;
        if (y[i] < 0) {
            for (int64_t c = 0; c < C; ++c) g[c] = 0;
            continue;
        }
        T top;
        const T sum = exp_of_row(z, g, C, top);
        const T factor = scale / sum;
        for (int64_t c = 0; c < C; ++c) g[c] *= factor;
        g[y[i]] -= scale;
        loss += double(std::log(sum)) + double(top) - double(z[y[i]]);  // a NaN in the row is in sum
    }
    return loss;
}

// What ends a product: act(z + bias) of a row, act' from act(z), and z itself.
#pragma once

#include "edge_math.h"

namespace spgnn::SPGNN_SET {

// act(x), and G act'(x) from G and act(x).
template <int ACT, class V, class T>
static inline __attribute__((always_inline)) typename V::reg acted(typename V::reg x) {
    if constexpr (ACT == RELU) return positive<V>(x);
    if constexpr (ACT == ELU) return x > typename V::reg{} ? x : exp_of<T, sizeof(x), true>(x);
    return x;
}
template <int ACT, class T>
static inline __attribute__((always_inline)) T through(T g, T h) {
    if constexpr (ACT == RELU) return h <= 0 ? T(0) : g;
    if constexpr (ACT == ELU) return h > 0 ? g : g * (h + T(1));
    return g;
}

// z from act(z), where act' is not 0.
template <int ACT, class V, class T>
static inline __attribute__((always_inline)) typename V::reg undone(typename V::reg h) {
    if constexpr (ACT == ELU) {
        const auto least = V::all(std::numeric_limits<T>::min()), power = h + V::all(T(1));
        return h > typename V::reg{} ? h : log_of<T, sizeof(h)>(power > least ? power : least);
    }
    return h;
}

template <int ACT, class S, class D, class T>
static inline void end_row(const S* z, D* o, const T* bias, int64_t C) {
    typedef Full<T> V;
    const auto zero = typename V::reg{};
    int64_t c = 0;
    for (; c + V::count <= C; c += V::count)
        V::store(o + c, acted<ACT, V, T>(V::load(z + c) + (bias ? V::load(bias + c) : zero)));
    T rest[V::count] = {};
    for (int64_t l = 0; c + l < C; ++l) rest[l] = widen(z[c + l]) + (bias ? bias[c + l] : T(0));
    if (c < C) V::store(rest, acted<ACT, V, T>(V::load(rest)));
    for (int64_t l = 0; c + l < C; ++l) narrow(rest[l], o[c + l]);
}

// dz = g act'(z) and z without its bias, from h = act(z); sums += dz.
template <int ACT, class S, class T>
static inline void begin_row(const S* g, const T* h, const T* bias, S* dz, T* z, T* __restrict sums, int64_t C) {
    typedef Full<T> V;
    for (int64_t c = 0; c < C; ++c) {
        narrow(through<ACT>(T(widen(g[c])), h[c]), dz[c]);
        sums[c] += widen(dz[c]);
    }
    int64_t c = 0;
    for (; c + V::count <= C; c += V::count) V::store(z + c, undone<ACT, V, T>(V::load(h + c)));
    T rest[V::count] = {};
    for (int64_t l = 0; c + l < C; ++l) rest[l] = h[c + l];
    if (c < C) V::store(rest, undone<ACT, V, T>(V::load(rest)));
    for (int64_t l = 0; c + l < C; ++l) z[c + l] = rest[l];
    for (int64_t l = 0; bias && l < C; ++l) z[l] -= bias[l];
}

template <class F>
static inline void with_act(int act, const F& f) {
    if (act == RELU) return f(std::integral_constant<int, RELU>());
    if (act == ELU) return f(std::integral_constant<int, ELU>());
    f(std::integral_constant<int, NO_ACT>());
}

}  // namespace spgnn::SPGNN_SET

// Scores of all parts for one vertex, k <= 64; included once for each instruction set, in a namespace of
// its own, with SPGNN_LANES floats in a register. Every set adds the same numbers in the same order.

typedef float Lanes __attribute__((vector_size(SPGNN_LANES * 4)));
typedef float Loose __attribute__((vector_size(SPGNN_LANES * 4), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(SPGNN_LANES * 4)));
typedef int32_t LooseBits __attribute__((vector_size(SPGNN_LANES * 4), aligned(4), may_alias));

#if SPGNN_LANES < 16
// All ones in the lanes whose bit is set.
static inline Bits where(uint64_t bits) {
#if SPGNN_LANES == 8
    const Bits one{1, 2, 4, 8, 16, 32, 64, 128};
#else
    const Bits one{1, 2, 4, 8};
#endif
    return (one & int32_t(bits)) != 0;
}
#endif

static inline float largest(Lanes of) {
    alignas(64) float rest[SPGNN_LANES];
    *reinterpret_cast<Lanes*>(rest) = of;
    for (int half = SPGNN_LANES / 2; half; half /= 2) {
        for (int i = 0; i < half; ++i) rest[i] = std::max(rest[i], rest[i + half]);
    }
    return rest[0];
}

// sum + value in the lanes whose bit is set
static inline Lanes add_where(Lanes sum, Lanes value, uint64_t bits) {
#if SPGNN_LANES == 16
    return _mm512_mask_add_ps(sum, __mmask16(bits), sum, value);
#else
    return sum + (Lanes)((Bits)value & where(bits));
#endif
}

// score[x] = rows that are saved if v is in part x, of the rows of all of its nets. Returns the parts that they touch.
template <int PARTS, bool READERS>
static inline uint64_t scores_of(const Level& level, const Masks::Net* nets, const Prices& prices, int32_t v, int a,
                                 float* score) {
    constexpr int V = PARTS / SPGNN_LANES;
    const auto at = [](const std::vector<float>& of, int j) {
        return *reinterpret_cast<const Loose*>(of.data() + j * SPGNN_LANES);
    };
    Lanes sum[V] = {};
    float read[2] = {0, 0}, pairs[2] = {0, 0};
    uint64_t touched = 0;
    const int32_t* net_of = level.reads.data();
    for (int64_t i = level.read_start[v], end = level.read_start[v + 1]; i < end; ++i) {
        if (i + 8 < end) __builtin_prefetch(nets + net_of[i + 8]);
        const Masks::Net& net = nets[net_of[i]];
        // Parts that have the row without v: v does not count if it is the only reader of its part.
        const uint64_t have = (net.readers & ~(net.single & uint64_t(1) << a)) | uint64_t(1) << net.part;
        touched |= have;
        const float price = prices.by_owner[net.kind][net.part];
        const Lanes value = Lanes{} + net.weight * price;
        for (int j = 0; j < V; ++j) {
            Lanes saved = value;
            if (READERS) saved = net.weight * (price + at(prices.by_reader[net.kind], j));
            sum[j] = add_where(sum[j], saved, have >> (j * SPGNN_LANES));
        }
        if (READERS) read[net.kind] += net.weight;
    }
    for (int64_t e = level.own_start[v]; e < level.own_start[v + 1]; ++e) {
        const Masks::Net& net = nets[e];
        touched |= net.readers;
        pairs[net.kind] += net.weight * float(__builtin_popcountll(net.readers));
        for (int j = 0; j < V; ++j) {
            Lanes saved = net.weight * at(prices.by_owner[net.kind], j);
            if (READERS) saved = net.weight * (at(prices.by_owner[net.kind], j) + at(prices.by_reader[net.kind], j));
            sum[j] = add_where(sum[j], saved, net.readers >> (j * SPGNN_LANES));
        }
    }
    for (int j = 0; j < V; ++j) {
        Lanes paid = pairs[0] * at(prices.by_owner[0], j);
        if (READERS) {
            paid = paid + pairs[1] * at(prices.by_owner[1], j);
            paid = paid + (read[0] * at(prices.by_reader[0], j) + read[1] * at(prices.by_reader[1], j));
        }
        *reinterpret_cast<Loose*>(score + j * SPGNN_LANES) = sum[j] - paid;
    }
    return touched;
}

// The best of the parts whose bit is set and that have room, the lowest on ties; part is NONE unless it is above
// top.
static Offer best_offer(uint64_t parts, int k, const float* score, const Bids& bids, float top) {
    constexpr float NOTHING = -std::numeric_limits<float>::infinity();
    Lanes most = Lanes{} + NOTHING, plain_most = most;
    alignas(64) float offers[64];
    for (int first = 0; first < k; first += SPGNN_LANES) {
        const auto at = [first](const float* of) { return Lanes(*reinterpret_cast<const Loose*>(of + first)); };
        const Lanes plain = at(score) - bids.price * at(bids.over), offer = plain + bids.t * at(bids.noise);
#if SPGNN_LANES == 16
        const __mmask16 has = __mmask16(parts >> first) & _mm512_cmpge_epi32_mask(_mm512_loadu_si512(bids.room + first),
                                                                                  _mm512_set1_epi32(bids.units));
        most = _mm512_mask_max_ps(most, has, most, offer);
        plain_most = _mm512_mask_max_ps(plain_most, has, plain_most, plain);
        *reinterpret_cast<Lanes*>(offers + first) = _mm512_mask_blend_ps(has, Lanes{} + NOTHING, offer);
#else
        const Bits has = where(parts >> first) & (*reinterpret_cast<const LooseBits*>(bids.room + first) >= bids.units);
        const Lanes of = has ? offer : Lanes{} + NOTHING, plain_of = has ? plain : Lanes{} + NOTHING;
        most = of > most ? of : most;
        plain_most = plain_of > plain_most ? plain_of : plain_most;
        *reinterpret_cast<Lanes*>(offers + first) = of;
#endif
    }
    Offer best{largest(most), largest(plain_most), NONE};
    if (best.score <= top) return best;
    for (uint64_t rest = parts;; rest &= rest - 1) {
        best.part = __builtin_ctzll(rest);
        if (offers[best.part] == best.score) return best;
    }
}

static uint64_t scores(const Level& level, const Masks::Net* nets, const Prices& prices, int k, int32_t v, int a,
                       float* score) {
    const auto call = [&](auto parts) {
        return prices.readers ? scores_of<parts.value, true>(level, nets, prices, v, a, score)
                              : scores_of<parts.value, false>(level, nets, prices, v, a, score);
    };
    if (k <= 16) return call(std::integral_constant<int, 16>());
    return k <= 32 ? call(std::integral_constant<int, 32>()) : call(std::integral_constant<int, 64>());
}

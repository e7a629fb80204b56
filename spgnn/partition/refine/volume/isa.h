// scores.h for each instruction set, chosen at run time: 0 baseline, 1 AVX2, 2 AVX-512; and the same scores from
// lists, for more than 64 parts.

#pragma once

#include <limits>
#include <type_traits>

#include "../../../native/cpu.h"
#include "loads.h"

#ifdef SPGNN_DISPATCH
#include <immintrin.h>
#endif

namespace spgnn {

// The offers of all parts to a vertex of `units` work. Part p is worth score[p] - price * over[p] + t * noise[p], and
// has room for room[p] units.
struct Bids {
    const float *over, *noise;
    const int32_t* room;
    float price, t;
    int32_t units;
};

// The best of the other parts, with and without noise; -infinity if none has room.
struct Offer {
    float score, plain;
    int32_t part;
};

namespace base {
#define SPGNN_LANES 4
#include "scores.h"
#undef SPGNN_LANES
}  // namespace base

#ifdef SPGNN_DISPATCH
#pragma GCC push_options
#pragma GCC target("avx2,popcnt,bmi")
namespace avx2 {
#define SPGNN_LANES 8
#include "scores.h"
#undef SPGNN_LANES
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,popcnt,bmi")
namespace avx512 {
#define SPGNN_LANES 16
#include "scores.h"
#undef SPGNN_LANES
}  // namespace avx512
#pragma GCC pop_options
#endif

// The scores of the parts that v's nets touch; if `all`, of up to MOST other parts too. Other entries are undefined.
struct Scores {
    std::vector<float> score;
    std::vector<int32_t> parts;
    int isa;

    Scores(int k, int isa) : score((k + 63) / 64 * 64, 0.0f), isa(isa), is_touched_(k, 0) {}

    void find(const Level& level, const Masks& store, const Prices& prices, int k, int32_t v, int a, bool all) {
        k_ = k;
        const auto scores = ON(isa, scores);
        touched_ = scores(level, store.nets.data(), prices, k, v, a, score.data()) | uint64_t(1) << a;
        if (all) touched_ |= ~uint64_t(0) >> (MOST - k);
    }

    // The best offer to a vertex of part a; part is NONE unless it is above top.
    Offer best(const Masks&, const Bids& bids, int a, float top) const {
        const auto best_offer = ON(isa, best_offer);
        return best_offer(touched_ & ~(uint64_t(1) << a), k_, score.data(), bids, top);
    }

    Offer best(const Lists&, const Bids& bids, int a, float top) const {
        constexpr float NOTHING = -std::numeric_limits<float>::infinity();
        Offer best{NOTHING, NOTHING, NONE};
        for (int32_t p : parts) {
            if (p == a || bids.room[p] < bids.units) continue;
            const float plain = score[p] - bids.price * bids.over[p], offer = plain + bids.t * bids.noise[p];
            best.plain = std::max(best.plain, plain);
            if (offer < best.score || (offer == best.score && p > best.part)) continue;
            best.score = offer;
            best.part = p;
        }
        if (best.score <= top) best.part = NONE;
        return best;
    }

    void find(const Level& level, const Lists& store, const Prices& prices, int k, int32_t v, int a, bool all) {
        for (int32_t p : parts) is_touched_[p] = 0;
        parts.clear();
        const auto save = [&](int p, float rows) {
            if (!is_touched_[p]) {
                is_touched_[p] = 1;
                parts.push_back(p);
                score[p] = 0.0f;
            }
            score[p] += rows;
        };
        save(a, 0.0f);
        float read[2] = {0, 0}, pairs[2] = {0, 0};
        for (int64_t i = level.read_start[v]; i < level.read_start[v + 1]; ++i) {
            const Lists::Net& net = store.nets[level.reads[i]];
            const float price = prices.by_owner[net.kind][net.part];
            const auto saved = [&](int p) { return net.weight * (price + prices.by_reader[net.kind][p]); };
            const Lists::Entry* entry = store.entries.data() + net.first;
            save(net.part, saved(net.part));
            for (int32_t j = 0; j < net.size; ++j) {
                const bool is_v_only = entry[j].part == a && entry[j].count == 1;
                if (entry[j].part != net.part && !is_v_only) save(entry[j].part, saved(entry[j].part));
            }
            read[net.kind] += net.weight;
        }
        for (int64_t e = level.own_start[v]; e < level.own_start[v + 1]; ++e) {
            const Lists::Net& net = store.nets[e];
            pairs[net.kind] += net.weight * float(net.size);
            store.each_reader_part(int32_t(e), [&](int p) {
                save(p, net.weight * (prices.by_owner[net.kind][p] + prices.by_reader[net.kind][p]));
            });
        }
        for (int i = 0; all && i < std::min(k, MOST); ++i) save(int((int64_t(v) + i) % k), 0.0f);
        for (int32_t p : parts) {
            float paid = pairs[0] * prices.by_owner[0][p];
            if (prices.readers) {
                paid = paid + pairs[1] * prices.by_owner[1][p];
                paid = paid + (read[0] * prices.by_reader[0][p] + read[1] * prices.by_reader[1][p]);
            }
            score[p] = score[p] - paid;
        }
    }

  private:
    static constexpr int MOST = 64;
    std::vector<char> is_touched_;
    uint64_t touched_ = 0;
    int k_ = 0;
};

}  // namespace spgnn

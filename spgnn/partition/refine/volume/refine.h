// Annealed k-way refinement: vertices move to the part with the best score + temperature x Gumbel noise,
// under a price of work and a cap on it. No Python here.
//
// Source: the noise makes a move a draw from exp(score / temperature) (Gumbel 1954).

#pragma once

#include <limits>

#include "isa.h"

namespace spgnn {

constexpr int MOST_PARTS = 1 << 13;

struct Schedule {
    int levels = 8;  // at most; coarsening ends below `coarsest` vertices a part
    int coarsest = 6;
    int top_sweeps = 28, sweeps = 14, last_sweeps = 15;
    double top_temperature = 1.2, fall = 1.3, end = 0.5, last_temperature = 0.5;  // rows
    double work_price =
        1.65;           // rows per unit of work in a part of twice the mean work: this x (rows / work)^(1/4), at most 1
    double steep = 16;  // and for the excess over the cap
    double soft_cap = 1.3;   // of work over the mean, until the last level
    double shrinking = 0.7;  // part of the last sweeps in which it falls to balance
    double margin = 8;       // x temperature: a vertex that prefers its part by more is skipped
    int rest = 3;            // for this many sweeps
};

template <class Store>
class Refiner {
  public:
    Loads loads;

    Refiner(int k, double balance, uint64_t seed, const Schedule& schedule, const Pressure& pressure, int isa)
        : loads(k, pressure),
          k_(k),
          balance_(balance),
          seed_(seed),
          plan_(schedule),
          scores_(k, isa),
          over_((k + 63) / 64 * 64),
          room_(over_.size(), -1) {}

    void start(Level& level) {
        level_ = &level;
        store_.start(level, k_);
        loads.start(level, store_);
        for (int p = 0; p < k_; ++p) weigh(p);
    }

    // Move v to part b.
    void move(int32_t v, int b) {
        Level& l = *level_;
        const int a = l.part[v];
        for (int64_t i = l.read_start[v]; i < l.read_start[v + 1]; ++i) store_.prefetch(l.reads[i]);
        for (int64_t e = l.own_start[v]; e < l.own_start[v + 1]; ++e) {
            auto& net = store_.nets[e];
            store_.each_reader_part(int32_t(e), [&](int p) {
                if (p != a) loads.pair(net.kind, a, p, -double(net.weight));
                if (p != b) loads.pair(net.kind, b, p, double(net.weight));
            });
            net.part = int16_t(b);
        }
        for (int64_t i = l.read_start[v]; i < l.read_start[v + 1]; ++i) {
            const int32_t e = l.reads[i];
            const auto& net = store_.nets[e];
            if (store_.remove(e, a) && net.part != a) loads.pair(net.kind, net.part, a, -double(net.weight));
            if (store_.add(e, b) && net.part != b) loads.pair(net.kind, net.part, b, double(net.weight));
        }
        loads.work[a] -= double(l.work[v]);
        loads.work[b] += double(l.work[v]);
        --loads.size[a];
        ++loads.size[b];
        weigh(a);
        weigh(b);
        l.part[v] = b;
        if (++moves_ % std::max(64, k_) == 0) loads.price();
    }

    // Sweeps above the last level: the temperature falls from one to the other.
    void anneal(int sweeps, double from, double to) {
        wake_.assign(level_->n, 0);
        for (int s = 0; s < sweeps; ++s)
            sweep(s, sweeps > 1 ? from + (to - from) * s / (sweeps - 1) : to, std::max(balance_, plan_.soft_cap),
                  false);
    }

    // The last level: the temperature falls to zero, the cap to `balance`.
    void finish(int sweeps, double from) {
        wake_.assign(level_->n, 0);
        for (int s = 0; s < sweeps; ++s) {
            const double passed = std::min(1.0, s / (plan_.shrinking * sweeps));
            const double cap = std::max(balance_, balance_ + (1 - passed) * (plan_.soft_cap - balance_));
            sweep(s, sweeps > 1 ? from * (sweeps - 1 - s) / (sweeps - 1) : 0.0, cap, passed == 1.0);
        }
        for (int round = 0; round < 8 && evict(false); ++round) {
        }
        while (evict(true)) {  // terminates: each move makes the heavier of two parts lighter
        }
    }

  private:
    static constexpr uint64_t NOISES = 1 << 16;
    static constexpr int32_t BLOCK = 64;
    int k_;
    double balance_, cap_ = 0, price_ = 0;  // cap: of work over the mean; price of work
    uint64_t seed_, sweeps_ = 0, moves_ = 0;
    Schedule plan_;
    Store store_;
    Scores scores_;
    Level* level_ = nullptr;
    double most_work_ = 0;       // that a part may have after a move
    std::vector<float> over_;    // rows that a unit of work costs in a part
    std::vector<int32_t> room_;  // work that a part may still take; below 0: none
    const std::vector<float>& noise_ = gumbel();
    std::vector<int32_t> wake_;  // sweep in which a vertex is looked at again
    std::vector<std::pair<uint64_t, int32_t>> blocks_;

    // Made once: a vertex reads k consecutive entries per sweep.
    static const std::vector<float>& gumbel() {
        static const std::vector<float> noise = [] {
            std::vector<float> of(NOISES + MOST_PARTS);
            for (size_t i = 0; i < of.size(); ++i)
                of[i] = float(-std::log(-std::log((double(hashed(i) >> 11) + 0.5) * 0x1p-53)));
            return of;
        }();
        return noise;
    }

    static constexpr int32_t MOST_UNITS = std::numeric_limits<int32_t>::max();  // a vertex with this much work stays

    static int32_t units(int64_t work) { return int32_t(std::min<int64_t>(work, MOST_UNITS)); }

    void weigh(int p) {
        const double of_mean = loads.work[p] / loads.mean_work;
        over_[p] = float(price_ * (of_mean - 1) + plan_.steep * std::max(0.0, of_mean - cap_));
        room_[p] = int32_t(std::clamp(most_work_ - loads.work[p], -1.0, double(MOST_UNITS) - 1));
    }

    // Parts may have cap x the mean work after a move.
    void allow(double cap) {
        most_work_ = std::floor(cap * loads.mean_work);
        for (int p = 0; p < k_; ++p) weigh(p);
    }

    // Vertices in blocks, the blocks in a new order in each sweep: neighbours are near each other in
    // memory, and prices are updated before a whole part has been visited.
    void sweep(int s, double temperature, double cap, bool is_final) {
        const Level& l = *level_;
        const int32_t eighth = l.n / 8 + 1;
        const float t = float(temperature), wide = float(plan_.margin) * std::max(t, 0.05f);
        cap_ = cap;
        price_ = std::min(1.0, plan_.work_price * std::pow(std::max(loads.total, 1.0) / (loads.mean_work * k_), 0.25));
        allow(cap);
        const uint64_t key = hashed(seed_ << 32 ^ ++sweeps_);
        blocks_.clear();
        for (int32_t first = 0; first < l.n; first += BLOCK) blocks_.push_back({hashed(key ^ uint64_t(first)), first});
        std::sort(blocks_.begin(), blocks_.end());
        int32_t seen = 0;
        for (auto [hash, first] : blocks_) {
            for (int32_t v = first; v < std::min(first + BLOCK, l.n); ++v) {
                if (seen++ % eighth == 0) loads.integrate();
                const int a = l.part[v];
                const bool must_leave = is_final && loads.work[a] > balance_ * loads.mean_work;
                if ((wake_[v] > s && !must_leave) || loads.size[a] == 1) continue;
                const float* noise = noise_.data() + hashed(key + uint64_t(v)) % NOISES;
                float margin;
                const int b = choose(v, t, noise, must_leave ? EVICTION : 0.0f, margin);
                if (b != a) {
                    move(v, b);
                } else if (margin > wide) {
                    wake_[v] = s + 1 + plan_.rest;
                }
            }
        }
    }

    static constexpr float EVICTION = 1.5f;  // rows that leaving a part above the cap may cost

    // The best part with room for v; margin: by how much its own part is better than all others, without noise.
    int choose(int32_t v, float t, const float* noise, float bonus, float& margin) {
        const int a = level_->part[v];
        scores_.find(*level_, store_, loads.prices, k_, v, a, loads.prices.is_dear(a));
        const float work = float(level_->work[v]);
        const float stay = scores_.score[a] - work * (over_[a] - float(price_) * work / float(loads.mean_work)) - bonus;
        const float top = stay + t * noise[a];
        const Offer offer =
            scores_.best(store_, {over_.data(), noise, room_.data(), work, t, units(level_->work[v])}, a, top);
        margin = stay - offer.plain;
        return offer.part == NONE ? a : offer.part;
    }

    // Move vertices out of parts above the balance, those first that cost least per work; false if none moved.
    // beyond: also move nodes too heavy for any part, to the lightest part if that stays lighter than the source.
    bool evict(bool beyond) {
        const Level& l = *level_;
        const double cap = balance_ * loads.mean_work;
        allow(balance_);
        std::vector<std::pair<float, int32_t>> order;
        for (int32_t v = 0; v < l.n; ++v) {
            if (loads.work[l.part[v]] <= cap || (!beyond && l.work[v] > int64_t(cap))) continue;
            float margin;
            choose(v, 0.0f, noise_.data(), 0.0f, margin);
            order.push_back({std::min(margin, 1e9f) / float(l.work[v]), v});
        }
        std::sort(order.begin(), order.end());
        bool moved = false;
        for (auto [loss, v] : order) {
            const int a = l.part[v];
            if (loads.work[a] <= cap || loads.size[a] == 1) continue;
            float margin;
            int b = choose(v, 0.0f, noise_.data(), std::numeric_limits<float>::infinity(), margin);
            if (b == a) b = int(std::min_element(loads.work.begin(), loads.work.end()) - loads.work.begin());
            const double heavier = loads.work[b] + double(l.work[v]);
            if (heavier > cap && !(beyond && heavier < loads.work[a])) continue;
            move(v, b);
            moved = true;
        }
        return moved;
    }
};

}  // namespace spgnn

// Work, sent rows and received rows of each part; from them the price of a row. No Python here.

#pragma once

#include "state.h"

namespace spgnn {

// Prices of rows. A net of kind t with its owner in part q and a reader in part p costs
// weight * (by_owner[t][q] + by_reader[t][p]). Both arrays are padded to multiples of 64 floats.
struct Prices {
    std::vector<float> by_owner[2], by_reader[2];
    bool readers = false;  // by_reader is not zero

    // A row of part p costs more than DEAR times what it costs in most parts.
    static constexpr float DEAR = 4;
    bool is_dear(int p) const { return by_owner[0][p] + by_reader[0][p] > DEAR; }
};

// send: prices hold the largest send down; receive: the largest receive; both: the largest sum of the two.
struct Pressure {
    bool send = true, receive = false, both = false, two_kinds = false;
    double target = 1.03;     // of largest over mean
    double proportional = 4;  // exp(proportional x excess over the target)
    double integral = 0.1;    // exp(integral x sum of what was above or below)
    double highest = 4;       // of that sum
};

class Loads {
  public:
    std::vector<double> send, receive, work;
    std::vector<int32_t> size;  // vertices
    double total = 0, mean_work = 0;
    Prices prices;

    Loads(int k, const Pressure& pressure) : k_(k), pressure_(pressure) {
        for (auto& sum : sum_) sum.assign(k, 0.0);
    }

    template <class Store>
    void start(const Level& level, const Store& store) {
        send.assign(k_, 0.0);
        receive.assign(k_, 0.0);
        work.assign(k_, 0.0);
        size.assign(k_, 0);
        total = mean_work = 0;
        for (int32_t v = 0; v < level.n; ++v) {
            work[level.part[v]] += double(level.work[v]);
            mean_work += double(level.work[v]) / k_;
            ++size[level.part[v]];
        }
        for (int32_t e = 0; e < level.nets(); ++e) {
            const int q = store.nets[e].part;
            store.each_reader_part(
                e, [&](int p) { pair(store.nets[e].kind, q, p, p == q ? 0.0 : double(store.nets[e].weight)); });
        }
        price();
    }

    // rows of a net whose owner is in part q, for readers in part p; negative: removed
    void pair(int kind, int q, int p, double rows) {
        total += rows;
        send[kind ? p : q] += rows;
        receive[kind ? q : p] += rows;
    }

    // The integral part, at fixed intervals of a sweep.
    void integrate() {
        for (int side = 0; side < 2; ++side) {
            if (!is_priced(side)) continue;
            for (int q = 0; q < k_; ++q)
                sum_[side][q] =
                    std::clamp(sum_[side][q] + pressure_.integral * excess(side, q), 0.0, pressure_.highest);
        }
        price();
    }

    void price() {
        std::vector<float> of[2];
        for (int side = 0; side < 2; ++side) {
            of[side].assign(k_, side && !is_priced(side) ? 0.0f : 1.0f);
            if (!is_priced(side)) continue;
            std::vector<double> mu(k_);
            for (int q = 0; q < k_; ++q) {
                mu[q] = std::exp(
                    std::clamp(sum_[side][q] + pressure_.proportional * std::max(0.0, excess(side, q)), -3.0, 3.0));
            }
            // The cheapest nine tenths have mean 1. With the mean over all, a few very expensive senders would make all
            // others cheaper than the noise.
            std::vector<double> sorted(mu);
            std::sort(sorted.begin(), sorted.end());
            const int most = std::max(1, k_ * 9 / 10);
            double unit = 0;
            for (int i = 0; i < most; ++i) unit += sorted[i] / most;
            for (int q = 0; q < k_; ++q) of[side][q] = float(mu[q] / unit);
        }
        prices.readers = is_priced(1) || pressure_.both || pressure_.two_kinds;
        const float share = is_priced(1) || pressure_.both ? 0.5f : 1.0f;
        const auto& sender = of[0];
        const auto& receiver = of[pressure_.both ? 0 : 1];
        for (int kind = 0; kind < 2; ++kind) {
            prices.by_owner[kind].assign((k_ + 63) / 64 * 64, 0.0f);
            prices.by_reader[kind].assign((k_ + 63) / 64 * 64, 0.0f);
            for (int q = 0; q < k_; ++q) {
                prices.by_owner[kind][q] = share * (kind ? receiver : sender)[q];
                prices.by_reader[kind][q] = share * (kind ? sender : receiver)[q];
            }
        }
    }

  private:
    int k_;
    Pressure pressure_;
    std::vector<double> sum_[2];

    bool is_priced(int side) const { return side ? pressure_.receive : pressure_.send; }

    double excess(int side, int q) const {
        const double rows = pressure_.both ? 0.5 * (send[q] + receive[q]) : side ? receive[q] : send[q];
        return rows * k_ / (pressure_.target * std::max(total, 1.0)) - 1;
    }
};

}  // namespace spgnn

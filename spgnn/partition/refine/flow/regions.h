// Parts whose borders are redrawn, two by two, and the rows that each sends and reads meanwhile. No Python here.
#pragma once

#include <cmath>
#include <utility>

#include "pair.h"

namespace spgnn {

class Regions {
  public:
    static constexpr int NORM = 32;  // of the loads of all parts: nearly the largest
    static constexpr double OF_MEAN =
        0.25;  // cost of one more row sent per part on average, in rows of the largest load
    struct Held {
        bool send, receive;
    };  // loads that are minimised; with neither, the rows in all

    Regions(const Pattern& pattern, std::vector<int32_t> owner, int k, int64_t most_work, Held held, uint64_t seed)
        : pattern_(pattern),
          owner_(std::move(owner)),
          k_(k),
          most_work_(most_work),
          held_(held),
          rows_(size_t(k) * k, 0),
          sent_(k, 0),
          read_(k, 0),
          work_(k, 0),
          nodes_of_(k),
          seen_(pattern.n, 0),
          part_seen_(k, 0),
          random_(seed),
          cutter_(pattern_, owner_, k, seed) {
        for (int32_t v = 0; v < pattern_.n; ++v) {
            work_[owner_[v]] += pattern_.work[v];
            nodes_of_[owner_[v]].push_back(v);
            count(v, +1);
        }
    }
    Regions(const Regions&) = delete;  // the cutter refers to these members

    const std::vector<int32_t>& owner() const { return owner_; }
    const std::vector<int64_t>& rows() const { return rows_; }  // (k, k), sender by reader

    // The 32-norm of the rows that parts send, read, or of both, which is nearly the largest load, plus a quarter of
    // the mean; with neither send nor receive, the latter alone.
    double cost() const {
        double sum = 0, rows = 0;
        const double largest = double(largest_load());
        for (int p = 0; p < k_; ++p) {
            rows += double(sent_[p]);
            if (held_.send) sum += power(double(sent_[p]) / largest, NORM);
            if (held_.receive) sum += power(double(read_[p]) / largest, NORM);
        }
        for (int roots = NORM; roots > 1; roots /= 2) sum = std::sqrt(sum);
        return largest * sum + OF_MEAN * rows / k_;
    }

    // Redraw the border of every two of these parts that exchange rows, in random order, `passes` times or until none
    // improves.
    void refine(const std::vector<int32_t>& parts, int passes, double least_corridor, double most_corridor) {
        std::vector<std::pair<int, int>> pairs;
        for (int pass = 0; pass < passes; ++pass) {
            pairs.clear();
            for (size_t i = 0; i < parts.size(); ++i)
                for (size_t j = i + 1; j < parts.size(); ++j)
                    if (traded(parts[i], parts[j])) pairs.emplace_back(parts[i], parts[j]);
            for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[random_() % i]);
            bool is_better = false;
            for (const auto& [a, b] : pairs) {
                const double u = uniform(), corridor = least_corridor + (most_corridor - least_corridor) * u *
                                                                            u;  // narrow ones are quick
                is_better |= random_() % 2 ? draw(a, b, corridor) : draw(b, a, corridor);
            }
            if (!is_better) return;
        }
    }

    // Assign nodes to other parts of a region, refine it, and accept that if the cost does not rise and all its parts
    // fit the work.
    bool recut(const std::vector<int32_t>& parts, const int32_t* nodes, const int32_t* to, int64_t size, int passes,
               double least_corridor, double most_corridor) {
        const double before = cost();
        kept_.assign(size, 0);
        for (int64_t i = 0; i < size; ++i) kept_[i] = owner_[nodes[i]];
        assign(parts, nodes, to, size);
        refine(parts, passes, least_corridor, most_corridor);
        bool fits = cost() <= before;
        for (int32_t p : parts) fits &= work_[p] <= most_work_ && !nodes_of_[p].empty();
        if (!fits) assign(parts, nodes, kept_.data(), size);
        return fits;
    }

  private:
    static constexpr int32_t DEAREST = 64;  // the price of a row at the part with the largest load; 1 at least

    const Pattern pattern_;
    std::vector<int32_t> owner_;
    const int k_;
    const int64_t most_work_;
    const Held held_;
    std::vector<int64_t> rows_, sent_, read_, work_;
    std::vector<std::vector<int32_t>> nodes_of_;
    std::vector<int32_t> seen_, nets_, kept_, gathered_;
    std::vector<int64_t> part_seen_;
    int32_t now_ = 0;
    int64_t part_now_ = 0;
    std::mt19937_64 random_;
    RowPrices prices_;
    PairCutter cutter_;

    int64_t largest_load() const {
        int64_t largest = 1;
        for (int p = 0; p < k_; ++p)
            largest = std::max({largest, held_.send ? sent_[p] : 0, held_.receive ? read_[p] : 0});
        return largest;
    }

    double uniform() { return double(random_() >> 11) * 0x1p-53; }

    static double power(double x, int exponent) {
        double product = 1;
        while (exponent-- > 0) product *= x;
        return product;
    }

    int64_t traded(int a, int b) const { return rows_[size_t(a) * k_ + b] + rows_[size_t(b) * k_ + a]; }

    // Add row j to the counts, or subtract it.
    void count(int32_t j, int sign) {
        ++part_now_;
        const int q = owner_[j];
        pattern_.each_reader(j, [&](int32_t i) {
            const int p = owner_[i];
            if (p == q || part_seen_[p] == part_now_) return;
            part_seen_[p] = part_now_;
            rows_[size_t(q) * k_ + p] += sign;
            sent_[q] += sign;
            read_[p] += sign;
        });
    }

    // Assign nodes to parts and update the rows that they send and read.
    template <class To>
    void move(const int32_t* nodes, int64_t size, const To& to) {
        nets_.clear();
        ++now_;
        const auto touch = [&](int32_t j) {
            if (seen_[j] != now_) seen_[j] = now_, nets_.push_back(j);
        };
        for (int64_t i = 0; i < size; ++i) {
            touch(nodes[i]);
            pattern_.each_read(nodes[i], touch);
        }
        for (int32_t j : nets_) count(j, -1);
        for (int64_t i = 0; i < size; ++i) {
            const int32_t v = nodes[i];
            work_[owner_[v]] -= pattern_.work[v];
            owner_[v] = to(i);
            work_[owner_[v]] += pattern_.work[v];
        }
        for (int32_t j : nets_) count(j, +1);
    }

    void assign(const std::vector<int32_t>& parts, const int32_t* nodes, const int32_t* to, int64_t size) {
        move(nodes, size, [&](int64_t i) { return to[i]; });
        for (int32_t p : parts) nodes_of_[p].clear();
        for (int64_t i = 0; i < size; ++i) nodes_of_[owner_[nodes[i]]].push_back(nodes[i]);
    }

    // Prices follow the loads: 64 (load / largest load)^e, e drawn from 0 to 31.
    void set_prices() {
        const int exponent = int(random_() % NORM);
        const int64_t largest = largest_load();
        const auto price = [&](int64_t load) {
            return std::max(1, int32_t(DEAREST * power(double(load) / double(largest), exponent) + 0.5));
        };
        prices_.sent.assign(k_, held_.receive ? 0 : 1);
        prices_.read.assign(k_, 0);
        for (int p = 0; p < k_; ++p) {
            if (held_.send) prices_.sent[p] = price(sent_[p]);
            if (held_.receive) prices_.read[p] = price(read_[p]);
        }
    }

    // True if the cost falls.
    bool draw(int a, int b, double corridor) {
        if (nodes_of_[a].empty() || nodes_of_[b].empty()) return false;
        set_prices();
        const std::vector<int32_t>& moved =
            cutter_.cut(a, b, nodes_of_[a], nodes_of_[b], prices_, most_work_, corridor);
        if (moved.empty()) return false;
        const double before = cost();
        const auto change = [&] {
            move(moved.data(), int64_t(moved.size()), [&](int64_t i) { return owner_[moved[i]] == a ? b : a; });
        };
        change();
        const double after = cost();
        if (after > before) {
            change();
            return false;
        }
        gathered_ = nodes_of_[a];
        gathered_.insert(gathered_.end(), nodes_of_[b].begin(), nodes_of_[b].end());
        nodes_of_[a].clear();
        nodes_of_[b].clear();
        for (int32_t v : gathered_) nodes_of_[owner_[v]].push_back(v);
        return after < before;
    }
};

}  // namespace spgnn

// Orders of the rows of a square sparse block in which a product with it finds rows of X in a cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace spgnn {

// Rows by falling number of nonzeros, ties by number.
inline std::vector<int32_t> by_degree(const int64_t* indptr, int64_t n) {
    int64_t most = 0;
    for (int64_t v = 0; v < n; ++v) most = std::max(most, indptr[v + 1] - indptr[v]);
    std::vector<int64_t> start(most + 2, 0);
    for (int64_t v = 0; v < n; ++v) ++start[most - (indptr[v + 1] - indptr[v]) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<int32_t> order(n);
    for (int64_t v = 0; v < n; ++v) order[start[most - (indptr[v + 1] - indptr[v])]++] = int32_t(v);
    return order;
}

// The cost of reading rows of X in a product with A whose rows and columns are in this order (null: unchanged). A row
// that was not among the last ROWS reads costs 1; so does a page of PAGE rows that was not among the last PAGES. They
// model a cache of 1 MB and a page table at about 64 columns; measured times on arxiv and R-MAT in six orders follow
// their sum.
constexpr int64_t ROWS = 4096, PAGE = 16, PAGES = 512;

inline int64_t reading_cost(const int64_t* indptr, const int32_t* indices, int64_t n, const int32_t* order) {
    std::vector<int32_t> rank(n);
    for (int64_t i = 0; i < n; ++i) rank[order ? order[i] : i] = int32_t(i);
    std::vector<int64_t> row_read(n, -ROWS - 1), page_read(n / PAGE + 1, -PAGES - 1);
    int64_t now = 0, cost = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t v = order ? order[i] : i;
        for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e, ++now) {
            const int32_t column = rank[indices[e]];
            int64_t &row = row_read[column], &page = page_read[column / PAGE];
            cost += (now - row > ROWS) + (now - page > PAGES);
            row = page = now;
        }
    }
    return cost;
}

// An order in which each community is one range. Vertices, those with fewest neighbours first, join the neighbour with
// the largest gain of modularity; the order is a depth-first walk of the tree of these joins.
// Source: Arai et al. 2016, "Rabbit Order", sequential. Nonzeros count as edges of weight 1; A may be directed.
class Communities {
  public:
    std::vector<int32_t> order(const int64_t* indptr, const int32_t* indices, int64_t n) {
        top_.resize(n);
        std::iota(top_.begin(), top_.end(), 0);
        first_.assign(n, NONE);
        next_.assign(n, NONE);
        weight_.assign(n, 0);
        kept_.resize(n);
        degree_.resize(n);
        for (int64_t v = 0; v < n; ++v) degree_[v] = double(indptr[v + 1] - indptr[v]);
        const double total = std::max(1.0, double(indptr[n]));
        std::vector<int32_t> rising = by_degree(indptr, n), roots;
        std::reverse(rising.begin(), rising.end());
        for (const int32_t v : rising) {
            for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e) gather(v, indices[e], 1);
            for (int32_t child = first_[v]; child != NONE; child = next_[child]) {
                for (const Edge& edge : kept_[child]) gather(v, edge.to, edge.weight);
                std::vector<Edge>().swap(kept_[child]);
            }
            int32_t best = NONE;
            double gain = 0;
            for (const int32_t u : near_) {
                const double of_u = weight_[u] - degree_[v] * degree_[u] / total;
                if (of_u > gain) gain = of_u, best = u;
            }
            if (best == NONE)
                roots.push_back(v);
            else
                join(v, best);
            for (const int32_t u : near_) weight_[u] = 0;
            near_.clear();
        }
        return depth_first(roots, n);
    }

  private:
    static constexpr int32_t NONE = -1;
    struct Edge {
        int32_t to;
        uint32_t weight;
    };
    std::vector<int32_t> top_, first_, next_, near_;
    std::vector<uint32_t> weight_;  // from the current vertex to each community near it
    std::vector<double> degree_;
    std::vector<std::vector<Edge>> kept_;

    int32_t top(int32_t v) {
        while (top_[v] != v) v = top_[v] = top_[top_[v]];
        return v;
    }

    void gather(int32_t v, int32_t to, uint32_t weight) {
        to = top(to);
        if (to == v) return;
        if (weight_[to] == 0) near_.push_back(to);
        weight_[to] += weight;
    }

    void join(int32_t v, int32_t u) {
        kept_[v].reserve(near_.size());
        for (const int32_t w : near_) kept_[v].push_back({w, weight_[w]});
        top_[v] = u;
        degree_[u] += degree_[v];
        next_[v] = first_[u];
        first_[u] = v;
    }

    std::vector<int32_t> depth_first(const std::vector<int32_t>& roots, int64_t n) const {
        std::vector<int32_t> order, stack;
        order.reserve(n);
        for (auto root = roots.rbegin(); root != roots.rend(); ++root) {
            stack.push_back(*root);
            while (!stack.empty()) {
                const int32_t v = stack.back();
                stack.pop_back();
                order.push_back(v);
                for (int32_t child = first_[v]; child != NONE; child = next_[child]) stack.push_back(child);
            }
        }
        return order;
    }
};

}  // namespace spgnn

// Draws whose distribution does not change: integers, permutations, nodes, edges, walks and pairs without a link.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../native/rng.h"
#include "samplers.h"

namespace spgnn {

// Draws from a fixed discrete distribution in constant time: Walker 1977; the linear construction is Vose's, 1991.
class Alias {
  public:
    // P(i) = weight[i] / sum of weights.
    Alias(const double* weight, int64_t n) : keep(size_t(n), 1.0), other(size_t(n)) {
        double total = 0;
        for (int64_t i = 0; i < n; ++i) {
            if (!(weight[i] >= 0) || std::isinf(weight[i]))
                throw std::invalid_argument("weights must be finite and not negative");
            total += weight[i];
            other[size_t(i)] = i;
        }
        if (!(total > 0) || std::isinf(total)) throw std::invalid_argument("the sum of weights must be positive");
        std::vector<double> share(static_cast<size_t>(n));
        std::vector<int64_t> small, large;
        for (int64_t i = 0; i < n; ++i) {
            share[size_t(i)] = weight[i] / total * double(n);
            (share[size_t(i)] < 1 ? small : large).push_back(i);
        }
        while (!small.empty() && !large.empty()) {
            const size_t s = size_t(small.back()), l = size_t(large.back());
            small.pop_back();
            keep[s] = share[s];
            other[s] = int64_t(l);
            share[l] -= 1 - share[s];
            if (share[l] < 1) {
                large.pop_back();
                small.push_back(int64_t(l));
            }
        }
        // Entries left over by rounding have a share of about 1; an entry of weight 0 is never among them.
        for (const int64_t i : small)
            if (weight[i] == 0) {
                keep[size_t(i)] = 0;
                other[size_t(i)] = largest(weight, n);
            }
    }

    int64_t draw(Rng& rng) const {
        const uint64_t n = keep.size(), slot = n >> 32 ? rng.below64(n) : rng.below(uint32_t(n));
        return rng.uniform() < keep[slot] ? int64_t(slot) : other[slot];
    }

  private:
    static int64_t largest(const double* weight, int64_t n) {
        int64_t best = 0;
        for (int64_t i = 1; i < n; ++i)
            if (weight[i] > weight[best]) best = i;
        return best;
    }
    std::vector<double> keep;    // P(slot | slot was chosen)
    std::vector<int64_t> other;  // drawn if the slot is not kept
};

static Array<int64_t> integers(uint64_t seed, uint64_t stream, uint64_t index, uint64_t below, int64_t count) {
    require(below > 0, "below must be positive");
    Array<int64_t> out(count);
    Rng rng(seed, stream, index);
    for (int64_t i = 0; i < count; ++i)
        out.mutable_data()[i] = int64_t(below >> 32 ? rng.below64(below) : rng.below(uint32_t(below)));
    return out;
}

// 0 to n - 1 in random order (Fisher & Yates).
static Array<int64_t> permutation(uint64_t seed, uint64_t stream, uint64_t index, int64_t n) {
    Array<int64_t> out(n);
    int64_t* order = out.mutable_data();
    nb::gil_scoped_release release;
    Rng rng(seed, stream, index);
    std::iota(order, order + n, int64_t(0));
    for (int64_t i = n; i > 1; --i) std::swap(order[i - 1], order[rng.below64(uint64_t(i))]);
    return out;
}

static Array<int64_t> draw(const Alias& table, uint64_t seed, uint64_t stream, uint64_t index, int64_t count) {
    Array<int64_t> out(count);
    int64_t* drawn = out.mutable_data();
    nb::gil_scoped_release release;
    Rng rng(seed, stream, index);
    for (int64_t i = 0; i < count; ++i) drawn[i] = table.draw(rng);
    return out;
}

// Walks from uniform roots, (steps + 1, roots): all roots take a step before the next, so that their reads overlap.
// Source: GraphSAINT (Zeng et al. 2021), Algorithm 5; a node without neighbours stays.
static Array<int64_t> walk(const Array<int64_t>& indptr, const Array<int32_t>& indices, int64_t roots, int64_t steps,
                           uint64_t seed, uint64_t stream, uint64_t index) {
    const int64_t N = indptr.size() - 1;
    require(N > 0 && roots >= 0 && steps >= 0, "a walk needs nodes, roots and steps");
    Array<int64_t> out({steps + 1, roots});
    int64_t* node = out.mutable_data();
    const int64_t* p = indptr.data();
    const int32_t* j = indices.data();
    nb::gil_scoped_release release;
    Rng rng(seed, stream, index);
    for (int64_t r = 0; r < roots; ++r) node[r] = rng.below(uint32_t(N));
    std::vector<int64_t> place(static_cast<size_t>(roots));
    for (int64_t* from = node; from < node + steps * roots; from += roots) {
        for (int64_t r = 0; r < roots; ++r) {
            if (r + 2 * ROWS_AHEAD < roots) __builtin_prefetch(p + from[r + 2 * ROWS_AHEAD]);
            const int64_t u = from[r], degree = p[u + 1] - p[u];
            place[size_t(r)] = degree ? p[u] + int64_t(rng.below64(uint64_t(degree))) : -1;
            if (degree) __builtin_prefetch(j + place[size_t(r)]);
        }
        for (int64_t r = 0; r < roots; ++r) from[r + roots] = place[size_t(r)] < 0 ? from[r] : j[place[size_t(r)]];
    }
    return out;
}

// (2, count) ends of nonzeros (u, v) with P(u, v) proportional to 1 / deg u + 1 / deg v, deg of rows and columns
// together: a uniform node that is not isolated, then one of the nonzeros of its row and column.
// Source: GraphSAINT (Zeng et al. 2021), Algorithm 5, without its table. of_column is empty where A is symmetric.
static Array<int64_t> edges(const Array<int64_t>& indptr, const Array<int32_t>& indices,
                            const Array<int64_t>& column_indptr, const Array<int32_t>& of_column,
                            const Array<int64_t>& nodes, int64_t count, uint64_t seed, uint64_t stream,
                            uint64_t index) {
    require(nodes.size() > 0, "there are no edges to draw");
    Array<int64_t> out({2, count});
    int64_t* ends = out.mutable_data();
    const int64_t *p = indptr.data(), *q = column_indptr.size() ? column_indptr.data() : nullptr, *v = nodes.data();
    const uint64_t choices = uint64_t(nodes.size());
    const int32_t *j = indices.data(), *rows = of_column.data();
    nb::gil_scoped_release release;
    Rng rng(seed, stream, index);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t u = v[rng.below64(choices)], out_degree = p[u + 1] - p[u];
        const int64_t k = int64_t(rng.below64(uint64_t(out_degree + (q ? q[u + 1] - q[u] : 0))));
        const bool is_out = k < out_degree;
        const int64_t end = is_out ? int64_t(j[p[u] + k]) : int64_t(rows[q[u] + k - out_degree]);
        ends[i] = is_out ? u : end;
        ends[i + count] = is_out ? end : u;
    }
    return out;
}

// The links of nodes in CSR, each row rising.
struct Links {
    bool has_row(int64_t u) const { return u >= 0 && u < N && p[u] >= 0 && p[u] <= p[u + 1] && p[u + 1] <= nnz; }

    // A node of first to last - 1 that is neither u nor linked with it, each with the same probability; -1: there is
    // none. After TRIES draws those that are left are listed.
    int64_t unlinked(int64_t u, int64_t first, int64_t last, Rng& rng) const {
        constexpr int TRIES = 100;
        const int32_t *known = j + p[u], *const end = j + p[u + 1];
        for (int i = 0; i < TRIES; ++i) {
            const int64_t v = first + int64_t(rng.below(uint32_t(last - first)));
            if (v != u && !std::binary_search(known, end, int32_t(v))) return v;
        }
        std::vector<int32_t> left;
        for (int64_t v = first; v < last; ++v) {
            while (known < end && *known < v) ++known;
            if (v != u && (known == end || *known != v)) left.push_back(int32_t(v));
        }
        return left.empty() ? -1 : left[rng.below(uint32_t(left.size()))];
    }

    const int64_t* p;
    const int32_t* j;
    int64_t N, nnz;
};

// Fills drawn and is_source (t, K), rows [begin, end): nodes without a link that replace the target, or by is_either
// the end that a bit chooses, the other one where the kept end has no candidate left. Draw k of a target is a function
// of (key, its number, k). Returns the first target that has none, or -1.
static int64_t negatives(const Array<int32_t>& source, const Array<int32_t>& target, const Array<int64_t>& number,
                         const Array<int64_t>& indptr, const Array<int32_t>& indices,
                         const Array<int64_t>& column_indptr, const Array<int32_t>& column_indices, int64_t first,
                         int64_t last, bool is_either, uint64_t key, Array<int32_t>& drawn, Array<bool>& is_source,
                         int64_t begin, int64_t end) {
    const int64_t t = source.size(), K = drawn.shape(1);
    require(target.size() == t && number.size() == t, "negatives: a source, a target and a number per pair");
    require(has_shape(drawn, t, K) && has_shape(is_source, t, K), "negatives: drawn and is_source must be (t, K)");
    require(0 <= begin && begin <= end && end <= t && 0 <= first && first < last && last <= INT32_MAX,
            "negatives: range");
    const int32_t* ends[] = {source.data(), target.data()};
    const int64_t* numbers = number.data();
    const Links links[] = {
        {indptr.data(), indices.data(), indptr.size() - 1, indices.size()},
        {column_indptr.data(), column_indices.data(), column_indptr.size() - 1, column_indices.size()}};
    int32_t* out = drawn.mutable_data() + begin * K;
    bool* replaces = is_source.mutable_data() + begin * K;
    nb::gil_scoped_release release;
    for (int64_t i = begin - 2 * ROWS_AHEAD; i < end; ++i) {
        for (int side = 0; side <= int(is_either); ++side) {
            if (i + 2 * ROWS_AHEAD < end) __builtin_prefetch(links[side].p + ends[side][i + 2 * ROWS_AHEAD]);
            if (i + ROWS_AHEAD < begin || i + ROWS_AHEAD >= end) continue;
            const int64_t u = ends[side][i + ROWS_AHEAD];
            require(links[side].has_row(u), "negatives: a node is out of range, or indptr does not rise");
            prefetch_row(links[side].p, links[side].j, u);
        }
        if (i < begin) continue;
        for (int64_t k = 0; k < K; ++k) {
            Rng rng(key, uint64_t(numbers[i]), uint64_t(k));
            *replaces = is_either && rng.next() >> 63;
            int64_t node = links[*replaces].unlinked(ends[*replaces][i], first, last, rng);
            if (node < 0 && is_either) {
                *replaces = !*replaces;
                node = links[*replaces].unlinked(ends[*replaces][i], first, last, rng);
            }
            if (node < 0) return i;
            *out++ = int32_t(node);
            ++replaces;
        }
    }
    return -1;
}

void define_draws(nb::module_& m) {
    m.def("hash3", &hash3, "a 64-bit hash of three numbers");
    m.def("integers", &integers, "count integers of 0 to below - 1, a function of (seed, stream, index)");
    m.def("permutation", &permutation, "0 to n - 1 in random order, a function of (seed, stream, index)");
    m.def("walk", &walk, "(steps + 1, roots) nodes of walks");
    m.def("edges", &edges, "(2, count) ends of edges");
    m.def("negatives", &negatives, "(t, K) nodes without a link to an end of each pair");
    nb::class_<Alias>(m, "Alias", "P(i) = weight[i] / sum of weights, by the alias method")
        .def("__init__",
             [](Alias* self, const Array<double>& weight) {
                 nb::gil_scoped_release release;
                 new (self) Alias(weight.data(), weight.size());
             })
        .def("draw", &draw, "count draws, a function of (seed, stream, index)");
}

}  // namespace spgnn

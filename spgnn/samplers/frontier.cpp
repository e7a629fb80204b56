// Frontier sampling, Algorithm 2 of Zeng et al. 2021, on degree classes instead of the paper's Dashboard.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../native/rng.h"
#include "samplers.h"
#include "workspaces.h"

namespace spgnn {

// Degree classes: which slot of the frontier is popped next, with probability proportional to its node's degree.
// They draw in 0.6 of the time of the paper's structure, the Dashboard.
//
// Class k holds the slots of degrees 2^k to 2^(k+1) - 1. A pop selects a class by its total degree, then a uniform slot
// of it, which is kept with probability degree / 2^(k+1), more than a half.
class Classes {
  public:
    // Enters the first frontier; `degrees` of its slots.
    void begin(const std::vector<int32_t>& degrees) {
        for (int k = 0; k < 31; ++k) {
            members[k].clear();
            weight[k] = 0;
        }
        total = 0;
        degree_of.assign(degrees.size(), 0);
        place.resize(degrees.size());
        for (size_t slot = 0; slot < degrees.size(); ++slot) push(int32_t(slot), degrees[slot]);
    }

    // Removes a slot with probability degree / sum of degrees and returns it; -1 if the sum is 0.
    int32_t pop(Rng& rng) {
        if (total == 0) return -1;
        uint64_t x = total >> 32 ? rng.below64(total) : rng.below(uint32_t(total));
        int k = 0;
        while (x >= weight[k]) x -= weight[k++];
        const auto& slots = members[k];
        for (;;) {
            const int32_t slot = slots[rng.below(uint32_t(slots.size()))];
            if (rng.next() >> (63 - k) < uint64_t(degree_of[slot])) {  // k + 1 random bits
                remove(slot, k);
                return slot;
            }
        }
    }

    void push(int32_t slot, int32_t degree) {
        degree_of[slot] = degree;
        if (degree == 0) return;
        const int k = 31 - __builtin_clz(uint32_t(degree));
        place[slot] = int32_t(members[k].size());
        members[k].push_back(slot);
        weight[k] += uint64_t(degree);
        total += uint64_t(degree);
    }

  private:
    void remove(int32_t slot, int k) {
        auto& slots = members[k];
        slots[place[slot]] = slots.back();
        place[slots.back()] = place[slot];
        slots.pop_back();
        weight[k] -= uint64_t(degree_of[slot]);
        total -= uint64_t(degree_of[slot]);
    }

    std::vector<int32_t> members[31], degree_of, place;
    uint64_t weight[31], total;
};

constexpr int AHEAD = 8;  // steps between a push and the prefetch of the degree of the node that will follow it

// The memory of one draw.
struct Walkers {
    std::vector<uint64_t> chosen;  // a bit for each node: it is in the first frontier
    std::vector<int32_t> node;     // of each slot
    std::vector<int32_t> degrees;
    std::vector<int64_t> next;  // of each slot: where in indices the neighbour is that replaces it
    std::vector<int64_t> popped;
    std::vector<int32_t> slot_trace, node_trace;
    Classes classes;
};

class Frontier {
  public:
    Frontier(Array<int64_t> indptr, Array<int32_t> indices, int64_t budget, int64_t frontier)
        : indptr(indptr), indices(indices), budget(budget), frontier(frontier) {
        check_csr(indptr, indices, indptr.size() - 1);
        require(0 < frontier && frontier < indptr.size() && frontier <= budget,
                "frontier must be 1 to N and <= budget");
    }

    // (b,) the first frontier, then the popped nodes; repeated nodes are repeated.
    Array<int64_t> draw(uint64_t seed, uint64_t stream, uint64_t index) {
        auto w = workspaces.take();
        {
            const nb::gil_scoped_release unlocked;
            run(*w, seed, stream, index, false);
        }
        auto out = array_of(w->popped);
        workspaces.give(std::move(w));
        return out;
    }

    // The first frontier (M,), the slot and the new node of each step.
    nb::tuple trace(uint64_t seed, uint64_t stream, uint64_t index) {
        auto w = workspaces.take();
        {
            const nb::gil_scoped_release unlocked;
            run(*w, seed, stream, index, true);
        }
        auto out = nb::make_tuple(array_of(std::vector<int64_t>(w->popped.begin(), w->popped.begin() + frontier)),
                                  array_of(w->slot_trace), array_of(w->node_trace));
        workspaces.give(std::move(w));
        return out;
    }

  private:
    void run(Walkers& w, uint64_t seed, uint64_t stream, uint64_t index, bool is_traced) const {
        Rng rng(seed, stream, index);
        w.popped.clear();
        w.popped.reserve(size_t(budget));
        w.slot_trace.clear();
        w.node_trace.clear();
        choose_start(w, rng);
        w.classes.begin(w.degrees);
        walk(w, rng, is_traced);
    }

    // Alg. 2, lines 1 and 2: M distinct nodes, every set as likely (Floyd; Bentley & Floyd 1987).
    void choose_start(Walkers& w, Rng& rng) const {
        const uint32_t N = uint32_t(indptr.size() - 1);
        w.chosen.resize(N / 64 + 1);
        w.node.resize(size_t(frontier));
        w.degrees.resize(size_t(frontier));
        w.next.resize(size_t(frontier));
        for (int64_t slot = 0; slot < frontier; ++slot) {
            const uint32_t last = N - uint32_t(frontier) + uint32_t(slot);
            uint32_t v = rng.below(last + 1);
            if (w.chosen[v / 64] >> (v % 64) & 1) v = last;
            w.chosen[v / 64] |= uint64_t(1) << (v % 64);
            w.popped.push_back(v);
            __builtin_prefetch(indptr.data() + v);
        }
        for (const int64_t v : w.popped) w.chosen[size_t(v) / 64] = 0;
        for (int64_t slot = 0; slot < frontier; ++slot) {
            w.degrees[slot] = enter(w, rng, int32_t(slot), int32_t(w.popped[slot]));
            __builtin_prefetch(indices.data() + w.next[slot]);
        }
        for (int64_t slot = 0; slot < frontier; ++slot)
            if (w.degrees[slot]) __builtin_prefetch(indptr.data() + indices.data()[w.next[slot]]);
    }

    // Puts node v into a slot and returns its degree. The neighbour that will replace it (Alg. 2, line 5) is drawn now:
    // it depends on nothing that happens before the pop, and its memory can be fetched meanwhile.
    int32_t enter(Walkers& w, Rng& rng, int32_t slot, int32_t v) const {
        const int64_t begin = indptr.data()[v];
        const int32_t degree = int32_t(indptr.data()[v + 1] - begin);
        w.node[slot] = v;
        w.next[slot] = degree ? begin + rng.below(uint32_t(degree)) : 0;
        return degree;
    }

    void walk(Walkers& w, Rng& rng, bool is_traced) const {
        const int64_t *p = indptr.data(), steps = budget - frontier;
        const int32_t* j = indices.data();
        int64_t recent[AHEAD];
        std::fill_n(recent, AHEAD, -1);
        for (int64_t step = 0; step < steps; ++step) {
            const int32_t slot = w.classes.pop(rng);  // line 4
            if (slot < 0) break;                      // no node of the frontier has neighbours (directed graphs)
            // Line 7. Alg. 3 of the paper adds the new node instead, and empties V before the loop: another
            // distribution, in which the first frontier may be missing.
            w.popped.push_back(w.node[slot]);
            const int32_t fresh = j[w.next[slot]];  // line 5
            const int32_t degree = enter(w, rng, slot, fresh);
            __builtin_prefetch(j + w.next[slot]);
            w.classes.push(slot, degree);  // line 6
            int64_t& earlier = recent[step % AHEAD];
            if (earlier >= 0) __builtin_prefetch(p + j[earlier]);
            earlier = degree ? w.next[slot] : -1;
            if (is_traced) {
                w.slot_trace.push_back(slot);
                w.node_trace.push_back(fresh);
            }
        }
    }

    const Array<int64_t> indptr;
    const Array<int32_t> indices;
    const int64_t budget, frontier;
    Workspaces<Walkers> workspaces;
};

void define_frontier(nb::module_& m) {
    nb::class_<Frontier>(m, "Frontier", "Algorithm 2 of Zeng et al. 2021")
        .def(nb::init<Array<int64_t>, Array<int32_t>, int64_t, int64_t>())
        .def("draw", &Frontier::draw)
        .def("trace", &Frontier::trace);
}

}  // namespace spgnn

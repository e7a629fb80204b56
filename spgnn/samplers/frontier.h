// The Dashboard: which slot of the frontier is popped next, with probability proportional to its node's degree.
//
// Source: Zeng et al., Accurate, efficient and scalable training of graph neural networks, 2021, section 4.2. There,
// the board has eta M d pins, d the mean degree of the graph, and a node that does not fit is cut short. In a graph of
// skewed degrees both fail: the frontier is visited in proportion to degree, so the board is cleaned up at every few
// steps, and a cut changes the distribution. Here a node of more than HUB neighbours is not pinned; its slot is in a
// short list of hubs, and a probe beyond the used pins selects from that list by weight. Exact for every graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "probe.h"

namespace spgnn {

constexpr int32_t HUB = 64;    // a node of more neighbours is a hub
constexpr int32_t BLOCK = 16;  // pins are written in blocks, as branches on their number are mispredicted

// Writes value to pins[0 .. count) and to what follows up to the end of the block.
inline void fill_blocks(int32_t* pins, int32_t count, int32_t value) {
    for (int32_t k = 0; k < count; k += BLOCK)
        for (int32_t i = 0; i < BLOCK; ++i) pins[k + i] = value;
}

// Writes -1 to pins[0 .. count) and nothing else: x | -1 = -1, x | 0 = x.
inline void clear_pins(int32_t* pins, int32_t count) {
    alignas(64) static const int32_t mask[2 * BLOCK] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                        -1, -1, -1, -1, -1, -1, -1, -1};  // then zeros
    for (int32_t k = 0; k < count; k += BLOCK) {
        const int32_t* of_block = mask + BLOCK - std::min(count - k, BLOCK);
        for (int32_t i = 0; i < BLOCK; ++i) pins[k + i] |= of_block[i];
    }
}

// The board, DB, has the slot of a pin, or -1 for NULL. A slot of degree d <= HUB has the d pins from start on; IA
// lists (slot, start) in the order of pinning, and an entry is alive while its slot still starts there.
class Dashboard {
  public:
    // Pins the first frontier; `degrees` of its slots.
    void begin(const std::vector<int32_t>& degrees, double eta, int isa, uint64_t seed, uint64_t stream,
               uint64_t index) {
        streams.seed(seed, stream, index);
        probe = probe_of(isa);
        int64_t pins = 0;
        for (const int32_t degree : degrees) pins += degree > HUB ? 0 : degree;
        capacity = std::max(int64_t(eta * double(pins)), std::max(pins, int64_t(4 * HUB)));
        reserve();
        start.assign(degrees.size(), -1);
        degree_of.assign(degrees.size(), 0);
        place.resize(degrees.size());
        hubs.clear();
        hubs.reserve(degrees.size());
        used = live = hub_weight = entries = cleanups = 0;
        for (size_t slot = 0; slot < degrees.size(); ++slot) push(int32_t(slot), degrees[slot]);
    }

    // Removes a slot with probability degree / sum of degrees and returns it; -1 if the sum is 0.
    int32_t pop(Rng& rng) {
        if (live + hub_weight == 0) return -1;
        const int64_t total = used + hub_weight;
        int64_t x = -1;
        if (total < (int64_t(1) << 31))
            while (x < 0) x = probe(streams, db.data(), uint32_t(used), uint32_t(total));
        else
            do x = int64_t(rng.below64(uint64_t(total)));
            while (x < used && db[size_t(x)] < 0);
        const int32_t slot = x < used ? db[size_t(x)] : hub_at(x - used);
        remove(slot);
        return slot;
    }

    void push(int32_t slot, int32_t degree) {
        degree_of[slot] = degree;
        start[slot] = -1;
        if (degree > HUB) {
            place[slot] = int32_t(hubs.size());
            hubs.push_back({degree, slot});
            hub_weight += degree;
        } else if (degree > 0) {
            if (used + degree > capacity) clean_up();
            fill_blocks(db.data() + used, degree, slot);
            start[slot] = used;
            ia[size_t(entries++)] = {used, slot};
            used += degree;
            live += degree;
        }
    }

    int64_t cleanups, capacity;

  private:
    struct Hub {
        int32_t weight, slot;
    };
    struct Entry {
        int64_t start;
        int32_t slot;
    };

    int32_t hub_at(int64_t x) const {
        size_t k = 0;
        while (x >= hubs[k].weight) x -= hubs[k++].weight;
        return hubs[k].slot;
    }

    void remove(int32_t slot) {
        const int32_t degree = degree_of[slot];
        if (degree > HUB) {
            const int32_t k = place[slot];
            hubs[k] = hubs.back();
            place[hubs[k].slot] = k;
            hubs.pop_back();
            hub_weight -= degree;
        } else {
            clear_pins(db.data() + start[slot], degree);
            start[slot] = -1;
            live -= degree;
        }
    }

    // One pass over IA moves the pins that are alive to the front; twice the board if they fill more than half of it.
    void clean_up() {
        int64_t end = 0, kept = 0;
        for (int64_t k = 0; k < entries; ++k) {
            const Entry entry = ia[size_t(k)];
            if (start[entry.slot] != entry.start) continue;
            std::fill_n(db.data() + end, degree_of[entry.slot], entry.slot);  // end <= entry.start
            start[entry.slot] = end;
            ia[size_t(kept++)] = {end, entry.slot};
            end += degree_of[entry.slot];
        }
        used = end;
        entries = kept;
        ++cleanups;
        if (2 * live > capacity) {
            capacity *= 2;
            reserve();
        }
    }

    void reserve() {
        if (int64_t(db.size()) < capacity + BLOCK) db.resize(size_t(capacity + BLOCK));
        if (int64_t(ia.size()) < capacity) ia.resize(size_t(capacity));
    }

    Streams streams;
    Probe probe;
    std::vector<int32_t> db, degree_of, place;
    std::vector<int64_t> start;
    std::vector<Entry> ia;
    std::vector<Hub> hubs;
    int64_t used, live, hub_weight, entries;
};

}  // namespace spgnn

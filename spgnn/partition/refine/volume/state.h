// Which parts read a net and how many of its readers each holds, updated while vertices move. No Python here.
//
// Masks: k <= 64, sets of parts as 64-bit masks. Lists: any k, (part, readers) pairs. Both store at most
// min(readers, k) counts per net.

#pragma once

#include <cassert>

#include "levels.h"

namespace spgnn {

class Masks {
  public:
    struct alignas(32) Net {
        uint64_t readers;  // parts that hold a reader
        uint64_t single;   // parts that hold exactly one
        int64_t first;     // its counts start here, in the order of the bits
        float weight;
        int16_t part;  // of its owner
        uint8_t kind;
    };
    std::vector<Net> nets;

    void start(const Level& level, int k) {
        std::vector<int32_t> here(k, 0);
        nets.clear();
        counts_.clear();
        for (int32_t e = 0; e < level.nets(); ++e) {
            Net net{0, 0, int64_t(counts_.size()), level.weight[e], int16_t(level.part[level.owner[e]]), level.kind[e]};
            for (int64_t i = level.pin_start[e]; i < level.pin_start[e + 1]; ++i) {
                const int p = level.part[level.pins[i]];
                ++here[p];
                net.readers |= bit(p);
            }
            counts_.resize(net.first + std::min<int64_t>(level.pin_start[e + 1] - level.pin_start[e], k));
            int32_t* count = counts_.data() + net.first;
            for (uint64_t rest = net.readers; rest; rest &= rest - 1) {
                const int p = __builtin_ctzll(rest);
                if (here[p] == 1) net.single |= bit(p);
                *count++ = here[p];
                here[p] = 0;
            }
            nets.push_back(net);
        }
    }

    template <class Visit>
    void each_reader_part(int32_t e, const Visit& visit) const {
        for (uint64_t rest = nets[e].readers; rest; rest &= rest - 1) visit(__builtin_ctzll(rest));
    }

    void prefetch(int32_t e) const { __builtin_prefetch(counts_.data() + nets[e].first, 1); }

    // A reader enters part p; true if it is the first there.
    bool add(int32_t e, int p) {
        Net& net = nets[e];
        int32_t* count = counts_.data() + net.first;
        const int rank = __builtin_popcountll(net.readers & (bit(p) - 1));
        if (net.readers & bit(p)) {
            ++count[rank];
            net.single &= ~bit(p);
            return false;
        }
        for (int i = __builtin_popcountll(net.readers); i > rank; --i) count[i] = count[i - 1];
        count[rank] = 1;
        net.readers |= bit(p);
        net.single |= bit(p);
        return true;
    }

    // A reader leaves part p; true if it was the last there.
    bool remove(int32_t e, int p) {
        Net& net = nets[e];
        int32_t* count = counts_.data() + net.first;
        const int rank = __builtin_popcountll(net.readers & (bit(p) - 1));
        assert(net.readers & bit(p));
        if (--count[rank]) {
            if (count[rank] == 1) net.single |= bit(p);
            return false;
        }
        const int size = __builtin_popcountll(net.readers);
        for (int i = rank; i + 1 < size; ++i) count[i] = count[i + 1];
        net.readers &= ~bit(p);
        net.single &= ~bit(p);
        return true;
    }

  private:
    std::vector<int32_t> counts_;
    static uint64_t bit(int p) { return uint64_t(1) << p; }
};

class Lists {
  public:
    struct Entry {
        int32_t part, count;
    };
    struct Net {
        int64_t first;  // its entries start here
        int32_t size;
        float weight;
        int16_t part;
        uint8_t kind;
    };
    std::vector<Net> nets;
    std::vector<Entry> entries;

    void start(const Level& level, int k) {
        std::vector<int32_t> seat(k, NONE);
        nets.clear();
        entries.clear();
        for (int32_t e = 0; e < level.nets(); ++e) {
            Net net{int64_t(entries.size()), 0, level.weight[e], int16_t(level.part[level.owner[e]]), level.kind[e]};
            const int64_t readers = level.pin_start[e + 1] - level.pin_start[e];
            entries.resize(net.first + std::min<int64_t>(readers, k));
            Entry* entry = entries.data() + net.first;
            for (int64_t i = level.pin_start[e]; i < level.pin_start[e + 1]; ++i) {
                const int p = level.part[level.pins[i]];
                if (seat[p] == NONE) {
                    seat[p] = net.size;
                    entry[net.size++] = {p, 0};
                }
                ++entry[seat[p]].count;
            }
            for (int32_t i = 0; i < net.size; ++i) seat[entry[i].part] = NONE;
            nets.push_back(net);
        }
    }

    template <class Visit>
    void each_reader_part(int32_t e, const Visit& visit) const {
        for (int32_t i = 0; i < nets[e].size; ++i) visit(entries[nets[e].first + i].part);
    }

    void prefetch(int32_t e) const { __builtin_prefetch(entries.data() + nets[e].first, 1); }

    bool add(int32_t e, int p) {
        Net& net = nets[e];
        Entry* entry = entries.data() + net.first;
        const int32_t i = find(net, p);
        if (i < net.size) {
            ++entry[i].count;
            return false;
        }
        entry[net.size++] = {p, 1};
        return true;
    }

    bool remove(int32_t e, int p) {
        Net& net = nets[e];
        Entry* entry = entries.data() + net.first;
        const int32_t i = find(net, p);
        assert(i < net.size);
        if (--entry[i].count) return false;
        entry[i] = entry[--net.size];
        return true;
    }

  private:
    int32_t find(const Net& net, int p) const {
        const Entry* entry = entries.data() + net.first;
        int32_t i = 0;
        while (i < net.size && entry[i].part != p) ++i;
        return i;
    }
};

}  // namespace spgnn

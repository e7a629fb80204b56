// Dense numbers for ids that have gaps.
#pragma once

#include "edges.h"

namespace spgnn::stream {

// The distinct ids of a stream by rising value, and the place of each: open addressing, linear probing.
class Numbering {
  public:
    template <class Index>
    void add(const Edges<Index>& edges) {
        for (int64_t i = 0; i < 2 * edges.size; ++i) {
            if (edges.ids[i] < 0)
                refuse(seen + i / 2, edges.ids[i & ~int64_t(1)], edges.ids[i | 1], "ids of 0 or more");
            if (10 * (count_ + 1) > 7 * int64_t(slots_.size())) grow();
            int64_t& slot = slots_[find(edges.ids[i])];
            count_ += slot < 0;
            slot = edges.ids[i];
        }
        seen += edges.size;
    }

    // Sort the ids; numbers() works from here on.
    const std::vector<int64_t>& finish() {
        if (count_ > MOST_NODES) throw std::invalid_argument("2^31 distinct ids or more are too many");
        ids_.reserve(count_);
        for (int64_t id : slots_)
            if (id >= 0) ids_.push_back(id);
        std::sort(ids_.begin(), ids_.end());
        number_.resize(slots_.size());
        for (size_t i = 0; i < ids_.size(); ++i) number_[find(ids_[i])] = Id(i);
        return ids_;
    }

    template <class Index>
    void numbers(const Edges<Index>& edges, int64_t before, int64_t* out) const {
        for (int64_t i = 0; i < 2 * edges.size; ++i) {
            const size_t slot = edges.ids[i] < 0 || slots_.empty() ? 0 : find(edges.ids[i]);
            if (slots_.empty() || slots_[slot] != int64_t(edges.ids[i]))
                refuse(before + i / 2, edges.ids[i & ~int64_t(1)], edges.ids[i | 1], "ids that the first pass had");
            out[i] = number_[slot];
        }
    }

    int64_t seen = 0;

  private:
    std::vector<int64_t> slots_, ids_;
    std::vector<Id> number_;
    int64_t count_ = 0;

    size_t find(int64_t id) const {
        const size_t mask = slots_.size() - 1;
        size_t slot = hashed(uint64_t(id)) & mask;
        while (slots_[slot] >= 0 && slots_[slot] != id) slot = (slot + 1) & mask;
        return slot;
    }

    void grow() {
        std::vector<int64_t> old(std::max<size_t>(1024, 2 * slots_.size()), -1);
        old.swap(slots_);
        for (int64_t id : old)
            if (id >= 0) slots_[find(id)] = id;
    }
};

}  // namespace spgnn::stream

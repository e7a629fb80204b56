// Which nodes of other parts a part reads, and those within some hops.
#pragma once

#include "../../stream/edges.h"

namespace spgnn::pipeline {

using stream::Id;
using stream::Large;

// The columns that one part reads from others, a bit per node, and the number of cut nonzeros.
class Reads {
  public:
    Reads(const int32_t* owner, int64_t n) : owner_(owner), n_(n), read_(n) {}

    void begin(int32_t part) {
        part_ = part;
        cut = 0;
        read_.clear();
    }

    void add(const Id* columns, int64_t size) {
        for (int64_t e = 0; e < size; ++e) {
            const Id column = columns[e];
            if (int64_t(column) >= n_) throw std::invalid_argument("a column is out of range");
            const bool is_foreign = owner_[column] != part_;
            read_.add(column, is_foreign);
            cut += is_foreign;
        }
    }

    const stream::Bits& read() const { return read_; }

    int32_t owner(int64_t v) const { return owner_[v]; }

    int64_t cut = 0;

  private:
    const int32_t* owner_;
    int64_t n_;
    stream::Bits read_;
    int32_t part_ = -1;
};

// The nodes that up to 64 parts hold: bit p of a node is set if part first + p holds it. A hop adds the columns of all
// held rows.
class Reach {
  public:
    Reach(const int32_t* owner, int64_t n, int32_t first) : before_(n), after_(n) {
        for (int64_t v = 0; v < n; ++v) {
            const int64_t p = int64_t(owner[v]) - first;
            if (p >= 0 && p < 64) before_[v] = after_[v] = uint64_t(1) << p;
        }
    }

    void hold(int part, const int64_t* ids, int64_t size) {
        for (int64_t i = 0; i < size; ++i) {
            if (ids[i] < 0 || ids[i] >= int64_t(before_.size())) throw std::invalid_argument("a node is out of range");
            before_[ids[i]] |= uint64_t(1) << part;
            after_[ids[i]] |= uint64_t(1) << part;
        }
    }

    // Rows first_row, first_row + 1, ... with their numbers of columns.
    void spread(int64_t first_row, const uint32_t* lengths, int64_t rows, const Id* columns, int64_t size) {
        const Id* column = columns;
        for (int64_t i = 0; i < rows; ++i) {
            const uint64_t held = before_[first_row + i];
            const Id* end = column + lengths[i];
            if (end > columns + size) throw std::invalid_argument("rows have more columns than there are");
            for (; column < end; ++column) after_[*column] |= held;
        }
    }

    // The nodes that this hop added to a part.
    std::vector<int64_t> added(int part) const {
        std::vector<int64_t> ids;
        for (size_t v = 0; v < after_.size(); ++v)
            if ((after_[v] & ~before_[v]) >> part & 1) ids.push_back(int64_t(v));
        return ids;
    }

    void next_hop() { std::copy(after_.begin(), after_.end(), before_.begin()); }

    int64_t nodes() const { return int64_t(before_.size()); }

  private:
    Large<uint64_t> before_, after_;
};

}  // namespace spgnn::pipeline

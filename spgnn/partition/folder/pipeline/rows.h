// From an edge stream to sorted rows: entries per row, entries in buckets that fit the memory, rows of a bucket.
#pragma once

#include "../../stream/edges.h"

namespace spgnn::pipeline {

using stream::Edges;
using stream::Id;
using stream::Large;

enum Use { UNDIRECTED, DIRECTED, REVERSED };

// f(row, column) for the nonzeros A[row, column] of the edges: u -> v is A[u, v], A[v, u] or both; a self-loop is one
// nonzero.
template <class Index, class F>
void each_entry(const Edges<Index>& edges, Use use, F f) {
    if (use == UNDIRECTED) {
        for (int64_t e = 0; e < edges.size; ++e) {
            const Id u = Id(edges.u(e)), v = Id(edges.v(e));
            f(u, v);
            if (u != v) f(v, u);
        }
    } else if (use == DIRECTED) {
        for (int64_t e = 0; e < edges.size; ++e) f(Id(edges.u(e)), Id(edges.v(e)));
    } else {
        for (int64_t e = 0; e < edges.size; ++e) f(Id(edges.v(e)), Id(edges.u(e)));
    }
}

// Entries of each row, duplicates included.
class RowCounts : public stream::Degrees {
  public:
    RowCounts(int64_t n, int64_t most, Use use) : Degrees(n, most), use_(use) {}

    template <class Index>
    void add(const Edges<Index>& edges) {
        uint32_t* d = fit(edges);
        bool is_full = false;
        each_entry(edges, use_, [&](Id row, Id) { is_full |= ++d[row] == 0; });
        if (is_full) throw std::invalid_argument("a node has 2^32 edges or more; drop the duplicates first");
        seen += edges.size;
    }

  private:
    Use use_;
};

// Entries sorted into buckets: bucket b has the rows of rank bounds[b] to bounds[b + 1] - 1. rank[v] is the place of
// node v when nodes are sorted by part.
class Spill {
  public:
    Spill(const uint32_t* rank, int64_t n, std::vector<int64_t> bounds, Use use, int64_t capacity)
        : rank_(rank),
          n_(n),
          bounds_(std::move(bounds)),
          use_(use),
          raw_(capacity),
          sorted_(capacity),
          offsets_(bounds_.size()) {
        while ((n_ >> shift_) >= CELLS) ++shift_;
        first_.resize((n_ >> shift_) + 1);
        int64_t b = 0;
        for (int64_t cell = 0; cell < int64_t(first_.size()); ++cell) {
            while (b + 2 < int64_t(bounds_.size()) && bounds_[b + 1] <= cell << shift_) ++b;
            first_[cell] = b;
        }
    }

    int64_t room() const { return int64_t(raw_.size()) - size_; }
    int64_t size() const { return size_; }

    template <class Index>
    void add(const Edges<Index>& edges) {
        if (room() < 2 * edges.size) throw std::invalid_argument("the spill has no room for so many edges");
        stream::largest_id(edges, n_, seen);
        uint64_t* out = raw_.data() + size_;
        each_entry(edges, use_, [&](Id row, Id column) { *out++ = uint64_t(rank_[row]) << 32 | column; });
        size_ = out - raw_.data();
        seen += edges.size;
    }

    // offsets[b] to offsets[b + 1]: the entries of bucket b in sorted(); the spill is empty then.
    const std::vector<int64_t>& sort() {
        std::fill(offsets_.begin(), offsets_.end(), 0);
        for (int64_t e = 0; e < size_; ++e) ++offsets_[bucket(raw_[e] >> 32) + 1];
        for (size_t b = 1; b < offsets_.size(); ++b) offsets_[b] += offsets_[b - 1];
        std::vector<int64_t> at(offsets_);
        for (int64_t e = 0; e < size_; ++e) sorted_[at[bucket(raw_[e] >> 32)]++] = raw_[e];
        size_ = 0;
        return offsets_;
    }

    const Large<uint64_t>& sorted() const { return sorted_; }
    const std::vector<int64_t>& offsets() const { return offsets_; }

    int64_t seen = 0;

  private:
    static constexpr int64_t CELLS = 1 << 14;
    const uint32_t* rank_;
    int64_t n_;
    std::vector<int64_t> bounds_;
    Use use_;
    Large<uint64_t> raw_, sorted_;
    std::vector<int64_t> offsets_, first_;
    int64_t size_ = 0;
    int shift_ = 0;

    int64_t bucket(uint64_t rank) const {
        int64_t b = first_[rank >> shift_];
        while (int64_t(rank) >= bounds_[b + 1]) ++b;
        return b;
    }
};

// The rows of a bucket, columns rising, each once.
class Bucket {
  public:
    // counts: entries of each row, as RowCounts had them.
    Bucket(int64_t first_rank, const uint32_t* counts, int64_t rows, int64_t n)
        : first_(first_rank), n_(n), end_(rows), lengths(rows) {
        int64_t total = 0;
        for (int64_t i = 0; i < rows; ++i) {
            end_[i] = total;
            lengths[i] = counts[i];
            total += counts[i];
        }
        columns.resize(total);
    }

    void add(const uint64_t* entries, int64_t size) {
        const uint64_t rows = lengths.size();
        for (int64_t e = 0; e < size; ++e) {
            const uint64_t i = (entries[e] >> 32) - uint64_t(first_);
            const Id column = Id(entries[e]);
            if (i >= rows || int64_t(column) >= n_ || lengths[i] == 0)
                throw std::invalid_argument("holds entries that the edges did not have");
            columns[end_[i]++] = column;
            --lengths[i];
        }
    }

    // Sort each row and drop its duplicates; from here on lengths and columns describe the rows.
    void finish() {
        int64_t start = 0, kept = 0;
        for (size_t i = 0; i < lengths.size(); ++i) {
            if (lengths[i]) throw std::invalid_argument("lacks entries that the edges had");
            Id *row = columns.data() + start, *end = columns.data() + end_[i];
            start = end_[i];
            std::sort(row, end);
            end = std::unique(row, end);
            lengths[i] = uint32_t(end - row);
            if (columns.data() + kept != row) std::copy(row, end, columns.data() + kept);
            kept += lengths[i];
        }
        columns.resize(kept);
    }

  private:
    int64_t first_, n_;
    Large<int64_t> end_;

  public:
    Large<uint32_t> lengths;
    Large<Id> columns;
};

}  // namespace spgnn::pipeline

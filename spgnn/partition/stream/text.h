// Pairs of ids from lines of text, and dense numbers for ids that are not.
#pragma once

#include "edges.h"

namespace spgnn::stream {

struct Lines {
    std::vector<int64_t> ids;  // u, v, u, v, ...
    int64_t bad_line = -1;     // 0-based line of the block at which reading stopped
    const char* expected = "";
    int64_t start = 0, stop = 0;  // bytes of that line
};

// Read lines `u v` or `u v weight`, separated by blanks, tabs or commas; lines that start with # or % are comments.
inline Lines read_lines(const char* text, int64_t size) {
    Lines lines;
    auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == ',' || c == '\r' || c == '\v' || c == '\f'; };
    int64_t at = 0;
    for (int64_t line = 0; at < size; ++line) {
        lines.start = at;
        int64_t id[2] = {0, 0};
        int columns = 0;
        const char* fault = nullptr;
        while (true) {
            while (at < size && is_blank(text[at])) ++at;
            if (at == size || text[at] == '\n') break;
            if (columns == 0 && (text[at] == '#' || text[at] == '%')) {
                while (at < size && text[at] != '\n') ++at;
                break;
            }
            int digits = 0;
            int64_t value = 0;
            const int64_t begin = at;
            for (; at < size && !is_blank(text[at]) && text[at] != '\n'; ++at) {
                if (columns >= 2 || fault) continue;
                if (text[at] < '0' || text[at] > '9' || ++digits > 18)
                    fault = "an id from 0 to 10^18 - 1";
                else
                    value = value * 10 + (text[at] - '0');
            }
            if (fault && text[begin] == '-') fault = "an id of 0 or more";
            if (fault) break;
            if (columns < 2) id[columns] = value;
            ++columns;
        }
        if (!fault && columns != 0 && columns != 2 && columns != 3)
            fault = "2 or 3 columns: source, target and perhaps a weight";
        if (fault) {
            while (at < size && text[at] != '\n') ++at;
            lines.bad_line = line;
            lines.expected = fault;
            lines.stop = at;
            return lines;
        }
        if (columns) lines.ids.push_back(id[0]), lines.ids.push_back(id[1]);
        ++at;
    }
    return lines;
}

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

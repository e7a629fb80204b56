// Which nodes were drawn, and their local ids: a bitmap of N bits with one rank per word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spgnn {

// Sorted distinct nodes of a graph of N; local id = rank. 0.19 N bytes, which a thread keeps between calls.
class Members {
  public:
    // The set of a thread while it holds the nodes; it is emptied by touching only the words that were set.
    class Held {
      public:
        Held(Members& members, const int64_t* nodes, int64_t count, int64_t N)
            : members(members), nodes(nodes), count(count) {
            const size_t words = size_t(N + 63) / 64;
            if (members.bits.size() < words) {
                members.ranks.resize(words);
                members.bits.resize(words);
            }
            for (int64_t i = 0; i < count; ++i) {
                const size_t word = size_t(nodes[i]) >> 6;
                if (!members.bits[word]) members.ranks[word] = uint32_t(i);
                members.bits[word] |= uint64_t(1) << (nodes[i] & 63);
            }
        }
        ~Held() {
            for (int64_t i = 0; i < count; ++i) members.bits[size_t(nodes[i]) >> 6] = 0;
        }
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;

        bool has(int64_t node) const { return members.bits[size_t(node) >> 6] >> (node & 63) & 1; }
        // The bits, 32 in a word: x86-64 stores the low half first.
        const int32_t* words() const { return reinterpret_cast<const int32_t*>(members.bits.data()); }
        // The local id of a node that is in the set.
        int32_t id(int64_t node) const {
            const uint64_t below = members.bits[size_t(node) >> 6] & ((uint64_t(1) << (node & 63)) - 1);
            return int32_t(members.ranks[size_t(node) >> 6] + uint32_t(__builtin_popcountll(below)));
        }

      private:
        Members& members;
        const int64_t* nodes;
        const int64_t count;
    };

    static Members& of_thread() {
        thread_local Members members;
        return members;
    }

  private:
    std::vector<uint64_t> bits;
    std::vector<uint32_t> ranks;
};

}  // namespace spgnn

// A block of a row's nonzeros: its sizes, and its memory.
#pragma once

#include "isa.h"

namespace spgnn::SPGNN_SET {

// Nonzeros in a block at most, and the bytes that their rows may have together: a block stays in L1.
static constexpr int64_t BLOCK_MOST = 64, BLOCK_BYTES = 16 << 10, BLOCK_LEAST = 8;
static constexpr int64_t BLOCK_REST = 16;  // entries after a block that a whole vector may read

// Bytes of rows that are prefetched, as in rows.h, and nonzeros that indices are prefetched ahead of these.
static constexpr int64_t EDGE_AHEAD_BYTES = 12 << 10, EDGE_AHEAD_MOST = 64, INDEX_AHEAD = 512;

static inline int64_t padded_heads(int64_t K) {
    if (K > 16) return (K + 15) / 16 * 16;
    int64_t padded = 1;
    while (padded < K) padded *= 2;
    return padded;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

// Arrays of one call, aligned to a cache line.
template <class T>
class Arena {
  public:
    explicit Arena(int64_t entries, int64_t arrays) : memory_((entries * sizeof(T) + 128) * arrays, 0) {
        next_ = memory_.data();
    }
    T* take(int64_t entries) {
        next_ += (64 - reinterpret_cast<uintptr_t>(next_) % 64) % 64;
        T* array = reinterpret_cast<T*>(next_);
        next_ += entries * sizeof(T);
        return array;
    }

  private:
    std::vector<char> memory_;
    char* next_;
};

}  // namespace spgnn::SPGNN_SET

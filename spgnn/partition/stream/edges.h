// Shared by all passes over an edge stream: chunks of edges, checks, hashes, least loaded parts.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <queue>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../native/mix.h"

namespace spgnn::stream {

using Id = uint32_t;
constexpr Id NONE = std::numeric_limits<Id>::max();
constexpr int64_t MOST_NODES = (int64_t(1) << 31) - 1;
constexpr int64_t AHEAD = 48;  // edges whose nodes are prefetched

// Large vectors from the system, in huge pages if it has them: nodes are visited in random order, each with a page
// walk. Freed memory goes back to the system at once, which malloc does not promise.
template <class T>
struct Pages {
    using value_type = T;
    static constexpr size_t LARGE = size_t(1) << 20;

    Pages() = default;
    template <class U>
    Pages(const Pages<U>&) {}

    T* allocate(size_t n) {
        const size_t bytes = n * sizeof(T);
        if (bytes < LARGE) return static_cast<T*>(::operator new(bytes));
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        madvise(memory, bytes, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(memory);
    }

    void deallocate(T* memory, size_t n) {
        const size_t bytes = n * sizeof(T);
        bytes < LARGE ? ::operator delete(memory) : void(munmap(memory, bytes));
    }

    bool operator==(const Pages&) const { return true; }
    bool operator!=(const Pages&) const { return false; }
};

template <class T>
using Large = std::vector<T, Pages<T>>;

// A set of nodes, a bit for each.
class Bits {
  public:
    explicit Bits(int64_t n) : words_((n + 63) / 64) {}

    void clear() { std::fill(words_.begin(), words_.end(), 0); }
    void add(Id v, bool is_in = true) { words_[v >> 6] |= uint64_t(is_in) << (v & 63); }

    int64_t count() const {
        int64_t sum = 0;
        for (uint64_t word : words_) sum += __builtin_popcountll(word);
        return sum;
    }

    template <class F>
    void each(F f) const {
        for (size_t w = 0; w < words_.size(); ++w)
            for (uint64_t word = words_[w]; word; word &= word - 1) f(int64_t(w) * 64 + __builtin_ctzll(word));
    }

  private:
    Large<uint64_t> words_;
};

// A chunk of the stream: size pairs (u, v), one after the other.
template <class Index>
struct Edges {
    const Index* ids;
    int64_t size;
    Index u(int64_t e) const { return ids[2 * e]; }
    Index v(int64_t e) const { return ids[2 * e + 1]; }
};

[[noreturn]] inline void refuse(int64_t edge, int64_t u, int64_t v, const std::string& expected) {
    throw std::invalid_argument("edge " + std::to_string(edge) + " of the stream is " + std::to_string(u) + " -> " +
                                std::to_string(v) + "; expected " + expected);
}

#if defined(__x86_64__) && defined(__linux__)
#define SPGNN_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define SPGNN_WIDE
#endif

// The largest of n ids, read as unsigned, so that a negative id is large; 0 if n = 0.
SPGNN_WIDE inline uint64_t largest_of(const int32_t* ids, int64_t n) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, uint32_t(ids[i]));
    return largest;
}

SPGNN_WIDE inline uint64_t largest_of(const int64_t* ids, int64_t n) {
    uint64_t largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, uint64_t(ids[i]));
    return largest;
}

// Check that all ids are 0 to limit - 1 and return the largest, -1 for an empty chunk. before: edges of earlier chunks.
template <class Index>
int64_t largest_id(const Edges<Index>& edges, int64_t limit, int64_t before) {
    using Unsigned = std::make_unsigned_t<Index>;
    const uint64_t largest = largest_of(edges.ids, 2 * edges.size);
    if (edges.size && largest >= uint64_t(limit)) {
        for (int64_t e = 0; e < edges.size; ++e)
            if (uint64_t(Unsigned(edges.u(e))) >= uint64_t(limit) || uint64_t(Unsigned(edges.v(e))) >= uint64_t(limit))
                refuse(before + e, edges.u(e), edges.v(e), "ids from 0 to " + std::to_string(limit - 1));
    }
    return edges.size ? int64_t(largest) : -1;
}

// The hash behind all random choices here.
inline uint64_t hash(uint64_t seed, uint64_t value) { return hashed(hashed(seed) ^ value); }

// Count and order-dependent hash of a stream: equal for two passes over the same edges, whatever the
// chunks.
class Fingerprint {
  public:
    template <class Index>
    void add(const Edges<Index>& edges) {
        int64_t e = 0;
        for (; e < edges.size && (count_ + e) % LANES; ++e) step(lane_[(count_ + e) % LANES], edges, e);
        uint64_t lane[LANES];
        std::copy(lane_, lane_ + LANES, lane);
        for (; e + LANES <= edges.size; e += LANES)
            for (int l = 0; l < LANES; ++l) step(lane[l], edges, e + l);
        std::copy(lane, lane + LANES, lane_);
        for (; e < edges.size; ++e) step(lane_[(count_ + e) % LANES], edges, e);
        count_ += edges.size;
    }

    int64_t count() const { return count_; }

    uint64_t value() const {
        uint64_t all = hashed(uint64_t(count_));
        for (uint64_t lane : lane_) all = hashed(all ^ lane);
        return all;
    }

  private:
    static constexpr int LANES = 8;  // independent, as each step waits for the one before
    int64_t count_ = 0;
    uint64_t lane_[LANES] = {1, 2, 3, 4, 5, 6, 7, 8};

    static uint64_t turned(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

    static uint64_t pair(const Edges<int32_t>& edges, int64_t e) {
        uint64_t both;
        std::memcpy(&both, edges.ids + 2 * e, sizeof both);
        return both;
    }

    static uint64_t pair(const Edges<int64_t>& edges, int64_t e) {
        return uint64_t(edges.u(e)) ^ turned(uint64_t(edges.v(e)), 32);
    }

    // One to one in the lane, and in ids below 2^32: if one edge differs, the value differs.
    template <class Index>
    static void step(uint64_t& lane, const Edges<Index>& edges, int64_t e) {
        lane = turned(lane ^ pair(edges, e), 29) * 0x9e3779b97f4a7c15ull;
    }
};

// d(v) = edges of the stream that touch v, self-loops not counted; N grows with the ids unless it is given.
class Degrees {
  public:
    // n < 0: not known; most: the number of nodes at which the ids are refused.
    Degrees(int64_t n, int64_t most) : limit_(n >= 0 ? n : std::min(most, MOST_NODES)) {
        if (n > MOST_NODES) throw std::invalid_argument("2^31 nodes or more are too many");
        degree.resize(std::max<int64_t>(n, 0));
    }

    template <class Index>
    void add(const Edges<Index>& edges) {
        uint32_t* d = fit(edges);
        for (int64_t e = 0; e < edges.size; ++e) {
            if (e + AHEAD < edges.size) {
                __builtin_prefetch(&d[edges.u(e + AHEAD)], 1);
                __builtin_prefetch(&d[edges.v(e + AHEAD)], 1);
            }
            const Id u = Id(edges.u(e)), v = Id(edges.v(e));
            const uint32_t counts = u != v;
            d[u] += counts;
            d[v] += counts;
        }
        seen += edges.size;
    }

    Large<uint32_t> degree;
    int64_t seen = 0;

  protected:
    // Check the ids of edges and make room for them.
    template <class Index>
    uint32_t* fit(const Edges<Index>& edges) {
        const int64_t n = largest_id(edges, limit_, seen) + 1;
        if (n > int64_t(degree.size())) {
            if (n > int64_t(degree.capacity()))
                degree.reserve(std::min(limit_, std::max(n, int64_t(degree.size()) * 3 / 2)));
            degree.resize(n);
        }
        return degree.data();
    }

  private:
    int64_t limit_;
};

// The loads of k parts that only grow, and the least of them; ties go to the lowest part.
class Loads {
  public:
    explicit Loads(int64_t k) : load_(k) {
        for (int64_t p = 0; p < k; ++p) queue_.push({0, p});
    }

    int64_t operator[](int64_t p) const { return load_[p]; }

    int64_t least() {
        while (queue_.top().first != load_[queue_.top().second]) {
            const int64_t p = queue_.top().second;
            queue_.pop();
            queue_.push({load_[p], p});
        }
        return queue_.top().second;
    }

    void add(int64_t p, int64_t weight) { load_[p] += weight; }

    // The part of a single node.
    int64_t take() {
        const int64_t p = least();
        ++load_[p];
        return p;
    }

  private:
    std::vector<int64_t> load_;
    std::priority_queue<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>, std::greater<>> queue_;
};

}  // namespace spgnn::stream

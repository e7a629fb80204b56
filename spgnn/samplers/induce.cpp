// The subgraph that nodes induce, A[V][:, V]; and sets of nodes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../native/cpu.h"
#include "../native/rng.h"
#include "samplers.h"

#ifdef SPGNN_DISPATCH
#include <immintrin.h>
#endif

namespace spgnn {

// Sorted distinct nodes of a graph of N, a bitmap of N bits with one rank per word; local id = rank. 0.19 N bytes,
// which a thread keeps between calls.
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

constexpr size_t kKept = size_t(1) << 22;  // nonzeros that the scratch of a thread keeps between calls

constexpr size_t kLanes = 16;  // what a vector may write beyond the hits

// The nonzeros found so far, with room for the next row. Places are first places in the row, then in A;
// columns are first nodes, then local ids.
struct Found {
    std::vector<int32_t> offsets, ids;
    std::vector<int64_t> places;

    void make_room(size_t count) {
        if (places.size() >= count + kLanes) return;  // the last to grow: shorter than the others if memory ran out
        const size_t size = std::max(count, 2 * places.size()) + kLanes;
        offsets.resize(size);
        ids.resize(size);
        places.resize(size);
    }
    void shrink() {
        if (ids.size() > kKept) *this = Found();
    }
    static Found& of_thread() {
        thread_local Found found;
        return found;
    }
};

// Write the columns of a row that are in the set, and their places in the row, without a branch; return their number.
static int64_t row_hits(const int32_t* row, int64_t length, const Members::Held& held, int32_t* columns,
                        int32_t* offsets) {
    int64_t k = 0;
    for (int64_t e = 0; e < length; ++e) {
        columns[k] = row[e];
        offsets[k] = int32_t(e);
        k += held.has(row[e]);
    }
    return k;
}

#ifdef SPGNN_DISPATCH
// The same, 16 columns at a time.
__attribute__((target("avx512f,popcnt"))) static int64_t row_hits_16(const int32_t* row, int64_t length,
                                                                     const int32_t* words, int32_t* columns,
                                                                     int32_t* offsets) {
    const __m512i one = _mm512_set1_epi32(1), low = _mm512_set1_epi32(31), step = _mm512_set1_epi32(kLanes);
    __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int64_t k = 0;
    for (int64_t e = 0; e < length; e += kLanes) {
        const __mmask16 lanes = length - e >= int64_t(kLanes) ? 0xffff : __mmask16((1u << (length - e)) - 1);
        const __m512i j = _mm512_maskz_loadu_epi32(lanes, row + e);
        const __m512i word = _mm512_mask_i32gather_epi32(one, lanes, _mm512_maskz_srli_epi32(lanes, j, 5), words, 4);
        const __m512i bit = _mm512_maskz_sllv_epi32(lanes, one, _mm512_and_si512(j, low));
        const __mmask16 hits = _mm512_mask_test_epi32_mask(lanes, word, bit);
        _mm512_storeu_si512(columns + k, _mm512_maskz_compress_epi32(hits, j));
        _mm512_storeu_si512(offsets + k, _mm512_maskz_compress_epi32(hits, at));
        k += __builtin_popcount(hits);
        at = _mm512_add_epi32(at, step);
    }
    return k;
}
#endif

static void check_nodes(const Array<int64_t>& nodes, int64_t N) {
    const int64_t *v = nodes.data(), m = nodes.size();
    bool rises = nodes.ndim() == 1 && (m == 0 || (v[0] >= 0 && v[m - 1] < N));
    for (int64_t i = 1; i < m; ++i) rises &= v[i - 1] < v[i];
    require(rises, "nodes must be sorted, distinct and of 0 to N - 1");
}

// Nonzeros of the rows of V whose column is in V: the hits of a row are found, then numbered.
static int64_t find(const int64_t* indptr, const int32_t* indices, const Members::Held& held, const int64_t* nodes,
                    int64_t m, int64_t* ends, Found& found, bool uses_vectors) {
    int64_t k = 0;
    ends[0] = 0;
    for (int64_t i = 0; i < m; ++i) {
        if (i + 2 * ROWS_AHEAD < m) __builtin_prefetch(indptr + nodes[i + 2 * ROWS_AHEAD]);
        if (i + ROWS_AHEAD < m) prefetch_row(indptr, indices, nodes[i + ROWS_AHEAD]);
        const int64_t start = indptr[nodes[i]], length = indptr[nodes[i] + 1] - start;
        found.make_room(size_t(k + length));
        int32_t *ids = found.ids.data() + k, *offsets = found.offsets.data() + k;
        int64_t *places = found.places.data() + k, hits;
#ifdef SPGNN_DISPATCH
        if (uses_vectors)
            hits = row_hits_16(indices + start, length, held.words(), ids, offsets);
        else
#endif
            hits = row_hits(indices + start, length, held, ids, offsets);
        for (int64_t h = 0; h < hits; ++h) {
            places[h] = start + offsets[h];
            ids[h] = held.id(ids[h]);
        }
        ends[i + 1] = k += hits;
    }
    return k;
}

// indptr (m + 1), local columns (e), places in A (e) of A[V][:, V].
static nb::tuple induce(const Array<int64_t>& indptr, const Array<int32_t>& indices, const Array<int64_t>& nodes,
                        bool uses_vectors) {
    const int64_t N = indptr.size() - 1, m = nodes.size();
    Array<int64_t> ends(m + 1);
    Found& found = Found::of_thread();
#ifdef SPGNN_DISPATCH
    uses_vectors = uses_vectors && best_isa() == 2;
#endif
    int64_t *out = ends.mutable_data(), e = 0;
    {
        nb::gil_scoped_release release;
        check_nodes(nodes, N);
        const Members::Held held(Members::of_thread(), nodes.data(), m, N);
        e = find(indptr.data(), indices.data(), held, nodes.data(), m, out, found, uses_vectors);
    }
    Array<int32_t> ids(e);
    Array<int64_t> places(e);
    std::copy_n(found.ids.data(), e, ids.mutable_data());
    std::copy_n(found.places.data(), e, places.mutable_data());
    found.shrink();
    return nb::make_tuple(ends, ids, places);
}

// The distinct nodes, ascending: by a bitmap where it is short, by sorting elsewhere.
static Array<int64_t> distinct(const Array<int64_t>& nodes, int64_t N) {
    std::vector<int64_t> out;
    {
        const int64_t *v = nodes.data(), count = nodes.size();
        nb::gil_scoped_release release;
        for (int64_t i = 0; i < count; ++i) require(v[i] >= 0 && v[i] < N, "nodes must be of 0 to N - 1");
        if (N / 64 < 16 * count) {
            std::vector<uint64_t> bits(size_t(N + 63) / 64);
            for (int64_t i = 0; i < count; ++i) bits[size_t(v[i]) >> 6] |= uint64_t(1) << (v[i] & 63);
            out.reserve(size_t(std::min(N, count)));
            for (size_t word = 0; word < bits.size(); ++word)
                for (uint64_t left = bits[word]; left; left &= left - 1)
                    out.push_back(int64_t(word * 64) + __builtin_ctzll(left));
        } else {
            out.assign(v, v + count);
            std::sort(out.begin(), out.end());
            out.erase(std::unique(out.begin(), out.end()), out.end());
        }
    }
    return array_of(out);
}

void define_induce(nb::module_& m) {
    m.def("induce", &induce, "(indptr, indices, places in A) of A[V][:, V], V sorted and distinct", nb::arg("indptr"),
          nb::arg("indices"), nb::arg("nodes"), nb::arg("uses_vectors") = true);
    m.def("distinct", &distinct, "the distinct nodes of an array, ascending");
}

}  // namespace spgnn

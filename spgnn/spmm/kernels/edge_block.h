// What the loops over edges share whatever the instruction set: the pattern of a matrix, dropout on edges, and the
// memory of a block of a row's nonzeros. Shapes: n rows, c columns, K heads of width D, column d K + h.
#pragma once

#include "parallel.h"
#include "storage.h"

struct Pattern {
    const int64_t* indptr;
    const void* indices;
    bool is_wide;  // int64_t, else int32_t
    int64_t n, nnz;
};

// A weight is dropped where hash(key, id of row, id of column, head) < threshold; the others are times scale.
struct EdgeDrop {
    bool is_on = false;
    uint64_t key = 0;
    uint32_t threshold = 0;
    double scale = 1;
    const int64_t *row_ids = nullptr, *column_ids = nullptr;
};

// Nonzeros in a block at most, and the bytes that their rows may have together: a block stays in L1.
static constexpr int64_t BLOCK_MOST = 64, BLOCK_BYTES = 16 << 10, BLOCK_LEAST = 8;
static constexpr int64_t BLOCK_REST = 16;  // entries after a block that a whole vector may read

// Bytes of rows that are prefetched, as in rows.h, and nonzeros that indices are prefetched ahead of these.
static constexpr int64_t EDGE_AHEAD_BYTES = 12 << 10, EDGE_AHEAD_MOST = 64, INDEX_AHEAD = 512;

inline int64_t padded_heads(int64_t K) {
    if (K > 16) return (K + 15) / 16 * 16;
    int64_t padded = 1;
    while (padded < K) padded *= 2;
    return padded;
}

inline uint32_t bits_of(float x) {
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

// Checks of the arrays of a call.
template <class I>
inline Pattern pattern_of(const Array<int64_t>& indptr, const Array<I>& indices) {
    require(indptr.ndim() == 1 && indptr.shape(0) > 0, "indptr must have a row count + 1 entries");
    const int64_t n = indptr.shape(0) - 1, nnz = indptr.data()[n];
    require(indices.ndim() == 1 && nnz == indices.shape(0), "indptr must end at the number of indices");
    return {indptr.data(), indices.data(), sizeof(I) == 8, n, nnz};
}

template <class T>
inline bool has_shape(const Array<T>& M, int64_t rows, int64_t columns) {
    return M.ndim() == 2 && M.shape(0) == rows && M.shape(1) == columns;
}

// An array that is written in place, or read: of this very type, contiguous.
template <class T>
inline Array<T> writable(const py::object& array) {
    require(py::isinstance<Array<T>>(array), "an array is of another type than the others, or not contiguous");
    return py::reinterpret_borrow<Array<T>>(array);
}

// f(integral_constant): the number of heads where it has loops of its own, else 0.
template <class F>
inline void of_heads(int64_t K, const F& f) {
    switch (K) {
        case 1:
            return f(std::integral_constant<int, 1>{});
        case 2:
            return f(std::integral_constant<int, 2>{});
        case 4:
            return f(std::integral_constant<int, 4>{});
        case 8:
            return f(std::integral_constant<int, 8>{});
        case 16:
            return f(std::integral_constant<int, 16>{});
        default:
            return f(std::integral_constant<int, 0>{});
    }
}

// drop: None or (key, rate, ids of the n rows, ids of the c columns).
inline EdgeDrop edge_drop(const py::object& drop, int64_t n, int64_t c) {
    if (drop.is_none()) return {};
    const auto parts = py::cast<py::tuple>(drop);
    require(parts.size() == 4, "drop: (key, rate, ids of rows, ids of columns)");
    const auto ids = [&](int i, int64_t count) {
        const auto array = writable<int64_t>(parts[i]);
        require(array.ndim() == 1 && array.shape(0) == count, "drop: one id a row and column");
        return array.data();
    };
    const double rate = py::cast<double>(parts[1]);
    return {true, py::cast<uint64_t>(parts[0]), drop_threshold(rate), 1 / (1 - rate), ids(2, n), ids(3, c)};
}

// What a call of attend is given.
template <class SX>
struct Attend {
    typedef typename Compute<SX>::type T;
    Pattern A;
    int64_t K, width;
    const SX* X;
    const T *left, *right;
    T *Z, *top, *sum, *plus, *plus_sum;  // plus, plus_sum null: not wanted
    T slope;
    EdgeDrop drop;
    bool accumulate, finish;
};

// record_i = (left_i, L_i, D_i), dleft_i = slope (<G, Z> - D sum) + (1 - slope) (<G, plus> - D plus_sum).
template <class SG>
struct Record {
    typedef typename Compute<SG>::type T;
    int64_t K, width;
    const SG* G;
    const T *left, *Z, *L, *sum, *plus, *plus_sum, *D;  // D null: <G, Z>
    T slope;
    T *record, *dleft;
};

template <class SX>
struct AttendAdjoint {
    typedef typename Compute<SX>::type T;
    Pattern A;  // the transpose: row j, columns i
    int64_t K, width;
    const SX *X, *G;
    const T *record, *right;
    T *dX, *dright;
    T slope;
    EdgeDrop drop;  // its rows are the columns here
    bool accumulate;
};

// What a call of attend2 is given: sums.X is right, which with left (n, K D) makes the scores.
template <class SX>
struct Attend2 {
    typedef typename Compute<SX>::type T;
    Attend<SX> sums;
    const SX* left;
    const T* a;
};

// The gradient of left and a in a pass over rows of A, or of right in one over those of A'.
template <class SX>
struct Attend2Adjoint {
    typedef typename Compute<SX>::type T;
    Pattern A;
    int64_t K, width;
    const SX *right, *left, *G;
    const T *a, *record;  // record_i = (L_i, D_i)
    T* out;
    T slope;
    EdgeDrop drop;  // rows and columns of A, not of A'
    bool accumulate;
};

// What the loops of edges.h are given; null: not used.
template <class T>
struct EdgeMatrices {
    Pattern A;
    int64_t K, width;
    const T *U, *X;         // of rows, of columns
    const T* values;        // (nnz, K)
    const int64_t* places;  // of the nonzeros in values; null: in order
    T* out;
    bool accumulate;
};

template <class T>
struct EdgeValues {
    Pattern A;
    int64_t K;
    const T *values, *more, *L;  // (nnz, K) twice, (n, K)
    T *out, *top, *sum;
    bool accumulate;
};

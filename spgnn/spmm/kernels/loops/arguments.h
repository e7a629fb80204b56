// What calls of the loops are given: pointers and sizes, whatever the instruction set. No Python here.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spgnn {

// What matrices are stored in: float, double, or bfloat16, the upper half of a float, as uint16_t.
// Arithmetic on bfloat16 is done in float; Compute<S> names the type.
typedef uint16_t bfloat16;

template <class S>
struct Compute {
    typedef S type;
};
template <>
struct Compute<bfloat16> {
    typedef float type;
};

static inline __attribute__((always_inline)) float widen(float x) { return x; }
static inline __attribute__((always_inline)) double widen(double x) { return x; }
static inline __attribute__((always_inline)) float widen(bfloat16 x) {
    const uint32_t bits = uint32_t(x) << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

static inline __attribute__((always_inline)) void narrow(float x, float& y) { y = x; }
static inline __attribute__((always_inline)) void narrow(double x, double& y) { y = x; }
static inline __attribute__((always_inline)) void narrow(float x, bfloat16& y) {  // to nearest, ties to even; NaN stays
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    y = bfloat16((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

// Y = A X (+ Y) (+ add) (+ bias), then ReLU; A in CSR, X and Y row-major.
template <class SX, class SY>
struct Product {
    typedef SX Source;
    static constexpr bool IS_COMMON = std::is_same<SX, SY>::value && sizeof(SX) <= 4;  // has wider tiles
    typedef typename Compute<SX>::type T;  // of weights, sums and bias, whatever X and Y are stored in
    const int64_t* indptr;
    const int32_t* indices;
    const T* weights;  // null: every nonzero is 1
    const SX* X;
    int64_t ldx;
    SY* Y;
    int64_t ldy;
    const T* bias;  // null: none
    const T* add;   // rows as Y has them; null: none
    bool accumulate, relu;
    int64_t nnz;
    const int64_t* rows;  // rows[i]: the row of Y and of add for row i of A, all different; null: row i
};

// out (n, m) = X W (+ add) (+ bias), then ReLU; X (n, k) with rows ldx apart, W packed.
template <class T>
struct Gemm {
    const T* X;
    int64_t ldx, k;
    const T* W;
    int64_t m;
    T* out;
    const T* bias;  // null: none
    const T* add;   // (n, m), may be out; null: none
    bool relu;
};

// Gradients of Z = relu(X W + b): of dZ = G where Z > 0, dX (n, k) = dZ W' and X' dZ.
template <class T>
struct GemmAdjoint {
    const T* G;
    const T* Z;  // null: dZ = G
    T* masked;   // dZ, may be G; null: not kept
    const T* X;
    const T* W;  // W' packed
    int64_t k, m;
    T* dX;      // null: not made
    bool adds;  // to what is in dX
};

// Scores <Q_i, C_j> of queries Q (q, k) and of m candidates from `first` on, packed.
template <class T>
struct Scored {
    const T* Q;
    const T* C;
    int64_t first, m, k;
    const int64_t* known_indptr;  // (q + 1,)
    const int64_t* known;         // candidates of each query that do not count, rising
};

template <class T>
struct Best {
    T score;
    int64_t id;
};

constexpr int64_t RANK_BLOCK = 512;  // candidates whose scores by a chunk of queries stay in the second cache

// Columns of a tile: an index in it fits a byte. 128 rows of X take 21 KB at 41 columns, a first-level cache, and 128
// at 256, a share of the second.
constexpr int64_t TILE_COLUMNS = 128;

// A block of rows: its first row in the list, its tiles, and where its counts and its nonzeros begin. One more ends the
// last block.
struct RowBlock {
    int64_t row, tiles, count, nonzero;
};

template <class SX, class SY>
struct Tiled {
    static constexpr bool IS_COMMON = sizeof(SX) <= 4;
    typedef typename Compute<SX>::type T;
    const RowBlock* blocks;
    const uint8_t *counts, *indices;  // of each row in each tile, and of each nonzero within its tile
    const T* weights;                 // null: every nonzero is 1
    const SX* X;
    int64_t ldx;
    SY* Y;
    int64_t ldy;
    const int64_t* rows;  // of Y, for each row of the blocks, each once
    bool accumulate;
};

// What ends a product: act(Z + b).
enum Act { NO_ACT, RELU, ELU };

// How rows travel.
enum Format { BFLOAT16, HALF };

// The nonzeros of a matrix. Shapes from here on: n rows, c columns, K heads of width D, column d K + h.
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
    int act = NO_ACT;         // with finish: Z becomes act(Z + bias)
    const T* bias = nullptr;  // null: none
};

// left_i = <x_i, fixed>, right_i = <x_i, fixed + width> of each head; left null: not wanted.
template <class SX>
struct FixedDots {
    typedef typename Compute<SX>::type T;
    int64_t K, width;
    const SX* X;
    const T* fixed;  // (2, K D)
    T *left, *right;
};

// record_i = (left_i, top_i, scale_i, D_i), without left the last three; dleft_i = slope (<G, Z> - D share) + (1 -
// slope)
// (<G, plus> - D plus_sum).
template <class SG>
struct Record {
    typedef typename Compute<SG>::type T;
    int64_t K, width;
    const SG* G;
    const T *left, *Z, *top, *scale, *plus, *plus_sum;
    const T *share, *D;  // null: of all nonzeros of a row, whose share is 1 and D = <G, Z>
    T slope;
    T *record, *dleft;
    int act = NO_ACT;         // Z is act(Z + bias), and G the gradient of that
    const T* bias = nullptr;  // null: none
    SG* dZ = nullptr;         // out, the gradient of Z + bias; null: G is
};

template <class SX>
struct AttendAdjoint {
    typedef typename Compute<SX>::type T;
    Pattern A;  // the transpose: row j, columns i
    int64_t K, width;
    const SX *X, *G;
    const T *record, *right;
    const T *fixed, *dleft;  // (2, K D), (c, K): dX_j has fixed_0 dleft_j + fixed_1 dright_j; dleft null: 0
    T* dX;
    T slope;
    EdgeDrop drop;  // its rows are the columns here
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
    const T *a, *record;  // record_i = (top_i, scale_i, D_i)
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
    const T *values, *more, *D;  // (nnz, K) twice, (n, K)
    T *out, *top, *sum;          // shares read top, and 1 / sum in the place of sum
    bool accumulate;
};

}  // namespace spgnn

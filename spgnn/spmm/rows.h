// Y = A X (+ Y) (+ bias) (then ReLU), A in CSR, X and Y row-major: one tile of columns of one row.
// Included once for each instruction set; needs lanes.h.

template <class T, class I>
struct Product {
    const int64_t* indptr;
    const I* indices;
    const T* weights;  // null: every nonzero is 1
    const T* X;
    int64_t ldx;
    T* Y;
    int64_t ldy;
    const T* bias;  // null: none
    bool accumulate, relu;
    int64_t nnz;
};

// Bytes of X that are asked for ahead of their use, and the most nonzeros that this may be: the
// addresses are known long before, narrow rows need many of them in flight, and all must stay in L1.
static constexpr int64_t AHEAD_BYTES = 32768, AHEAD_MOST = 64;

// Columns [col, col + (NV - 1) lanes] and, as the last vector, the lanes that start at col + last.
template <class V, int NV, bool WEIGHTED, class T, class I>
static inline void row_tile(const Product<T, I>& p, int64_t row, int64_t col, int64_t last) {
    constexpr int UNROLL = NV == 1 ? 4 : NV == 2 ? 2 : 1;  // independent sums hide the add's latency
    constexpr int64_t BYTES = NV * V::count * sizeof(T), AHEAD = std::min(AHEAD_MOST, std::max<int64_t>(8, AHEAD_BYTES / BYTES));
    constexpr int LINES = (BYTES + 63) / 64;
    typename V::reg sum[UNROLL][NV] = {};
    T* y = p.Y + row * p.ldy + col;
    const int64_t begin = p.indptr[row], end = p.indptr[row + 1];
    const T* X = p.X + col;
    auto add = [&](int u, int64_t e) __attribute__((always_inline)) {
        if (e + AHEAD < p.nnz) {
            const char* next = reinterpret_cast<const char*>(X + int64_t(p.indices[e + AHEAD]) * p.ldx);
            for (int line = 0; line < LINES; ++line) __builtin_prefetch(next + 64 * line);
        }
        const T* x = X + int64_t(p.indices[e]) * p.ldx;
        for (int v = 0; v < NV - 1; ++v) {
            if (WEIGHTED) sum[u][v] += V::all(p.weights[e]) * V::load(x + v * V::count);
            else sum[u][v] += V::load(x + v * V::count);
        }
        if (WEIGHTED) sum[u][NV - 1] += V::all(p.weights[e]) * V::load(x + last);
        else sum[u][NV - 1] += V::load(x + last);
    };
    int64_t e = begin;
    for (; e + UNROLL <= end; e += UNROLL)
        for (int u = 0; u < UNROLL; ++u) add(u, e + u);
    for (; e < end; ++e) add(0, e);
    for (int u = 1; u < UNROLL; ++u)
        for (int v = 0; v < NV; ++v) sum[0][v] += sum[u][v];
    if (p.accumulate) {  // every lane is read before any is written: the last two vectors may overlap
        for (int v = 0; v < NV - 1; ++v) sum[0][v] += V::load(y + v * V::count);
        sum[0][NV - 1] += V::load(y + last);
    }
    if (p.bias) {
        const T* b = p.bias + col;
        for (int v = 0; v < NV - 1; ++v) sum[0][v] += V::load(b + v * V::count);
        sum[0][NV - 1] += V::load(b + last);
    }
    if (p.relu)
        for (int v = 0; v < NV; ++v) sum[0][v] = positive<V>(sum[0][v]);
    for (int v = 0; v < NV - 1; ++v) V::store(y + v * V::count, sum[0][v]);
    V::store(y + last, sum[0][NV - 1]);
}

template <class V, int NV, bool WEIGHTED, class T, class I>
static void rows_tile(const Product<T, I>& p, int64_t begin, int64_t end, int64_t col, int64_t last) {
    for (int64_t row = begin; row < end; ++row) row_tile<V, NV, WEIGHTED>(p, row, col, last);
}

// Choose the tile with `vectors` accumulators at run time.
template <class V, int NV, bool WEIGHTED, class T, class I>
static inline void choose_tile(int vectors, const Product<T, I>& p, int64_t begin, int64_t end, int64_t col, int64_t last) {
    if constexpr (NV > 1) {
        if (vectors < NV) return choose_tile<V, NV - 1, WEIGHTED>(vectors, p, begin, end, col, last);
    }
    rows_tile<V, NV, WEIGHTED>(p, begin, end, col, last);
}

// Rows [begin, end) at `width` columns from `col` on, at least one vector wide.
template <class V, int TILE, bool WEIGHTED, class T, class I>
static inline void tile_columns(const Product<T, I>& p, int64_t begin, int64_t end, int64_t width) {
    constexpr int64_t lanes = V::count;
    const int64_t vectors = (width + lanes - 1) / lanes, tiles = (vectors + TILE - 1) / TILE;
    for (int64_t t = 0; t < tiles; ++t) {  // tiles of nearly equal size
        const int64_t first = vectors * t / tiles, stop = vectors * (t + 1) / tiles;
        const int64_t col = first * lanes, right = std::min(stop * lanes, width);
        choose_tile<V, TILE, WEIGHTED>(int(stop - first), p, begin, end, col, right - lanes - col);
    }
}

template <bool WEIGHTED, class T, class I>
static void rows_weighted(const Product<T, I>& p, int64_t begin, int64_t end, int64_t width) {
    if (width * int64_t(sizeof(T)) >= SPGNN_BYTES) tile_columns<Lanes<T, SPGNN_BYTES>, SPGNN_TILE, WEIGHTED>(p, begin, end, width);
    else if (SPGNN_BYTES > 32 && width * sizeof(T) >= 32) tile_columns<Lanes<T, std::min(32, SPGNN_BYTES)>, 2, WEIGHTED>(p, begin, end, width);
    else if (SPGNN_BYTES > 16 && width * sizeof(T) >= 16) tile_columns<Lanes<T, 16>, 2, WEIGHTED>(p, begin, end, width);
    else tile_columns<Lanes<T, 0>, 4, WEIGHTED>(p, begin, end, width);
}

// Rows [begin, end) of Y.
template <class T, class I>
void rows(const Product<T, I>& p, int64_t begin, int64_t end, int64_t width) {
    if (p.weights) rows_weighted<true>(p, begin, end, width);
    else rows_weighted<false>(p, begin, end, width);
}

// Row-wise maximum of the rows of X that a row's nonzeros name, with its argument, and the adjoint. Included once for
// each instruction set; plain loops over columns that the compiler turns into vectors.

// best, at: the largest entry of each column so far and its place, -1 for none.
template <class SX, class I>
void maximum_rows(const int64_t* indptr, const I* indices, const SX* X, const int64_t* order, SX* out, int32_t* arg,
                  int64_t width, int64_t offset, bool accumulate, int64_t begin, int64_t end) {
    typedef typename Compute<SX>::type T;
    const T lowest = -std::numeric_limits<T>::infinity();
    std::vector<T> best_of(width);
    std::vector<int32_t> at_of(width);
    T* __restrict best = best_of.data();
    int32_t* __restrict at = at_of.data();
    for (int64_t row = begin; row < end; ++row) {
        SX* y = out + row * width;
        int32_t* a = arg + row * width;
        for (int64_t f = 0; f < width; ++f) {
            at[f] = accumulate ? a[f] : -1;
            best[f] = at[f] < 0 ? lowest : T(widen(y[f]));
        }
        for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
            if (e + 16 < indptr[end]) {
                const char* later = reinterpret_cast<const char*>(X + int64_t(indices[e + 16]) * width);
                for (int64_t byte = 0; byte < width * int64_t(sizeof(SX)); byte += 64) __builtin_prefetch(later + byte);
            }
            const SX* __restrict x = X + int64_t(indices[e]) * width;
            const int32_t place = int32_t(offset + int64_t(indices[e]));
            int32_t ties = 0;
            for (int64_t f = 0; f < width; ++f) {
                const T value = widen(x[f]), old = best[f];
                const bool is_nan = value != value, was_nan = old != old;
                const bool is_more = (value > old) | (is_nan > was_nan) | (at[f] < 0);
                ties |= (!is_more) & ((value == old) | (is_nan & was_nan));
                best[f] = is_more ? value : old;
                at[f] = is_more ? place : at[f];
            }
            if (ties)
                for (int64_t f = 0; f < width; ++f) {
                    const T value = widen(x[f]), old = best[f];
                    if ((value == old || (value != value && old != old)) &&
                        (order ? order[place] < order[at[f]] : place < at[f]))
                        at[f] = place;
                }
        }
        for (int64_t f = 0; f < width; ++f) {
            narrow(at[f] < 0 ? T(0) : best[f], y[f]);
            a[f] = at[f];
        }
    }
}

// dX_j = sum over the rows i of A that have column j where arg_i = offset + j; of the transpose, row j.
template <class T, class I>
void maximum_adjoint_rows(const int64_t* indptr, const I* indices, const T* G, const int32_t* arg, T* dX, int64_t width,
                          int64_t offset, bool accumulate, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
        T* __restrict d = dX + row * width;
        const int32_t place = int32_t(offset + row);
        if (!accumulate) std::fill_n(d, width, T(0));
        for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
            const T* __restrict g = G + int64_t(indices[e]) * width;
            const int32_t* __restrict a = arg + int64_t(indices[e]) * width;
            for (int64_t f = 0; f < width; ++f) d[f] += a[f] == place ? g[f] : T(0);
        }
    }
}

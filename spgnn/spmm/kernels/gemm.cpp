// Bindings of dense products: X W, and its gradients in one pass over dZ.

#include <atomic>

#include "bindings.h"

namespace spgnn {

namespace {

constexpr int64_t SEGMENTS = 16, LEAST_ROWS = 512;  // of dW: sums of segments of rows are added in their order
constexpr int64_t MOST_BYTES = int64_t(1) << 27;    // of the sums of all segments

constexpr int64_t GROUP_BYTES = int64_t(1) << 24;  // of candidates that are packed at once

constexpr int64_t LINE = 64;  // bytes: a vector must not straddle two lines

// Memory of a thread, uninitialised, that is kept from call to call: no call maps fresh pages.
template <class T>
T* kept(int64_t size) {
    static thread_local std::unique_ptr<char[]> memory;
    static thread_local int64_t bytes = 0;
    const int64_t needed = size * int64_t(sizeof(T)) + LINE;
    if (bytes < needed) {
        bytes = 0;  // nothing is held where no memory is left
        memory.reset();
        memory.reset(new char[size_t(needed)]);
        bytes = needed;
    }
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.get()) + LINE - 1) / LINE * LINE);
}

template <class T>
void gemm(const Array<T>& X, const Array<T>& W, Array<T>& out, bool transposed, const Given& bias, const Given& add,
          bool relu, int threads, const std::string& isa_name) {
    require(X.ndim() == 2 && W.ndim() == 2, "gemm: X and W must be matrices");
    const int64_t n = X.shape(0), k = X.shape(1), m = W.shape(transposed ? 0 : 1);
    require(W.shape(transposed ? 1 : 0) == k && has_shape(out, n, m), "gemm: X (n, k), W (k, m), out (n, m)");
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    T* const packed = kept<T>(ON(isa, packed_size<T>(k, m)));
    const T* const w = W.data();
    const Gemm<T> p{X.data(),
                    k,
                    k,
                    packed,
                    m,
                    out.mutable_data(),
                    vector_of<T>(bias, m, "gemm: one bias per column").data(),
                    matrix_of<T>(add, n, m, "gemm: add must have the shape of out").data(),
                    relu};
    nb::gil_scoped_release unlocked;
    ON(isa, pack(w, k, m, transposed, packed));
    over_chunks(even(n, n * k * m < (1 << 20) ? n : 96 * std::max<int64_t>(1, (1 << 10) / (k + m))), threads,
                [&](int64_t begin, int64_t end, int64_t) { ON(isa, gemm_rows(p, begin, end)); });
}

// Returns the column sums of dZ, or None.
template <class T>
nb::object gemm_adjoint(const Array<T>& G, const Given& Z, const Given& masked, const Given& X, const Given& W,
                        const Given& dX, bool adds, const Given& dW, bool wants_sums, int threads,
                        const std::string& isa_name) {
    require(G.ndim() == 2, "gemm_adjoint: G must be a matrix");
    const int64_t n = G.shape(0), m = G.shape(1);
    const Given& of_k = W.is_none() ? X : W;
    const int64_t k = of_k.is_none() ? 0 : exactly<T>(of_k).shape(W.is_none() ? 1 : 0);
    GemmAdjoint<T> p{G.data(), nullptr, nullptr, nullptr, nullptr, k, m, nullptr, adds};
    p.Z = matrix_of<T>(Z, n, m, "gemm_adjoint: Z must have the shape of G").data();
    p.masked = matrix_of<T>(masked, n, m, "gemm_adjoint: masked must have the shape of G").mutable_data();
    p.X = matrix_of<T>(X, n, k, "gemm_adjoint: X must have rows of G and of W").data();
    p.dX = matrix_of<T>(dX, n, k, "gemm_adjoint: dX must have the shape of X").mutable_data();
    const T* const w = matrix_of<T>(W, k, m, "gemm_adjoint: W must have columns of X and of G").data();
    T* const total = matrix_of<T>(dW, k, m, "gemm_adjoint: dW must have the shape of W").mutable_data();
    require(!p.dX || w, "gemm_adjoint: dX needs W");
    require(!total || p.X, "gemm_adjoint: dW needs X");
    Array<double> sums(wants_sums ? m : 0);
    double* const sum = sums.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    {
        nb::gil_scoped_release unlocked;
        const int64_t size = total ? ON(isa, gradient_size<T>(k, m)) : 0;
        const int64_t most =
            std::max<int64_t>(1, std::min(SEGMENTS, MOST_BYTES / std::max<int64_t>(1, size * sizeof(T))));
        const int64_t segments = std::max<int64_t>(1, std::min(most, n / LEAST_ROWS));
        const int64_t of_packed = p.dX ? ON(isa, packed_size<T>(m, k)) : 0, of_rows = ON(isa, gradient_scratch<T>(m));
        T* const packed = kept<T>(of_packed + segments * (size + of_rows));
        T *const parts = packed + of_packed, *const scratch = parts + segments * size;
        std::vector<double> part_sums(wants_sums ? size_t(segments * m) : 0, 0.0);
        if (p.dX) ON(isa, pack(w, m, k, true, packed));
        p.W = packed;
        const auto bounds = even(n, (n + segments - 1) / segments);
        over_chunks(bounds, threads, [&](int64_t begin, int64_t end, int64_t s) {
            T* const part = total ? parts + s * size : nullptr;
            std::fill_n(part, size, T(0));
            double* const added = wants_sums ? &part_sums[size_t(s * m)] : nullptr;
            ON(isa, gemm_adjoint_rows(p, part, added, scratch + s * of_rows, begin, end));
        });
        const int64_t used = int64_t(bounds.size()) - 1;
        if (total)
            over_chunks(even(k * m, 1 << 14), threads, [&](int64_t begin, int64_t end, int64_t) {
                ON(isa, add_segments(parts, used, k, m, total, begin, end));
            });
        for (int64_t c = 0; wants_sums && c < m; ++c) {
            sum[c] = 0;
            for (int64_t s = 0; s < segments; ++s) sum[c] += part_sums[size_t(s * m + c)];
        }
    }
    return wants_sums ? sums.object() : nb::none();
}

// body(scores, scratch, begin, end), whether all are numbers, for chunks of queries and groups of candidates that are
// packed at once.
template <class T, class Body>
bool over_candidates(const Array<T>& Q, const Array<T>& C, const Array<int64_t>& known_indptr,
                     const Array<int64_t>& known, int threads, int isa, const Body& body) {
    require(Q.ndim() == 2 && C.ndim() == 2 && Q.shape(1) == C.shape(1), "scores: Q (q, k), C (m, k)");
    const int64_t q = Q.shape(0), m = C.shape(0), k = Q.shape(1);
    require(known_indptr.size() == q + 1, "scores: known_indptr must have a query count + 1 entries");
    threads = chosen_threads(threads);
    const int64_t *starts = known_indptr.data(), *ids = known.data();
    const T *Qs = Q.data(), *Cs = C.data();
    nb::gil_scoped_release unlocked;
    require(base::rise(starts, 0, q, known.size()) && starts[q] == known.size(), "scores: known_indptr must rise");
    require(ON(isa, are_below(ids, known.size(), m)), "scores: a known candidate is out of range");
    for (int64_t i = 0; i < q; ++i)
        for (int64_t e = starts[i] + 1; e < starts[i + 1]; ++e)
            require(ids[e - 1] < ids[e], "scores: known candidates of a query must rise");
    const int64_t blocks = std::max<int64_t>(1, GROUP_BYTES / (RANK_BLOCK * std::max<int64_t>(1, k) * sizeof(T)));
    const int64_t group = std::min(blocks * RANK_BLOCK, m);  // candidates that are packed at once
    T* const packed = kept<T>(ON(isa, packed_size<T>(k, group)));
    std::atomic<bool> are_numbers{true};
    for (int64_t first = 0; first < m; first += group) {
        const int64_t width = std::min(group, m - first);
        over_chunks(even(width, RANK_BLOCK), threads, [&](int64_t begin, int64_t end, int64_t) {
            ON(isa, pack_candidates(Cs + first * k, k, packed + begin * k, begin, end));
        });
        const Scored<T> scores{Qs, packed, first, width, k, starts, ids};
        over_chunks(even(q, 96), threads, [&](int64_t begin, int64_t end, int64_t) {
            static thread_local std::vector<T> scratch;
            scratch.resize(size_t(ON(isa, rank_scratch<T>())));
            if (!body(scores, scratch.data(), begin, end)) are_numbers = false;
        });
    }
    return are_numbers;
}

// Adds to above and equal; returns whether all scores are numbers.
template <class T>
bool rank_counts(const Array<T>& Q, const Array<T>& C, const Array<T>& target, const Array<int64_t>& known_indptr,
                 const Array<int64_t>& known, Array<int64_t>& above, Array<int64_t>& equal, int threads,
                 const std::string& isa_name) {
    const int64_t q = Q.shape(0);
    require(target.size() == q && above.size() == q && equal.size() == q, "rank_counts: one target per query");
    const int isa = chosen_isa(isa_name);
    const T* targets = target.data();
    int64_t *up = above.mutable_data(), *same = equal.mutable_data();
    const auto rank = [=](const Scored<T>& scores, T* scratch, int64_t begin, int64_t end) {
        return ON(isa, rank_rows(scores, targets, up, same, scratch, begin, end));
    };
    return over_candidates(Q, C, known_indptr, known, threads, isa, rank);
}

// Fills best_ids and best_scores (q, most), in any order in a row, with -1 and NaN where fewer are left; ids (m,) of
// the candidates. Returns whether all scores are numbers.
template <class T>
bool top_candidates(const Array<T>& Q, const Array<T>& C, const Array<int64_t>& ids, const Array<int64_t>& known_indptr,
                    const Array<int64_t>& known, Array<int64_t>& best_ids, Array<T>& best_scores, int threads,
                    const std::string& isa_name) {
    constexpr T NONE = std::numeric_limits<T>::infinity();
    const int64_t q = Q.shape(0), most = best_ids.shape(1), last = std::numeric_limits<int64_t>::max();
    require(ids.size() == C.shape(0), "top_candidates: one id per candidate");
    require(most > 0 && has_shape(best_ids, q, most) && has_shape(best_scores, q, most), "top_candidates: (q, most)");
    const int isa = chosen_isa(isa_name);
    const int64_t* of = ids.data();
    std::vector<Best<T>> best(size_t(q * most), {-NONE, last});
    const auto top = [&](const Scored<T>& scores, T* scratch, int64_t begin, int64_t end) {
        return ON(isa, top_rows(scores, of, most, best.data(), scratch, begin, end));
    };
    const bool are_numbers = over_candidates(Q, C, known_indptr, known, threads, isa, top);
    for (int64_t i = 0; i < q * most; ++i) {
        best_ids.mutable_data()[i] = best[i].id == last ? -1 : best[i].id;
        best_scores.mutable_data()[i] = best[i].id == last ? std::numeric_limits<T>::quiet_NaN() : best[i].score;
    }
    return are_numbers;
}

template <class T>
void pair_score(const Array<T>& Q, const Array<T>& C, const Array<int64_t>& index, Array<T>& out, int threads,
                const std::string& isa_name) {
    require(Q.ndim() == 2 && C.ndim() == 2 && Q.shape(1) == C.shape(1), "pair_scores: Q (q, k), C (m, k)");
    const int64_t q = Q.shape(0), m = C.shape(0), k = Q.shape(1);
    require(index.size() == q && out.size() == q, "pair_scores: one candidate and one score per query");
    const int isa = chosen_isa(isa_name);
    const int64_t* of = index.data();
    const T *Qs = Q.data(), *Cs = C.data();
    T* scores = out.mutable_data();
    threads = chosen_threads(threads);
    nb::gil_scoped_release unlocked;
    require(ON(isa, are_below(of, q, m)), "pair_scores: a candidate is out of range");
    over_chunks(even(q, rows_a_chunk(k)), threads,
                [&](int64_t begin, int64_t end, int64_t) { ON(isa, pair_scores(Qs, Cs, of, k, scores, begin, end)); });
}

// out[rows[i]] += X[i], of each row of out in ascending i, whatever the threads.
template <class T>
void add_rows(const Array<T>& X, const Array<int64_t>& rows, Array<T>& out, int threads) {
    require(X.ndim() == 2 && out.ndim() == 2 && X.shape(1) == out.shape(1), "add_rows: X and out must have one width");
    require(rows.ndim() == 1 && rows.shape(0) == X.shape(0), "add_rows: one index per row of X");
    const int64_t p = X.shape(0), k = X.shape(1), m = out.shape(0), *index = rows.data();
    const T* x = X.data();
    T* y = out.mutable_data();
    const int isa = best_isa();
    threads = p * k < (1 << 14) ? 1 : chosen_threads(threads);
    nb::gil_scoped_release unlocked;
    require(ON(isa, are_below(index, p, m)), "add_rows: an index is out of range");
    over_chunks(even(m, std::max<int64_t>(1, (m + threads - 1) / threads)), threads,
                [&](int64_t begin, int64_t end, int64_t) {
                    for (int64_t i = 0; i < p; ++i) {
                        if (index[i] < begin || index[i] >= end) continue;
                        const T* from = x + i * k;
                        T* to = y + index[i] * k;
                        for (int64_t c = 0; c < k; ++c) to[c] += from[c];
                    }
                });
}

template <class T>
void define(nb::module_& m) {
    m.def("add_rows", &add_rows<T>, nb::arg("X"), nb::arg("rows"), nb::arg("out"), nb::arg("threads") = 0);
    m.def("rank_counts", &rank_counts<T>, nb::arg("Q"), nb::arg("C"), nb::arg("target"), nb::arg("known_indptr"),
          nb::arg("known"), nb::arg("above"), nb::arg("equal"), nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("top_candidates", &top_candidates<T>, nb::arg("Q"), nb::arg("C"), nb::arg("ids"), nb::arg("known_indptr"),
          nb::arg("known"), nb::arg("best_ids"), nb::arg("best_scores"), nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("pair_scores", &pair_score<T>, nb::arg("Q"), nb::arg("C"), nb::arg("index"), nb::arg("out"),
          nb::arg("threads") = 0, nb::arg("isa") = "");
    m.def("gemm", &gemm<T>, nb::arg("X"), nb::arg("W"), nb::arg("out"), nb::arg("transposed") = false,
          nb::arg("bias") = nb::none(), nb::arg("add") = nb::none(), nb::arg("relu") = false, nb::arg("threads") = 0,
          nb::arg("isa") = "");
    m.def("gemm_adjoint", &gemm_adjoint<T>, nb::arg("G"), nb::arg("Z") = nb::none(), nb::arg("masked") = nb::none(),
          nb::arg("X") = nb::none(), nb::arg("W") = nb::none(), nb::arg("dX") = nb::none(), nb::arg("adds") = false,
          nb::arg("dW") = nb::none(), nb::arg("sums") = false, nb::arg("threads") = 0, nb::arg("isa") = "");
}

}  // namespace

void define_gemm(nb::module_& m) {
    define<float>(m);
    define<double>(m);
}

}  // namespace spgnn

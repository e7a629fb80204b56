// The loops of one instruction set; included inside its namespace. A name is that of the header that defines it or
// near: rows of the output [begin, end).

// products.cpp: whether numbers are of 0 to below - 1, and whether rows of a CSR rise within [0, nnz].
template <class I>
bool are_below(const I* numbers, int64_t count, int64_t below);
bool rise(const int64_t* indptr, int64_t begin, int64_t end, int64_t nnz);

// columns.h: of a Product, or blocks of a Tiled.
template <class P>
void rows(const P& p, int64_t begin, int64_t end, int64_t width);

// dense.h
template <class S>
void mask_rows(const S* G, const S* H, S* out, double* sums, int act, int64_t begin, int64_t end, int64_t C);
template <class S, class D, class T>
void finish_rows(const S* Z, D* out, const T* bias, int act, int64_t begin, int64_t end, int64_t C);
template <class S, class T>
void drop_rows(const S* X, S* out, const int64_t* node, uint64_t key, uint32_t threshold, T scale, int64_t begin,
               int64_t end, int64_t F);
template <class T, class I>
void drop_csr(const int64_t* indptr, const I* indices, const T* X, T* out, const int64_t* node, uint64_t key,
              uint32_t threshold, T scale, int64_t begin, int64_t end);
template <class T>
double xent_rows(const T* Z, const int64_t* y, T scale, T* G, int64_t begin, int64_t end, int64_t C);

// gemm.h
template <class T>
int64_t packed_size(int64_t k, int64_t m);
template <class T>
void pack(const T* W, int64_t k, int64_t m, bool transposed, T* out);
template <class T>
void gemm_rows(const Gemm<T>& p, int64_t begin, int64_t end);
template <class T>
int64_t gradient_size(int64_t k, int64_t m);
template <class T>
int64_t gradient_scratch(int64_t m);
template <class T>
void gemm_adjoint_rows(const GemmAdjoint<T>& p, T* dW, double* sums, T* scratch, int64_t begin, int64_t end);
template <class T>
void add_segments(const T* parts, int64_t segments, int64_t k, int64_t m, T* out, int64_t begin, int64_t end);
template <class T>
void pack_candidates(const T* C, int64_t k, T* out, int64_t begin, int64_t end);
template <class T>
int64_t rank_scratch();
template <class T>
bool rank_rows(const Scored<T>& p, const T* target, int64_t* above, int64_t* equal, T* scratch, int64_t begin,
               int64_t end);
template <class T>
bool top_rows(const Scored<T>& p, const int64_t* ids, int64_t most, Best<T>* heaps, T* scratch, int64_t begin,
              int64_t end);
template <class T>
void pair_scores(const T* Q, const T* C, const int64_t* index, int64_t k, T* out, int64_t begin, int64_t end);

// wire.h
template <class S>
void encode_rows(Format format, const S* X, uint8_t* out, int64_t begin, int64_t end, int64_t F);
template <class S>
void decode_rows(Format format, const uint8_t* rows, S* out, int64_t begin, int64_t end, int64_t F);

// maximum.h
template <class SX, class I>
void maximum_rows(const Pattern& A, const SX* X, const int32_t* ranks, SX* out, I* arg, int64_t width, int64_t offset,
                  bool accumulate, bool positive, int64_t begin, int64_t end);
template <class T, class I>
void maximum_adjoint_rows(const Pattern& A, const T* G, const I* arg, const I* places, T* dX, int64_t width,
                          int64_t offset, bool accumulate, int64_t begin, int64_t end);

// attention.h, attention2.h
template <class SX>
void attend_rows(const Attend<SX>& p, int64_t begin, int64_t end);
template <class SG>
void record_rows(const Record<SG>& p, double* sums, int64_t begin, int64_t end);
template <class SX>
void fixed_rows(const FixedDots<SX>& p, int64_t begin, int64_t end);
template <class SX>
void adjoint_rows(const AttendAdjoint<SX>& p, double* sums, int64_t begin, int64_t end);
template <class SX>
void attend2_rows(const Attend2<SX>& p, int64_t begin, int64_t end);
template <class SX>
void adjoint2_rows(const Attend2Adjoint<SX>& p, bool columns, double* da, int64_t begin, int64_t end);

// edges.h
template <class T>
void sddmm_rows(const EdgeMatrices<T>& p, int64_t begin, int64_t end);
template <class T>
void weighted_rows(const EdgeMatrices<T>& p, int64_t begin, int64_t end);
template <class T>
void edge_add_rows(const EdgeMatrices<T>& p, int64_t begin, int64_t end);
template <class T>
void softmax_sums_rows(const EdgeValues<T>& p, int64_t begin, int64_t end);
template <class T>
void softmax_rows(const EdgeValues<T>& p, int64_t begin, int64_t end);
template <class T>
void softmax_adjoint_rows(const EdgeValues<T>& p, int64_t begin, int64_t end);
template <class T>
void edge_dots_rows(const EdgeValues<T>& p, int64_t begin, int64_t end);

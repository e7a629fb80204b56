// Vectors of one instruction set, included once for each inside its own namespace and target.
// SPGNN_BYTES is the register width; SPGNN_TILE the number of accumulators that stay in registers.
//
// A row of any width needs no masks: the last vector overlaps the one before it, so width 41 is
// three loads of 16 lanes at 0, 16 and 25. Widths below one vector use a narrower one.

template <class T, int BYTES>
struct Lanes {
    static constexpr int count = BYTES / sizeof(T);
    typedef T vec __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
    typedef T reg __attribute__((vector_size(BYTES)));
    static inline reg load(const T* p) { return *reinterpret_cast<const vec*>(p); }
    static inline void store(T* p, reg v) { *reinterpret_cast<vec*>(p) = v; }
    static inline reg all(T x) { return x - reg{}; }
};

template <class T>
struct Lanes<T, 0> {  // one scalar
    static constexpr int count = 1;
    typedef T reg;
    static inline reg load(const T* p) { return *p; }
    static inline void store(T* p, reg v) { *p = v; }
    static inline reg all(T x) { return x; }
};

template <class V>
static inline typename V::reg positive(typename V::reg x) {
    return x < typename V::reg{} ? typename V::reg{} : x;  // NaN stays, as in torch.relu
}

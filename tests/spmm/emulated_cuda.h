// What .cu kernels see on the CPU instead of CUDA. Like the kernels it includes no header: each instance is compiled in
// a fraction of a second. emulated_cuda.cpp, compiled once, runs them.
#pragma once

#define SPGNN_EMULATED 1
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)

struct uint2 {
    alignas(8) unsigned x;
    unsigned y;
};
struct uint4 {
    alignas(16) unsigned x;
    unsigned y, z, w;
};
struct int4 {
    alignas(16) int x;
    int y, z, w;
};
struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

extern Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

// May a word of `size` bytes be read or written at p? If not, the launch ends with an error.
bool is_allowed(const void* p, unsigned size);
// Exchange up to 8 bytes with the lane whose number differs in the bits of `apart`.
unsigned long long shuffled(unsigned mask, unsigned long long bits, int apart);

struct Kernel {
    void (*body)(void**);
    const unsigned char* sizes;  // of its arguments in bytes, then 0
};

template <class... A>
struct Call {
    static constexpr unsigned char sizes[] = {sizeof(A)..., 0};
    Call(void (*kernel)(A...), A... args) { kernel(args...); }
};

template <class... A>
constexpr const unsigned char* sizes(void (*)(A...)) {
    return Call<A...>::sizes;
}

template <class... A>
void call(void (*kernel)(A...), void** args) {
    Call<A...>{kernel, *static_cast<A*>(*args++)...};  // braces: from the first to the last
}

}  // namespace emulator

void __syncthreads();

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int apart) {
    static_assert(sizeof(T) <= 8, "a shuffle of 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = emulator::shuffled(mask, bits, apart);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

inline void __syncwarp() { __shfl_xor_sync(0xffffffffu, 0, 0); }

template <class T>
inline T __ldg(const T* p) {
    return emulator::is_allowed(p, sizeof(T)) ? *p : T{};
}

template <class T>
inline void __stcs(T* p, T value) {
    if (emulator::is_allowed(p, sizeof(T))) *p = value;
}

template <class To, class From>
inline To bits_as(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "one size");
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
extern "C" {
float expf(float) noexcept;
float logf(float) noexcept;
float expm1f(float) noexcept;
double exp(double) noexcept;
double log(double) noexcept;
double expm1(double) noexcept;
}

// The end of a generated source.
#define EMULATED_KERNEL(...)                                                                             \
    extern "C" const emulator::Kernel kernel = {[](void** args) { emulator::call(&__VA_ARGS__, args); }, \
                                                emulator::sizes(&__VA_ARGS__)};

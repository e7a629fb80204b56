// Runs .cu kernels on the CPU with the semantics of blocks and warps: every thread of a block is a fiber,
// a barrier or a shuffle is where fibers wait for each other. The sources are compiled as they are.
//
// What a device would not forgive ends with an error: a lane of a shuffle's mask that never comes, a barrier
// that some thread has left, a word that is not aligned or lies outside of every buffer that was passed.
// The order in which the threads of a block run is chosen by the caller: a race gives other results.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

static Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr int STACK = 1 << 16, WARP = 32;

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};  // not written, so that what no fiber reaches takes no memory
    Dim3 index;
    bool is_done = true;
    uint64_t shuffles = 0, barriers = 0;  // that it has come to
};

struct Slot {
    uint64_t bits = 0;
};

struct State {
    ucontext_t home;
    std::vector<Thread> threads;
    std::vector<Slot> slots[2];  // of each thread, for shuffles of even and odd number
    std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
    std::string error;
    int current = 0, count = 0;
    bool moved = false;
    void (*body)(void**) = nullptr;
    void** args = nullptr;
};
static State state;

inline void fail(const std::string& what) {
    if (state.error.empty()) {
        char where[160];
        std::snprintf(where, sizeof where, " (block %u,%u thread %u,%u)", blockIdx.x, blockIdx.y, threadIdx.x,
                      threadIdx.y);
        state.error = what + where;
    }
}

inline void yield() {
    Thread& self = state.threads[state.current];
    swapcontext(&self.context, &state.home);
}

// Wait until all of these threads have come as far, by `reached`; false where that cannot be.
template <class Reached>
inline bool wait_for(int begin, int end, Reached reached) {
    for (;;) {
        bool all = true;
        for (int t = begin; t < end && all; ++t) all = reached(state.threads[t]);
        if (all) return true;
        if (!state.error.empty()) return false;
        yield();
    }
}

inline void check(const void* p, size_t size) {
    const uintptr_t at = uintptr_t(p);
    if (at % size) return fail("misaligned word of " + std::to_string(size) + " bytes");
    for (const auto& range : state.ranges)
        if (at >= range.first && at + size <= range.second) return;
    fail("a word of " + std::to_string(size) + " bytes outside of all buffers");
}

inline void entry() {
    if (state.error.empty()) state.body(state.args);
    Thread& self = state.threads[state.current];
    self.is_done = true;
    state.moved = true;
    for (;;) yield();
}

// Run the threads of one block; order 0: ascending, 1: descending, above: shuffled by that seed.
inline void run_block(uint64_t order) {
    const int count = state.count;
    std::vector<int> turn(count);
    for (int t = 0; t < count; ++t) turn[t] = order == 1 ? count - 1 - t : t;
    uint64_t seed = order * 0x9e3779b97f4a7c15ull + blockIdx.x * 31 + blockIdx.y;
    for (int t = count - 1; t > 0 && order > 1; --t) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(turn[t], turn[(seed >> 33) % (t + 1)]);
    }
    for (int t = 0; t < count; ++t) {
        Thread& thread = state.threads[t];
        thread.index = Dim3{unsigned(t) % blockDim.x, unsigned(t) / blockDim.x, 0};
        thread.is_done = false;
        thread.shuffles = thread.barriers = 0;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, entry, 0);
    }
    for (bool alive = true; alive;) {
        alive = state.moved = false;
        for (int t : turn) {
            Thread& thread = state.threads[t];
            if (thread.is_done) continue;
            alive = true;
            const uint64_t before = thread.shuffles + thread.barriers;
            state.current = t;
            threadIdx = thread.index;
            swapcontext(&state.home, &thread.context);
            if (thread.shuffles + thread.barriers != before) state.moved = true;
        }
        if (alive && !state.moved) {
            if (!state.error.empty()) return;
            fail("threads wait for others that have ended or wait elsewhere");
        }
    }
}

template <class... A, size_t... I>
inline void call(void (*kernel)(A...), void** args, std::index_sequence<I...>) {
    kernel(*static_cast<A*>(args[I])...);
}

template <class... A>
inline void call(void (*kernel)(A...), void** args) {
    call(kernel, args, std::index_sequence_for<A...>());
}

template <class... A>
inline std::vector<int> sizes(void (*)(A...)) {
    return {int(sizeof(A))...};
}

struct Kernel {
    const char* name;
    void (*body)(void**);
    std::vector<int> sizes;
};

}  // namespace emulator

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int apart) {
    using namespace emulator;
    const int me = state.current, warp = me / WARP * WARP, end = std::min(warp + WARP, state.count);
    if (mask != 0xffffffffu) fail("a shuffle of some lanes of a warp");
    if (end - warp != WARP) fail("a shuffle in a warp that is not whole");
    Thread& self = state.threads[me];
    const uint64_t number = ++self.shuffles;  // before the first wait: others look at it
    static_assert(sizeof(T) <= 8, "a shuffle of 4 or 8 bytes");
    std::memcpy(&state.slots[number % 2][me].bits, &value, sizeof(T));
    const bool came = wait_for(warp, end, [&](const Thread& t) { return t.shuffles >= number; });
    if (!came) return value;
    T got;
    std::memcpy(&got, &state.slots[number % 2][warp + ((me - warp) ^ apart)].bits, sizeof(T));
    return got;
}

inline void __syncwarp() { __shfl_xor_sync(0xffffffffu, 0, 0); }

inline void __syncthreads() {
    using namespace emulator;
    const uint64_t number = ++state.threads[state.current].barriers;
    wait_for(0, state.count, [&](const Thread& t) { return t.barriers >= number; });
}

template <class T>
inline T __ldg(const T* p) {
    emulator::check(p, sizeof(T));
    return emulator::state.error.empty() ? *p : T{};
}

template <class T>
inline void __stcs(T* p, T value) {
    emulator::check(p, sizeof(T));
    if (emulator::state.error.empty()) *p = value;
}

template <class To, class From>
inline To bits_as(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "one size");
    std::memcpy(&y, &x, sizeof y);
    return y;
}
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
using std::exp;
using std::log;

// What Python calls: KERNELS is the table that the generated source defines behind this header.
#define EMULATED_KERNELS(...)                                                                                    \
    static const std::vector<emulator::Kernel> kernels = {__VA_ARGS__};                                          \
    extern "C" int find(const char* name) {                                                                      \
        for (size_t k = 0; k < kernels.size(); ++k)                                                              \
            if (!std::strcmp(kernels[k].name, name)) return int(k);                                              \
        return -1;                                                                                               \
    }                                                                                                            \
    extern "C" int argument(int k, int i) { return i < int(kernels[k].sizes.size()) ? kernels[k].sizes[i] : 0; } \
    extern "C" void allow(uint64_t begin, uint64_t end) { emulator::state.ranges.push_back({begin, end}); }      \
    extern "C" const char* launch(int k, unsigned gx, unsigned gy, unsigned bx, unsigned by, void** args,        \
                                  uint64_t order) {                                                              \
        using namespace emulator;                                                                                \
        gridDim = Dim3{gx, gy, 1}, blockDim = Dim3{bx, by, 1};                                                   \
        state.count = int(bx * by), state.body = kernels[k].body, state.args = args, state.error.clear();        \
        if (int(state.threads.size()) < state.count) state.threads.resize(state.count);                          \
        for (auto& slots : state.slots) slots.resize(state.count);                                               \
        for (uint64_t b = 0; b < uint64_t(gx) * gy && state.error.empty(); ++b) {                                \
            const uint64_t at = order == 1 ? uint64_t(gx) * gy - 1 - b : b;                                      \
            blockIdx = Dim3{unsigned(at % gx), unsigned(at / gx), 0};                                            \
            run_block(order);                                                                                    \
        }                                                                                                        \
        state.ranges.clear(), state.threads.clear(); /* of each library: their stacks would add up */            \
        return state.error.empty() ? nullptr : state.error.c_str();                                              \
    }
#define EMULATED_KERNEL(...) \
    {#__VA_ARGS__, [](void** args) { emulator::call(&__VA_ARGS__, args); }, emulator::sizes(&__VA_ARGS__)}

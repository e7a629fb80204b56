// Runs .cu kernels on the CPU with the semantics of blocks and warps: every thread of a block is a fiber,
// a barrier or a shuffle is where fibers wait for each other. The sources are compiled as they are.
//
// What a device would not forgive ends with an error: a lane of a shuffle's mask that never comes, a barrier
// that some thread has left, a word that is not aligned or lies outside of every buffer that was passed.
// The order in which the threads of a block run is chosen by the caller: a race gives other results.
#include "emulated_cuda.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr int STACK = 1 << 16, WARP = 32;

struct Thread {
    ucontext_t start;
    jmp_buf here;  // swapcontext would ask the system for the signal mask at every turn
    std::unique_ptr<char[]> stack{new char[STACK]};  // not written, so that what no fiber reaches takes no memory
    Dim3 index;
    bool is_done = true, is_new = true;
    uint64_t shuffles = 0, barriers = 0;  // that it has come to
};

struct State {
    jmp_buf home;
    std::vector<Thread> threads;
    std::vector<uint64_t> slots[2];  // of each thread, for shuffles of even and odd number
    std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
    std::string error;
    int current = 0, count = 0;
    bool moved = false;
    void (*body)(void**) = nullptr;
    void** args = nullptr;
};
static State state;

static void fail(const std::string& what) {
    if (state.error.empty()) {
        char where[160];
        std::snprintf(where, sizeof where, " (block %u,%u thread %u,%u)", blockIdx.x, blockIdx.y, threadIdx.x,
                      threadIdx.y);
        state.error = what + where;
    }
}

__attribute__((noinline)) static void yield() {
    if (!_setjmp(state.threads[state.current].here)) _longjmp(state.home, 1);
}

__attribute__((noinline)) static void resume(Thread& thread) {
    if (_setjmp(state.home)) return;
    if (!thread.is_new) _longjmp(thread.here, 1);
    thread.is_new = false;
    setcontext(&thread.start);
}

// Wait until all of these threads have come as far, by `reached`; false where that cannot be.
template <class Reached>
static bool wait_for(int begin, int end, Reached reached) {
    for (;;) {
        bool all = true;
        for (int t = begin; t < end && all; ++t) all = reached(state.threads[t]);
        if (all) return true;
        if (!state.error.empty()) return false;
        yield();
    }
}

bool is_allowed(const void* p, unsigned size) {
    const uintptr_t at = uintptr_t(p);
    const auto holds = [&](const auto& range) { return at >= range.first && at + size <= range.second; };
    if (at % size) {
        fail("misaligned word of " + std::to_string(size) + " bytes");
    } else if (!std::any_of(state.ranges.begin(), state.ranges.end(), holds)) {
        fail("a word of " + std::to_string(size) + " bytes outside of all buffers");
    }
    return state.error.empty();
}

unsigned long long shuffled(unsigned mask, unsigned long long bits, int apart) {
    const int me = state.current, warp = me / WARP * WARP, end = std::min(warp + WARP, state.count);
    if (mask != 0xffffffffu) fail("a shuffle of some lanes of a warp");
    if (end - warp != WARP) fail("a shuffle in a warp that is not whole");
    const uint64_t number = ++state.threads[me].shuffles;  // before the first wait: others look at it
    state.slots[number % 2][me] = bits;
    const bool came = wait_for(warp, end, [&](const Thread& t) { return t.shuffles >= number; });
    return came ? state.slots[number % 2][warp + ((me - warp) ^ apart)] : bits;
}

static void entry() {
    if (state.error.empty()) state.body(state.args);
    state.threads[state.current].is_done = state.moved = true;
    for (;;) yield();
}

// Run the threads of one block; order 0: ascending, 1: descending, above: shuffled by that seed.
static void run_block(uint64_t order) {
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
        thread.is_done = false, thread.is_new = true;
        thread.shuffles = thread.barriers = 0;
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.get();
        thread.start.uc_stack.ss_size = STACK;
        thread.start.uc_link = nullptr;
        makecontext(&thread.start, entry, 0);
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
            resume(thread);
            if (thread.shuffles + thread.barriers != before) state.moved = true;
        }
        if (alive && !state.moved) {
            if (!state.error.empty()) return;
            fail("threads wait for others that have ended or wait elsewhere");
        }
    }
}

}  // namespace emulator

void __syncthreads() {
    using namespace emulator;
    const uint64_t number = ++state.threads[state.current].barriers;
    wait_for(0, state.count, [&](const Thread& t) { return t.barriers >= number; });
}

// What Python calls.
extern "C" void allow(uint64_t begin, uint64_t end) { emulator::state.ranges.push_back({begin, end}); }

extern "C" const char* launch(void (*body)(void**), unsigned gx, unsigned gy, unsigned bx, unsigned by, void** args,
                              uint64_t order) {
    using namespace emulator;
    gridDim = Dim3{gx, gy, 1}, blockDim = Dim3{bx, by, 1};
    state.count = int(bx * by), state.body = body, state.args = args, state.error.clear();
    if (int(state.threads.size()) < state.count) state.threads.resize(state.count);
    for (auto& slots : state.slots) slots.resize(state.count);
    for (uint64_t b = 0; b < uint64_t(gx) * gy && state.error.empty(); ++b) {
        const uint64_t at = order == 1 ? uint64_t(gx) * gy - 1 - b : b;
        blockIdx = Dim3{unsigned(at % gx), unsigned(at / gx), 0};
        run_block(order);
    }
    state.ranges.clear();
    return state.error.empty() ? nullptr : state.error.c_str();
}

// Threads of a call, and rows cut into chunks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace spgnn {

constexpr int MOST_THREADS = 1024;  // where no more can be started, OpenMP ends the process

inline int chosen_threads(int threads) {
#ifdef _OPENMP
    return threads > 0 ? std::min(threads, MOST_THREADS) : omp_get_max_threads();
#else
    return 1;
#endif
}

// Calls body(begin, end, number) for each chunk; what one of them throws, such as std::bad_alloc, is thrown when all
// are done.
template <class Body>
void over_chunks(const std::vector<int64_t>& bounds, int threads, const Body& body) {
    const int64_t chunks = int64_t(bounds.size()) - 1;
    std::exception_ptr thrown;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (chunks > 1 && threads > 1)
    for (int64_t c = 0; c < chunks; ++c) try {
            if (bounds[c] < bounds[c + 1]) body(bounds[c], bounds[c + 1], c);
        } catch (...) {
#pragma omp critical
            thrown = std::current_exception();
        }
    if (thrown) std::rethrow_exception(thrown);
}

inline std::vector<int64_t> even(int64_t n, int64_t step) {
    std::vector<int64_t> bounds;
    for (int64_t i = 0; i < n; i += step) bounds.push_back(i);
    bounds.push_back(n);
    return bounds;
}

// Row boundaries of chunks with nearly equal work, where a row costs its nonzeros + 4.
inline std::vector<int64_t> balanced(const int64_t* indptr, int64_t n, int64_t chunks) {
    chunks = std::max<int64_t>(1, std::min(chunks, n));
    std::vector<int64_t> bounds(chunks + 1, n);
    const int64_t total = indptr[n] + 4 * n;
    bounds[0] = 0;
    for (int64_t c = 1; c < chunks; ++c) {
        const int64_t goal = total * c / chunks;
        int64_t low = bounds[c - 1], high = n;
        while (low < high) {
            const int64_t mid = (low + high) / 2;
            if (indptr[mid] + 4 * mid < goal)
                low = mid + 1;
            else
                high = mid;
        }
        bounds[c] = low;
    }
    return bounds;
}

inline int64_t rows_a_chunk(int64_t width) {
    return std::max<int64_t>(64, (1 << 16) / std::max<int64_t>(width, 1) / 64 * 64);
}

}  // namespace spgnn

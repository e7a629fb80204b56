// Minimum vertex cover of a sparse block, columns on the left and rows on the right: maximum matching
// (Hopcroft & Karp 1973), then cover (Koenig 1931). No Python here.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace spgnn {

constexpr int32_t NONE = -1;

// A minimum cover of one block; vectors are reused between blocks.
class Block {
  public:
    std::vector<int32_t> cover_columns, cover_rows;  // ids of the matrix, ascending
    int64_t moved = 0;                               // nonzeros covered by their row alone

    Block(int64_t all_columns, int64_t all_rows) : seat_c_(all_columns, NONE), seat_r_(all_rows, NONE) {}

    // The nonzeros (column[e], row[e]), e < m. A nonzero may occur twice.
    void solve(const int32_t* column, const int32_t* row, int64_t m) {
        compact(column, row, m);
        greedy();
        while (layer()) {
            for (int32_t c = 0; c < int32_t(ids_c_.size()); ++c) {
                if (match_c_[c] == NONE) augment(c);
            }
        }
        cover();
        for (int32_t id : ids_c_) seat_c_[id] = NONE;
        for (int32_t id : ids_r_) seat_r_[id] = NONE;
    }

  private:
    std::vector<int32_t> seat_c_, seat_r_;  // id -> place in this block
    std::vector<int32_t> ids_c_, ids_r_;    // place -> id
    std::vector<int32_t> match_c_, match_r_, depth_, queue_, path_;
    std::vector<int64_t> start_, next_;  // rows of a column: rows_[start_[c]] to rows_[start_[c + 1] - 1]
    std::vector<int32_t> rows_;
    std::vector<char> reached_;

    static int32_t place(std::vector<int32_t>& seat, std::vector<int32_t>& ids, int32_t id) {
        if (seat[id] == NONE) {
            seat[id] = int32_t(ids.size());
            ids.push_back(id);
        }
        return seat[id];
    }

    void compact(const int32_t* column, const int32_t* row, int64_t m) {
        ids_c_.clear();
        ids_r_.clear();
        start_.assign(1, 0);
        for (int64_t e = 0; e < m; ++e) {
            size_t c = place(seat_c_, ids_c_, column[e]);
            if (c + 2 > start_.size()) start_.push_back(0);
            ++start_[c + 1];
        }
        for (size_t c = 1; c < start_.size(); ++c) start_[c] += start_[c - 1];
        next_.assign(start_.begin(), start_.end() - 1);
        rows_.resize(m);
        for (int64_t e = 0; e < m; ++e) rows_[next_[seat_c_[column[e]]]++] = place(seat_r_, ids_r_, row[e]);
        match_c_.assign(ids_c_.size(), NONE);
        match_r_.assign(ids_r_.size(), NONE);
    }

    void greedy() {
        for (size_t c = 0; c < ids_c_.size(); ++c) {
            for (int64_t e = start_[c]; e < start_[c + 1]; ++e) {
                if (match_r_[rows_[e]] == NONE) {
                    match_c_[c] = rows_[e];
                    match_r_[rows_[e]] = int32_t(c);
                    break;
                }
            }
        }
    }

    // Breadth-first search from the free columns; true if it reaches a free row. The search stops at that layer.
    bool layer() {
        depth_.assign(ids_c_.size(), NONE);
        next_.assign(start_.begin(), start_.end() - 1);
        queue_.clear();
        for (size_t c = 0; c < ids_c_.size(); ++c) {
            if (match_c_[c] == NONE) {
                depth_[c] = 0;
                queue_.push_back(int32_t(c));
            }
        }
        int32_t last = std::numeric_limits<int32_t>::max();
        for (size_t head = 0; head < queue_.size() && depth_[queue_[head]] <= last; ++head) {
            int32_t c = queue_[head];
            for (int64_t e = start_[c]; e < start_[c + 1]; ++e) {
                int32_t other = match_r_[rows_[e]];
                if (other == NONE) {
                    last = depth_[c];
                } else if (depth_[other] == NONE && depth_[c] < last) {
                    depth_[other] = depth_[c] + 1;
                    queue_.push_back(other);
                }
            }
        }
        return last != std::numeric_limits<int32_t>::max();
    }

    // Depth-first search along the layers; each column visits each of its rows once per phase.
    void augment(int32_t root) {
        path_.assign(1, root);
        while (!path_.empty()) {
            int32_t c = path_.back();
            if (next_[c] == start_[c + 1]) {
                path_.pop_back();
                continue;
            }
            int32_t other = match_r_[rows_[next_[c]++]];
            if (other == NONE) {
                for (int32_t on_path : path_) {
                    match_c_[on_path] = rows_[next_[on_path] - 1];
                    match_r_[match_c_[on_path]] = on_path;
                }
                return;
            }
            if (depth_[other] == depth_[c] + 1) path_.push_back(other);
        }
    }

    // Koenig: the rows that alternating paths from the free columns reach, and the columns that they do not.
    // Minimum covers form a lattice; this one has the most columns and fewest rows, so none leaves fewer nonzeros to
    // its rows.
    void cover() {
        reached_.assign(ids_r_.size(), 0);
        depth_.assign(ids_c_.size(), NONE);
        queue_.clear();
        for (size_t c = 0; c < ids_c_.size(); ++c) {
            if (match_c_[c] == NONE) {
                depth_[c] = 0;
                queue_.push_back(int32_t(c));
            }
        }
        moved = 0;
        for (size_t head = 0; head < queue_.size(); ++head) {
            int32_t c = queue_[head];
            moved += start_[c + 1] - start_[c];
            for (int64_t e = start_[c]; e < start_[c + 1]; ++e) {
                int32_t other = match_r_[rows_[e]];
                reached_[rows_[e]] = 1;
                if (depth_[other] == NONE) {
                    depth_[other] = 0;
                    queue_.push_back(other);
                }
            }
        }
        cover_columns.clear();
        cover_rows.clear();
        for (size_t c = 0; c < ids_c_.size(); ++c) {
            if (depth_[c] == NONE) cover_columns.push_back(ids_c_[c]);
        }
        for (size_t r = 0; r < ids_r_.size(); ++r) {
            if (reached_[r]) cover_rows.push_back(ids_r_[r]);
        }
        std::sort(cover_columns.begin(), cover_columns.end());
        std::sort(cover_rows.begin(), cover_rows.end());
    }
};

// The nonzeros of some rows, those of range 0 first, then range 1, ...; in row order inside a range.
struct Buckets {
    std::vector<int64_t> start;
    std::vector<int32_t> column, row;

    // range_of(column) is below 0 for a column that no range has; row_at(i) is the i-th row, 0 <= i < n.
    template <class Row, class Range>
    void fill(const int64_t* indptr, const int32_t* indices, int64_t n, const Row& row_at, const Range& range_of,
              int64_t ranges) {
        start.assign(ranges + 1, 0);
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t e = indptr[row_at(i)]; e < indptr[row_at(i) + 1]; ++e) {
                int64_t b = range_of(indices[e]);
                if (b >= 0) ++start[b + 1];
            }
        }
        for (int64_t b = 0; b < ranges; ++b) start[b + 1] += start[b];
        column.resize(start[ranges]);
        row.resize(start[ranges]);
        std::vector<int64_t> next(start.begin(), start.end() - 1);
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t e = indptr[row_at(i)]; e < indptr[row_at(i) + 1]; ++e) {
                int64_t b = range_of(indices[e]);
                if (b < 0) continue;
                column[next[b]] = indices[e];
                row[next[b]++] = int32_t(i);
            }
        }
    }
};

// The nodes by part, by id inside a part.
class ByPart {
  public:
    ByPart(const int32_t* owner, int64_t n, int64_t k) : first_(k + 1), order_(n) {
        for (int64_t v = 0; v < n; ++v) ++first_[owner[v] + 1];
        for (int64_t p = 0; p < k; ++p) first_[p + 1] += first_[p];
        std::vector<int64_t> next(first_);
        for (int64_t v = 0; v < n; ++v) order_[next[owner[v]]++] = int32_t(v);
    }

    const std::vector<int32_t>& all() const { return order_; }
    const int32_t* of(int64_t p) const { return order_.data() + first_[p]; }
    int64_t count(int64_t p) const { return first_[p + 1] - first_[p]; }

  private:
    std::vector<int64_t> first_;
    std::vector<int32_t> order_;
};

// Call work(worker's state, task) for each task on some threads, whichever is free; rethrow the first error.
template <class State, class Work>
void in_parallel(int64_t tasks, int threads, const State& make, const Work& work) {
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    std::mutex lock;
    auto run = [&] {
        try {
            auto state = make();
            for (int64_t task; (task = next++) < tasks;) work(state, task);
        } catch (...) {
            std::lock_guard<std::mutex> guard(lock);
            if (!failure) failure = std::current_exception();
            next = tasks;
        }
    };
    std::vector<std::thread> others;
    try {
        for (int64_t t = 1; t < std::min<int64_t>(threads, tasks); ++t) others.emplace_back(run);
    } catch (const std::system_error&) {
        // The system starts no more threads: those that run do the work.
    }
    run();
    for (auto& thread : others) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace spgnn

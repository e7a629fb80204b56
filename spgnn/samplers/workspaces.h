// Working memory that draws take and return: one for each thread that draws at the same time, kept between draws.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace spgnn {

template <class Memory>
class Workspaces {
  public:
    // The caller's own until the pointer is given back; what it holds is what the last draw left.
    std::unique_ptr<Memory> take() {
        const std::lock_guard<std::mutex> hold(lock);
        if (idle.empty()) return std::make_unique<Memory>();
        auto memory = std::move(idle.back());
        idle.pop_back();
        return memory;
    }

    // A draw that fails does not come here: its memory is released, and the next draw starts with new memory.
    void give(std::unique_ptr<Memory> memory) {
        const std::lock_guard<std::mutex> hold(lock);
        idle.push_back(std::move(memory));
    }

  private:
    std::mutex lock;
    std::vector<std::unique_ptr<Memory>> idle;
};

}  // namespace spgnn

// From a partition to a better one: coarsen inside the parts, anneal from the top down. No Python here.

#pragma once

#include <numeric>

#include "refine.h"

namespace spgnn {

struct Task {
    const int64_t* start;  // net e has the readers readers[start[e]] .. start[e + 1] - 1
    const int32_t* readers;
    int per_vertex;       // nets per node
    const int64_t* work;  // of a node
    int32_t n;
    int k;
    double balance;
    uint64_t seed;
    double most_work = 0.1;  // of a cluster, over the mean of a part
    int threads = 1;
    int isa = 0;
};

struct Rows {
    double total = 0, largest_send = 0;
};

// Refine owner in place; return the rows that are then sent.
template <class Store>
Rows refine(const Task& task, const Schedule& plan, const Pressure& pressure, std::vector<int32_t>& owner) {
    Refiner<Store> refiner(task.k, task.balance, task.seed, plan, pressure, task.isa);
    const double mean = std::accumulate(task.work, task.work + task.n, 0.0) / task.k;
    const ByPart nodes(owner.data(), task.n, task.k);
    const std::vector<int32_t>& order = nodes.all();
    std::vector<Level> levels;
    levels.push_back(base_level(task.start, task.readers, task.per_vertex, order, owner.data(), task.work));
    for (int i = 1; i <= plan.levels && levels.back().n > int64_t(plan.coarsest) * task.k; ++i) {
        const uint64_t seed = hashed(task.seed ^ uint64_t(i));
        Level coarse = Coarsener(levels.back(), task.k, int64_t(task.most_work * mean), seed).run(task.threads);
        if (coarse.n > 0.9 * levels.back().n) break;
        levels.push_back(std::move(coarse));
    }
    double t = plan.top_temperature;
    for (int i = int(levels.size()) - 1; i > 0; --i, t /= plan.fall) {
        refiner.start(levels[i]);
        refiner.anneal(i == int(levels.size()) - 1 ? plan.top_sweeps : plan.sweeps, t, plan.end * t);
        for (int32_t v = 0; v < levels[i - 1].n; ++v) levels[i - 1].part[v] = levels[i].part[levels[i].cluster[v]];
    }
    refiner.start(levels[0]);
    refiner.finish(plan.last_sweeps, plan.last_temperature);
    for (int32_t v = 0; v < task.n; ++v) owner[order[v]] = levels[0].part[v];
    return {refiner.loads.total, *std::max_element(refiner.loads.send.begin(), refiner.loads.send.end())};
}

}  // namespace spgnn

// Volume refinement, checked and bound. std::thread, not OpenMP: torch brings an OpenMP of its own.
// Python's lock is released while it runs.

#define SPGNN_MODULE

#include <string>
#include <vector>

#include "../../../native/arrays.h"
#include "covers.h"
#include "multilevel.h"

namespace {

using namespace spgnn;

void check_owners(const std::vector<int32_t>& owner, int k) {
    require(k >= 1 && k <= MOST_PARTS, "k is out of range");
    for (const int32_t part : owner) require(part >= 0 && part < k, "an owner is not a part");
}

// A row of start and readers is a net, of which a node has one or two.
void check_nets(const Array<int64_t>& start, const Array<int32_t>& readers, const Array<int64_t>& work, int per_vertex,
                int64_t n) {
    require(per_vertex == 1 || per_vertex == 2, "a node has one or two nets");
    check_csr(start, readers, n);
    require(work.ndim() == 1 && start.size() == n * per_vertex + 1 && work.size() == n,
            "start, work and owner do not fit each other");
    for (int64_t v = 0; v < n; ++v) require(work.data()[v] >= 1, "work must be positive");
}

template <class T>
void take(const nb::dict& from, const char* name, T& value, size_t& taken) {
    if (!from.contains(name)) return;
    value = nb::cast<T>(from[name]);
    ++taken;
}

void read_settings(const nb::dict& from, Schedule& s, Pressure& p, Task& t) {
    size_t taken = 0;
    take(from, "levels", s.levels, taken);
    take(from, "coarsest", s.coarsest, taken);
    take(from, "top_sweeps", s.top_sweeps, taken);
    take(from, "sweeps", s.sweeps, taken);
    take(from, "last_sweeps", s.last_sweeps, taken);
    take(from, "top_temperature", s.top_temperature, taken);
    take(from, "end", s.end, taken);
    take(from, "send", p.send, taken);
    take(from, "receive", p.receive, taken);
    take(from, "both", p.both, taken);
    take(from, "target", p.target, taken);
    take(from, "proportional", p.proportional, taken);
    take(from, "highest", p.highest, taken);
    take(from, "most_work", t.most_work, taken);
    take(from, "isa", t.isa, taken);
    require(taken == from.size(), "a setting is not known");
    require(t.isa >= 0 && t.isa <= best_isa(), "this processor does not have that instruction set");
}

std::vector<int32_t> vector_of(const Array<int32_t>& values) {
    require(values.ndim() == 1, "owner must be a vector");
    return {values.data(), values.data() + values.size()};
}

// (owner of each node after refinement, rows that are sent, the largest send). use_lists: any k; masks: k <= 64.
nb::tuple refine_owner(Array<int64_t> start, Array<int32_t> readers, int per_vertex, Array<int64_t> work,
                       Array<int32_t> owner, int k, double balance, uint64_t seed, bool use_lists, int threads,
                       nb::dict settings) {
    std::vector<int32_t> parts = vector_of(owner);
    Task task{start.data(), readers.data(), per_vertex, work.data(), int32_t(parts.size()), k, balance, seed};
    task.threads = threads;
    task.isa = best_isa();
    Schedule plan;
    Pressure pressure;
    read_settings(settings, plan, pressure, task);
    pressure.two_kinds = per_vertex == 2;
    Rows rows;
    {
        nb::gil_scoped_release free;
        check_owners(parts, k);
        check_nets(start, readers, work, per_vertex, task.n);
        require(use_lists || k <= 64, "masks have 64 parts");
        rows = use_lists ? refine<Lists>(task, plan, pressure, parts) : refine<Masks>(task, plan, pressure, parts);
    }
    return nb::make_tuple(array_of(parts), rows.total, rows.largest_send);
}

// (start, readers) of the nets that the minimum covers of a partition make.
nb::tuple nets_of_covers(Array<int64_t> indptr, Array<int32_t> indices, Array<int32_t> owner, int k, bool is_symmetric,
                         int threads) {
    const std::vector<int32_t> parts = vector_of(owner);
    CoverNets nets;
    {
        nb::gil_scoped_release free;
        const int64_t n = int64_t(parts.size());
        check_owners(parts, k);
        check_csr(indptr, indices, n);
        require(indptr.size() == n + 1, "indptr and owner do not fit each other");
        require(2 * n < std::numeric_limits<int32_t>::max(), "2^31 nets are too many");
        nets = cover_nets(indptr.data(), indices.data(), int32_t(n), parts.data(), k, is_symmetric, threads);
    }
    return nb::make_tuple(array_of(nets.start), array_of(nets.readers));
}

}  // namespace

NB_MODULE(_volume, m) {
    spgnn::import_numpy();
    m.doc() = "Volume refinement; call it through spgnn.partition.methods.volume, which makes its arguments.";
    m.def("best_isa", &best_isa);
    m.def("refine", &refine_owner, nb::arg("start"), nb::arg("readers"), nb::arg("per_vertex"), nb::arg("work"),
          nb::arg("owner"), nb::arg("k"), nb::arg("balance"), nb::arg("seed"), nb::arg("use_lists"), nb::arg("threads"),
          nb::arg("settings"));
    m.def("nets_of_covers", &nets_of_covers, nb::arg("indptr"), nb::arg("indices"), nb::arg("owner"), nb::arg("k"),
          nb::arg("is_symmetric"), nb::arg("threads"));
}

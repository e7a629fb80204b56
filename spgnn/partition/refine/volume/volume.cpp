// Volume refinement, checked and bound. std::thread, not OpenMP: torch brings an OpenMP of its own.
// Python's lock is released while it runs.

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "../../../native/arrays.h"
#include "covers.h"
#include "multilevel.h"

namespace py = pybind11;

namespace {

using namespace spgnn;

// The arrays that make a task, held by their Python objects.
struct Nets {
    Array<int64_t> start;
    Array<int32_t> readers;
    Array<int64_t> work;
    int per_vertex;

    void check_all(const std::vector<int32_t>& owner, int k) const {
        const int64_t n = int64_t(owner.size());
        require(k >= 1 && k <= MOST_PARTS, "k is out of range");
        require(per_vertex == 1 || per_vertex == 2, "a node has one or two nets");
        require(start.ndim() == 1 && readers.ndim() == 1 && work.ndim() == 1,
                "start, readers and work must be vectors");
        require(start.size() == n * per_vertex + 1 && work.size() == n, "start, work and owner do not fit each other");
        require(n * per_vertex < std::numeric_limits<int32_t>::max(), "2^31 nets are too many");
        require(start.data()[0] == 0 && start.data()[n * per_vertex] == readers.size(),
                "start must rise from 0 to the number of readers");
        for (int64_t e = 0; e < n * per_vertex; ++e)
            require(start.data()[e] <= start.data()[e + 1], "start must rise from 0 to the number of readers");
        for (int64_t i = 0; i < readers.size(); ++i)
            require(readers.data()[i] >= 0 && readers.data()[i] < n, "a reader is out of range");
        for (int64_t v = 0; v < n; ++v) {
            require(owner[v] >= 0 && owner[v] < k, "an owner is not a part");
            require(work.data()[v] >= 1, "work must be positive");
        }
    }
};

template <class T>
void take(const py::dict& from, const char* name, T& value, size_t& taken) {
    if (!from.contains(name)) return;
    value = from[name].cast<T>();
    ++taken;
}

void read_settings(const py::dict& from, Schedule& s, Pressure& p, Task& t) {
    size_t taken = 0;
    take(from, "levels", s.levels, taken);
    take(from, "coarsest", s.coarsest, taken);
    take(from, "top_sweeps", s.top_sweeps, taken);
    take(from, "sweeps", s.sweeps, taken);
    take(from, "last_sweeps", s.last_sweeps, taken);
    take(from, "send", p.send, taken);
    take(from, "receive", p.receive, taken);
    take(from, "both", p.both, taken);
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
py::tuple refine_owner(Array<int64_t> start, Array<int32_t> readers, int per_vertex, Array<int64_t> work,
                       Array<int32_t> owner, int k, double balance, uint64_t seed, bool use_lists, int threads,
                       py::dict settings) {
    Nets nets{start, readers, work, per_vertex};
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
        py::gil_scoped_release free;
        nets.check_all(parts, k);
        require(use_lists || k <= 64, "masks have 64 parts");
        rows = use_lists ? refine<Lists>(task, plan, pressure, parts) : refine<Masks>(task, plan, pressure, parts);
    }
    return py::make_tuple(py::array_t<int32_t>(py::ssize_t(parts.size()), parts.data()), rows.total, rows.largest_send);
}

// (start, readers) of the nets that the minimum covers of a partition make.
template <class Index>
py::tuple nets_of_covers(Array<int64_t> indptr, Array<Index> indices, Array<int32_t> owner, int k, bool is_symmetric,
                         int threads) {
    const std::vector<int32_t> parts = vector_of(owner);
    CoverNets nets;
    {
        py::gil_scoped_release free;
        const int64_t n = int64_t(parts.size());
        require(k >= 1 && k <= MOST_PARTS, "k is out of range");
        require(indptr.ndim() == 1 && indices.ndim() == 1 && indptr.size() == n + 1,
                "indptr and owner do not fit each other");
        require(2 * n < std::numeric_limits<int32_t>::max(), "2^31 nets are too many");
        require(indptr.data()[0] == 0 && indptr.data()[n] == indices.size(),
                "indptr must rise from 0 to the number of nonzeros");
        for (int64_t v = 0; v < n; ++v) {
            require(indptr.data()[v] <= indptr.data()[v + 1], "indptr must rise from 0 to the number of nonzeros");
            require(parts[v] >= 0 && parts[v] < k, "an owner is not a part");
        }
        for (int64_t e = 0; e < indices.size(); ++e)
            require(indices.data()[e] >= 0 && indices.data()[e] < n, "a column index is out of range");
        nets = cover_nets(indptr.data(), indices.data(), int32_t(n), parts.data(), by_part(parts, k), k, is_symmetric,
                          threads);
    }
    return py::make_tuple(py::array_t<int64_t>(py::ssize_t(nets.start.size()), nets.start.data()),
                          py::array_t<int32_t>(py::ssize_t(nets.readers.size()), nets.readers.data()));
}

template <class Index>
void define_covers(py::module_& m) {
    m.def("nets_of_covers", &nets_of_covers<Index>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("owner").noconvert(), py::arg("k"), py::arg("is_symmetric"), py::arg("threads"));
}

}  // namespace

PYBIND11_MODULE(_volume, m) {
    m.doc() = "Volume refinement; call it through spgnn.partition.methods.volume, which makes its arguments.";
    m.def("best_isa", &best_isa);
    m.def("refine", &refine_owner, py::arg("start").noconvert(), py::arg("readers").noconvert(), py::arg("per_vertex"),
          py::arg("work").noconvert(), py::arg("owner").noconvert(), py::arg("k"), py::arg("balance"), py::arg("seed"),
          py::arg("use_lists"), py::arg("threads"), py::arg("settings"));
    define_covers<int32_t>(m);
    define_covers<int64_t>(m);
}

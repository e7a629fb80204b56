// Volume refinement, checked and bound. std::thread, not OpenMP: torch brings an OpenMP of its own.
// Python's lock is released while it runs.

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "../../arrays.h"
#include "covers.h"
#include "cycle.h"

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
        check(k >= 1 && k <= MOST_PARTS, "k is out of range");
        check(per_vertex == 1 || per_vertex == 2, "a node has one or two nets");
        check(start.ndim() == 1 && readers.ndim() == 1 && work.ndim() == 1, "start, readers and work must be vectors");
        check(start.size() == n * per_vertex + 1 && work.size() == n, "start, work and owner do not fit each other");
        check(n * per_vertex < std::numeric_limits<int32_t>::max(), "2^31 nets are too many");
        check(start.data()[0] == 0 && start.data()[n * per_vertex] == readers.size(),
              "start must rise from 0 to the number of readers");
        for (int64_t e = 0; e < n * per_vertex; ++e)
            check(start.data()[e] <= start.data()[e + 1], "start must rise from 0 to the number of readers");
        for (int64_t i = 0; i < readers.size(); ++i)
            check(readers.data()[i] >= 0 && readers.data()[i] < n, "a reader is out of range");
        for (int64_t v = 0; v < n; ++v) {
            check(owner[v] >= 0 && owner[v] < k, "an owner is not a part");
            check(work.data()[v] >= 1, "work must be positive");
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
    take(from, "top_temperature", s.top_temperature, taken);
    take(from, "fall", s.fall, taken);
    take(from, "end", s.end, taken);
    take(from, "last_temperature", s.last_temperature, taken);
    take(from, "work_price", s.work_price, taken);
    take(from, "soft_cap", s.soft_cap, taken);
    take(from, "shrinking", s.shrinking, taken);
    take(from, "margin", s.margin, taken);
    take(from, "rest", s.rest, taken);
    take(from, "steep", s.steep, taken);
    take(from, "send", p.send, taken);
    take(from, "receive", p.receive, taken);
    take(from, "both", p.both, taken);
    take(from, "target", p.target, taken);
    take(from, "proportional", p.proportional, taken);
    take(from, "integral", p.integral, taken);
    take(from, "highest", p.highest, taken);
    take(from, "cycles", t.cycles, taken);
    take(from, "again", t.again, taken);
    take(from, "most_work", t.most_work, taken);
    take(from, "isa", t.isa, taken);
    check(taken == from.size(), "a setting is not known");
    check(t.isa >= 0 && t.isa <= best_isa(), "this processor does not have that instruction set");
}

std::vector<int32_t> vector_of(const Array<int32_t>& values) {
    check(values.ndim() == 1, "owner must be a vector");
    return {values.data(), values.data() + values.size()};
}

// (owner of each node after refinement, rows that travel, the largest send). use_lists: of any k; masks are for k
// <= 64.
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
        check(use_lists || k <= 64, "masks have 64 parts");
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
        check(k >= 1 && k <= MOST_PARTS, "k is out of range");
        check(indptr.ndim() == 1 && indices.ndim() == 1 && indptr.size() == n + 1,
              "indptr and owner do not fit each other");
        check(2 * n < std::numeric_limits<int32_t>::max(), "2^31 nets are too many");
        check(indptr.data()[0] == 0 && indptr.data()[n] == indices.size(),
              "indptr must rise from 0 to the number of nonzeros");
        for (int64_t v = 0; v < n; ++v) {
            check(indptr.data()[v] <= indptr.data()[v + 1], "indptr must rise from 0 to the number of nonzeros");
            check(parts[v] >= 0 && parts[v] < k, "an owner is not a part");
        }
        for (int64_t e = 0; e < indices.size(); ++e)
            check(indices.data()[e] >= 0 && indices.data()[e] < n, "a column index is out of range");
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

// A partition whose counts are kept under moves: what the tests hold against counting anew.
class State {
  public:
    State(Array<int64_t> start, Array<int32_t> readers, int per_vertex, Array<int64_t> work, Array<int32_t> owner,
          int k, bool use_lists, py::dict settings) {
        Nets nets{start, readers, work, per_vertex};
        std::vector<int32_t> parts = vector_of(owner);
        nets.check_all(parts, k);
        check(use_lists || k <= 64, "masks have 64 parts");
        Task task{start.data(), readers.data(), per_vertex, work.data(), int32_t(parts.size()), k, 1.03, 0};
        task.isa = best_isa();
        Schedule plan;
        Pressure pressure;
        read_settings(settings, plan, pressure, task);
        pressure.two_kinds = per_vertex == 2;
        k_ = k;
        order_ = by_part(parts, k);
        place_.resize(parts.size());
        for (size_t v = 0; v < order_.size(); ++v) place_[order_[v]] = int32_t(v);
        level_ = base_level(start.data(), readers.data(), per_vertex, order_, parts.data(), work.data());
        if (use_lists)
            lists_ = std::make_unique<Refiner<Lists>>(k, 1.03, 0, plan, pressure, task.isa);
        else
            masks_ = std::make_unique<Refiner<Masks>>(k, 1.03, 0, plan, pressure, task.isa);
        if (lists_)
            lists_->start(level_);
        else
            masks_->start(level_);
    }

    void move(int32_t node, int p) {
        check(node >= 0 && node < level_.n && p >= 0 && p < k_, "there is no such node or part");
        if (level_.part[place_[node]] == p) return;
        if (lists_)
            lists_->move(place_[node], p);
        else
            masks_->move(place_[node], p);
    }

    // (parts that its nets touch, their scores)
    py::tuple scores(int32_t node) {
        check(node >= 0 && node < level_.n, "there is no such node");
        const Scores& s = lists_ ? lists_->scores_for(place_[node]) : masks_->scores_for(place_[node]);
        std::vector<float> of;
        for (int32_t p : s.parts) of.push_back(s.score[p]);
        return py::make_tuple(py::array_t<int32_t>(py::ssize_t(s.parts.size()), s.parts.data()),
                              py::array_t<float>(py::ssize_t(of.size()), of.data()));
    }

    // (send, receive, work, total, price of a row by owner's part and by reader's part, each for kinds 0 and 1)
    py::tuple loads() const {
        const Loads& l = lists_ ? lists_->loads : masks_->loads;
        const auto array = [](const auto& of, int size) {
            const std::vector<double> copy(of.begin(), of.begin() + size);
            return py::array_t<double>(py::ssize_t(size), copy.data());
        };
        py::list prices;
        for (int kind = 0; kind < 2; ++kind) {
            prices.append(array(l.prices.by_owner[kind], k_));
            prices.append(array(l.prices.by_reader[kind], k_));
        }
        return py::make_tuple(array(l.send, k_), array(l.receive, k_), array(l.work, k_), l.total, prices);
    }

  private:
    int k_;
    Level level_;
    std::vector<int32_t> order_, place_;
    std::unique_ptr<Refiner<Masks>> masks_;
    std::unique_ptr<Refiner<Lists>> lists_;
};

}  // namespace

PYBIND11_MODULE(_volume, m) {
    m.doc() = "Volume refinement; call it through spgnn.partition.methods.volume, which makes its arguments.";
    m.def("best_isa", &best_isa);
    m.def("refine", &refine_owner, py::arg("start").noconvert(), py::arg("readers").noconvert(), py::arg("per_vertex"),
          py::arg("work").noconvert(), py::arg("owner").noconvert(), py::arg("k"), py::arg("balance"), py::arg("seed"),
          py::arg("use_lists"), py::arg("threads"), py::arg("settings"));
    define_covers<int32_t>(m);
    define_covers<int64_t>(m);
    py::class_<State>(m, "State")
        .def(py::init<Array<int64_t>, Array<int32_t>, int, Array<int64_t>, Array<int32_t>, int, bool, py::dict>(),
             py::arg("start").noconvert(), py::arg("readers").noconvert(), py::arg("per_vertex"),
             py::arg("work").noconvert(), py::arg("owner").noconvert(), py::arg("k"), py::arg("use_lists"),
             py::arg("settings"))
        .def("move", &State::move, py::arg("node"), py::arg("part"))
        .def("scores", &State::scores, py::arg("node"))
        .def("loads", &State::loads);
}

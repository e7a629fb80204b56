// Borders between parts redrawn by flows: arguments checked, Python's lock released.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <limits>
#include <memory>

#include "../../arrays.h"
#include "regions.h"

namespace py = pybind11;

namespace {

using namespace spgnn;

void check_pattern(const Array<int64_t>& start, const Array<int32_t>& indices, int64_t n) {
    check(start.ndim() == 1 && indices.ndim() == 1 && start.size() == n + 1,
          "a pattern and the work do not fit each other");
    check(start.data()[0] == 0 && start.data()[n] == indices.size(),
          "indptr must rise from 0 to the number of nonzeros");
    for (int64_t v = 0; v < n; ++v)
        check(start.data()[v] <= start.data()[v + 1], "indptr must rise from 0 to the number of nonzeros");
    for (int64_t e = 0; e < indices.size(); ++e)
        check(indices.data()[e] >= 0 && indices.data()[e] < n, "an index is out of range");
}

// The arrays of a graph, held by their Python objects.
struct Arrays {
    Array<int64_t> reads_start;
    Array<int32_t> reads;
    Array<int64_t> readers_start;
    Array<int32_t> readers;
    Array<int64_t> work;

    // Check all arrays and return the owners.
    std::vector<int32_t> check_all(const Array<int32_t>& owner, int k) const {
        check(work.ndim() == 1 && owner.ndim() == 1 && work.size() == owner.size(),
              "work and owner do not fit each other");
        const int64_t n = work.size();
        check(n < std::numeric_limits<int32_t>::max(), "2^31 nodes are too many");
        check(k >= 1 && k <= 1 << 15, "k is out of range");
        check_pattern(reads_start, reads, n);
        check_pattern(readers_start, readers, n);
        for (int64_t v = 0; v < n; ++v) {
            check(owner.data()[v] >= 0 && owner.data()[v] < k, "an owner is not a part");
            check(work.data()[v] >= 1, "work must be positive");
        }
        return {owner.data(), owner.data() + n};
    }

    Pattern pattern() const {
        return {work.size(), reads_start.data(), reads.data(), readers_start.data(), readers.data(), work.data()};
    }
};

void check_corridor(double corridor) {
    check(0 < corridor && corridor < 1, "a corridor is a share of a part, below 1");
}

// Regions with the arrays that they read.
class Borders {
  public:
    Borders(Array<int64_t> reads_start, Array<int32_t> reads, Array<int64_t> readers_start, Array<int32_t> readers,
            Array<int64_t> work, Array<int32_t> owner, int k, int64_t most_work, bool send, bool receive, uint64_t seed)
        : arrays_{reads_start, reads, readers_start, readers, work}, k_(k) {
        const std::vector<int32_t> parts = arrays_.check_all(owner, k);
        py::gil_scoped_release free;
        regions_ =
            std::make_unique<Regions>(arrays_.pattern(), parts, k, most_work, Regions::Held{send, receive}, seed);
    }

    void refine(const std::vector<int32_t>& parts, int passes, double least_corridor, double most_corridor) {
        check_region(parts, least_corridor, most_corridor);
        py::gil_scoped_release free;
        regions_->refine(parts, passes, least_corridor, most_corridor);
    }

    bool recut(const std::vector<int32_t>& parts, Array<int32_t> nodes, Array<int32_t> to, int passes,
               double least_corridor, double most_corridor) {
        check_region(parts, least_corridor, most_corridor);
        check(nodes.ndim() == 1 && to.ndim() == 1 && nodes.size() == to.size(),
              "nodes and their parts do not fit each other");
        std::vector<char> is_part(k_, 0);
        for (int32_t p : parts) is_part[p] = 1;
        int64_t inside = 0;
        for (int32_t owner : regions_->owner()) inside += is_part[owner];
        check(inside == nodes.size(), "nodes must be those of the parts");
        for (int64_t i = 0; i < nodes.size(); ++i) {
            check(nodes.data()[i] >= (i ? nodes.data()[i - 1] + 1 : 0) &&
                      nodes.data()[i] < int64_t(regions_->owner().size()),
                  "nodes must rise, and be in range");
            check(is_part[regions_->owner()[nodes.data()[i]]], "nodes must be those of the parts");
            check(to.data()[i] >= 0 && to.data()[i] < k_ && is_part[to.data()[i]], "a node would leave the parts");
        }
        py::gil_scoped_release free;
        return regions_->recut(parts, nodes.data(), to.data(), nodes.size(), passes, least_corridor, most_corridor);
    }

    py::array_t<int32_t> owner() const {
        return py::array_t<int32_t>(py::ssize_t(regions_->owner().size()), regions_->owner().data());
    }
    py::array_t<int64_t> rows() const { return py::array_t<int64_t>({k_, k_}, regions_->rows().data()); }
    double cost() const { return regions_->cost(); }

  private:
    Arrays arrays_;
    int k_;
    std::unique_ptr<Regions> regions_;

    void check_region(const std::vector<int32_t>& parts, double least_corridor, double most_corridor) const {
        std::vector<char> is_part(k_, 0);
        for (int32_t p : parts) {
            check(p >= 0 && p < k_ && !is_part[p], "parts must be of the partition, each once");
            is_part[p] = 1;
        }
        check_corridor(least_corridor);
        check_corridor(most_corridor);
        check(least_corridor <= most_corridor, "the least corridor comes first");
    }
};

// For tests against an enumeration of all cuts: the nodes of a and b that change sides.
py::array_t<int32_t> cut_pair(Array<int64_t> reads_start, Array<int32_t> reads, Array<int64_t> readers_start,
                              Array<int32_t> readers, Array<int64_t> work, Array<int32_t> owner, int k, int a, int b,
                              std::vector<int32_t> sent, std::vector<int32_t> read, int64_t most_work, double corridor,
                              uint64_t seed) {
    const Arrays arrays{reads_start, reads, readers_start, readers, work};
    const std::vector<int32_t> parts = arrays.check_all(owner, k);
    check(a != b && std::min(a, b) >= 0 && std::max(a, b) < k && int(sent.size()) == k && int(read.size()) == k,
          "two parts, and prices for all");
    check_corridor(corridor);
    std::vector<int32_t> of[2];
    for (size_t v = 0; v < parts.size(); ++v)
        if (parts[v] == a || parts[v] == b) of[parts[v] == b].push_back(int32_t(v));
    check(!of[0].empty() && !of[1].empty(), "a part is empty");
    const Pattern pattern = arrays.pattern();
    const std::vector<int32_t> moved =
        PairCutter(pattern, parts, k, seed).cut(a, b, of[0], of[1], {sent, read}, most_work, corridor);
    return py::array_t<int32_t>(py::ssize_t(moved.size()), moved.data());
}

}  // namespace

PYBIND11_MODULE(_flow, m) {
    m.doc() =
        "Borders between parts drawn anew by flows; call it through spgnn.partition.methods.recut, which makes its "
        "arguments.";
    m.attr("NORM") = Regions::NORM;
    m.attr("OF_MEAN") = Regions::OF_MEAN;
    m.def("cut_pair", &cut_pair, py::arg("reads_start").noconvert(), py::arg("reads").noconvert(),
          py::arg("readers_start").noconvert(), py::arg("readers").noconvert(), py::arg("work").noconvert(),
          py::arg("owner").noconvert(), py::arg("k"), py::arg("a"), py::arg("b"), py::arg("sent"), py::arg("read"),
          py::arg("most_work"), py::arg("corridor"), py::arg("seed"));
    py::class_<FlowNetwork> network(m, "Network");  // for the tests
    py::enum_<FlowNetwork::Side>(network, "Side")
        .value("NONE", FlowNetwork::NONE)
        .value("SOURCE", FlowNetwork::SOURCE)
        .value("TARGET", FlowNetwork::TARGET);
    network.def(py::init<>())
        .def("add_node", &FlowNetwork::add_node, py::arg("weight"))
        .def("add_arc", &FlowNetwork::add_arc, py::arg("start"), py::arg("end"), py::arg("capacity"))
        .def("start", &FlowNetwork::start, py::arg("source"), py::arg("target"), py::arg("most"))
        .def("settle", &FlowNetwork::settle, py::arg("side"), py::arg("terminal"), py::arg("most"))
        .def("flow", &FlowNetwork::flow)
        .def("side", &FlowNetwork::side, py::arg("node"))
        .def("is_settled", &FlowNetwork::is_settled, py::arg("node"))
        .def("reached", &FlowNetwork::reached, py::arg("side"))
        .def("reached_weight", &FlowNetwork::reached_weight, py::arg("side"));
    py::class_<Borders>(m, "Borders")
        .def(py::init<Array<int64_t>, Array<int32_t>, Array<int64_t>, Array<int32_t>, Array<int64_t>, Array<int32_t>,
                      int, int64_t, bool, bool, uint64_t>(),
             py::arg("reads_start").noconvert(), py::arg("reads").noconvert(), py::arg("readers_start").noconvert(),
             py::arg("readers").noconvert(), py::arg("work").noconvert(), py::arg("owner").noconvert(), py::arg("k"),
             py::arg("most_work"), py::arg("send"), py::arg("receive"), py::arg("seed"))
        .def("refine", &Borders::refine, py::arg("parts"), py::arg("passes"), py::arg("least_corridor"),
             py::arg("most_corridor"))
        .def("recut", &Borders::recut, py::arg("parts"), py::arg("nodes").noconvert(), py::arg("to").noconvert(),
             py::arg("passes"), py::arg("least_corridor"), py::arg("most_corridor"))
        .def("owner", &Borders::owner)
        .def("rows", &Borders::rows)
        .def("cost", &Borders::cost);
}

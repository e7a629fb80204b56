// The passes of spgnn.partition.stream, checked and bound. Python's lock is released in each.

#include <pybind11/pybind11.h>

#include <memory>

#include "../../native/arrays.h"
#include "bind.h"
#include "blocks.h"
#include "numbering.h"
#include "spring.h"
#include "vertexcut.h"

namespace py = pybind11;
using namespace spgnn::stream;

namespace {

using spgnn::Array;
using spgnn::array_of;
using spgnn::require;

void check_parts(int64_t k) { require(k >= 1 && k < (1 << 16), "k must be from 1 to 65,535"); }

template <class T>
void check_size(const Array<T>& values, int64_t n) {
    require(values.ndim() == 1 && values.size() == n, "degrees and owners must be vectors of one length");
}

template <class T, class... Args>
std::unique_ptr<T> with_degrees(const Array<uint32_t>& degrees, int64_t k, Args... args) {
    require(degrees.ndim() == 1, "degrees must be a vector");
    check_parts(k);
    return std::make_unique<T>(degrees.data(), int64_t(degrees.size()), k, args...);
}

py::array_t<int32_t> owners_of(const VertexCut& cut, uint64_t seed) {
    py::array_t<int32_t> owner(cut.nodes());
    int32_t* out = owner.mutable_data();
    py::gil_scoped_release free;
    cut.owners(seed, out);
    return owner;
}

// partition(k, cap, seed) of a graph that is held: call it once, after the stream.
template <class Class>
void partition_in_levels(Class& type) {
    using T = typename Class::type;
    add_pass(type);
    type.def(
        "partition",
        [](T& self, int64_t k, int64_t cap, uint64_t seed, int64_t entries) {
            check_parts(k);
            py::array_t<int32_t> owner(self.nodes());
            int32_t* out = owner.mutable_data();
            py::gil_scoped_release free;
            self.owners(Multilevel(k, cap, seed).run(self.take(), self.nodes(), entries), k, out);
            return owner;
        },
        py::arg("k"), py::arg("cap"), py::arg("seed"), py::arg("entries"));
}

void define_held(py::module_& m) {
    auto held = py::class_<Held>(m, "Held");
    held.def(py::init([](const Array<uint32_t>& degrees) {
                 require(degrees.ndim() == 1, "degrees must be a vector");
                 return std::make_unique<Held>(degrees.data(), int64_t(degrees.size()));
             }),
             py::arg("degrees"));
    held.def("finish", &Held::finish, py::call_guard<py::gil_scoped_release>());
    partition_in_levels(held);

    auto clusters = py::class_<ClusterGraph>(m, "ClusterGraph");
    clusters.def(py::init([](const Array<int32_t>& cluster, int64_t count, int64_t most) {
                     require(cluster.ndim() == 1, "clusters must be a vector");
                     return std::make_unique<ClusterGraph>(cluster.data(), int64_t(cluster.size()), count, most);
                 }),
                 py::arg("cluster"), py::arg("count"), py::arg("most"), py::keep_alive<1, 2>());
    partition_in_levels(clusters);

    auto blocks = py::class_<Blocks>(m, "Blocks");
    blocks.def(
        py::init(
            [](const Array<uint32_t>& degrees, int64_t entries, int64_t most, int64_t k, int64_t cap, uint64_t seed) {
                require(degrees.ndim() == 1, "degrees must be a vector");
                check_parts(k);
                return std::make_unique<Blocks>(degrees.data(), int64_t(degrees.size()), entries, most, k, cap, seed);
            }),
        py::arg("degrees"), py::arg("entries"), py::arg("most"), py::arg("k"), py::arg("cap"), py::arg("seed"));
    add_pass(blocks);
    const py::call_guard<py::gil_scoped_release> free;
    blocks.def("next", &Blocks::next, free);
    blocks.def("join", &Blocks::join, py::arg("most"), free);
    blocks.def("move", &Blocks::move, py::arg("sweeps"), py::arg("limit"), py::arg("noise"), free);
    blocks.def("clusters", [](Blocks& self) {
        py::array_t<int32_t> number(self.nodes());
        const int64_t count = self.clusters(number.mutable_data());
        return py::make_tuple(number, count);
    });
    blocks.def(
        "start",
        [](Blocks& self, const Array<int32_t>& owner, int64_t k) {
            check_size(owner, self.nodes());
            self.start(owner.data(), k);
        },
        py::arg("owner"), py::arg("k"));
    blocks.def("owners", [](Blocks& self) {
        py::array_t<int32_t> owner(self.nodes());
        self.owners(owner.mutable_data());
        return owner;
    });
}

void define_spring(py::module_& m) {
    auto fingerprint =
        py::class_<Fingerprint>(m, "Fingerprint").def(py::init<>()).def_property_readonly("count", &Fingerprint::count);
    fingerprint.def_property_readonly("value", &Fingerprint::value);
    add_pass(fingerprint);

    auto degrees = py::class_<Degrees>(m, "Degrees").def(py::init<int64_t, int64_t>(), py::arg("n"), py::arg("most"));
    add_pass(degrees);
    degrees.def("take", [](Degrees& self) {  // the vector becomes the array's memory
        auto* kept = new Large<uint32_t>(std::move(self.degree));
        self.degree.clear();
        py::capsule owner(kept, [](void* v) { delete static_cast<Large<uint32_t>*>(v); });
        return py::array_t<uint32_t>(py::ssize_t(kept->size()), kept->data(), owner);
    });

    auto spring = py::class_<Spring>(m, "Spring");
    spring.def(py::init([](const py::object& degrees, double volume_limit, int64_t n, int64_t most) {
                   if (degrees.is_none()) return std::make_unique<Spring>(nullptr, n, volume_limit, most);
                   auto d = py::cast<Array<uint32_t>>(degrees);
                   require(d.ndim() == 1, "degrees must be a vector");
                   return std::make_unique<Spring>(d.data(), int64_t(d.size()), volume_limit, most);
               }),
               py::arg("degrees"), py::arg("volume_limit"), py::arg("n") = -1, py::arg("most") = MOST_NODES);
    add_pass(spring);
    spring.def(
        "partition",
        [](Spring& self, int64_t k, double balance) {
            check_parts(k);
            py::array_t<int32_t> owner(self.nodes());
            int32_t* out = owner.mutable_data();
            py::gil_scoped_release free;
            self.partition(k, balance, out);
            return owner;
        },
        py::arg("k"), py::arg("balance"));
    spring.def("clusters", [](Spring& self) {
        py::array_t<int32_t> number(self.nodes());
        int32_t* out = number.mutable_data();
        py::gil_scoped_release free;
        self.clusters(out);
        return number;
    });
    spring.def("sizes", [](const Spring& self) {
        return py::make_tuple(array_of(self.sizes_before), array_of(self.sizes_after));
    });
}

void define_cuts(py::module_& m) {
    auto base = py::class_<VertexCut>(m, "VertexCut").def("owners", &owners_of, py::arg("seed"));
    base.def_property_readonly("load", [](const VertexCut& self) { return array_of(self.load); });
    base.def_property_readonly("replicas", [](const VertexCut& self) { return self.replicas.total(); });

    auto dbh = py::class_<DegreeHash, VertexCut>(m, "DegreeHash");
    dbh.def(py::init(&with_degrees<DegreeHash, uint64_t>), py::arg("degrees"), py::arg("k"), py::arg("seed"));
    add_pass(dbh);

    auto greedy = py::class_<Greedy, VertexCut>(m, "Greedy")
                      .def(py::init(&with_degrees<Greedy>), py::arg("degrees"), py::arg("k"));
    add_pass(greedy);

    auto hdrf = py::class_<Hdrf, VertexCut>(m, "Hdrf");
    hdrf.def(py::init([](int64_t n, int64_t k, double lambda, double epsilon) {
                 require(n >= 0 && n <= MOST_NODES, "too many nodes");
                 check_parts(k);
                 return std::make_unique<Hdrf>(n, k, lambda, epsilon);
             }),
             py::arg("n"), py::arg("k"), py::arg("weight"), py::arg("epsilon"));
    add_pass(hdrf);

    auto two = py::class_<TwoPhase, VertexCut>(m, "TwoPhase");
    two.def(py::init(&with_degrees<TwoPhase, double, uint64_t>), py::arg("degrees"), py::arg("k"), py::arg("balance"),
            py::arg("seed"));
    pass(two, "cluster", [](TwoPhase& self, const auto& edges) { self.cluster(edges); });
    two.def("place_clusters", &TwoPhase::place_clusters).def_property_readonly("clusters", &TwoPhase::clusters);
    pass(two, "add_inner", [](TwoPhase& self, const auto& edges) { self.add(edges, false); });
    pass(two, "add_other", [](TwoPhase& self, const auto& edges) { self.add(edges, true); });

    auto halo = py::class_<Halo>(m, "Halo");
    halo.def(py::init([](const Array<int32_t>& owner, int64_t k) {
                 require(owner.ndim() == 1, "owner must be a vector");
                 check_parts(k);
                 return std::make_unique<Halo>(owner.data(), int64_t(owner.size()), k);
             }),
             py::arg("owner"), py::arg("k"));
    add_pass(halo);
    halo.def("next_hop", &Halo::next_hop);
    halo.def("rows", [](const Halo& self) {
        py::array_t<int64_t> rows({self.parts(), self.parts()});
        self.rows(rows.mutable_data());
        return rows;
    });
}

void define_numbering(py::module_& m) {
    auto numbering = py::class_<Numbering>(m, "Numbering").def(py::init<>());
    add_pass(numbering);
    numbering.def("finish", [](Numbering& self) { return array_of(self.finish()); });
    on_both([&](auto index) {
        numbering.def(
            "numbers",
            [](const Numbering& self, const Array<decltype(index)>& ids, int64_t before) {
                const auto edges = edges_of(ids);
                py::array_t<int64_t> out({py::ssize_t(edges.size), py::ssize_t(2)});
                self.numbers(edges, before, out.mutable_data());
                return out;
            },
            py::arg("edges").noconvert(), py::arg("before"));
    });
}

}  // namespace

PYBIND11_MODULE(_stream, m) {
    m.doc() = "Passes of spgnn.partition.stream; it checks what they are given and runs them over a stream.";
    define_spring(m);
    define_held(m);
    define_cuts(m);
    define_numbering(m);
}

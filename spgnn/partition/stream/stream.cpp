// The passes of spgnn.partition.stream, checked and bound. Python's lock is released in each.

#define SPGNN_MODULE

#include <memory>

#include "../../native/arrays.h"
#include "bind.h"
#include "blocks.h"
#include "numbering.h"
#include "spring.h"
#include "vertexcut.h"

namespace nb = nanobind;
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
void init_with_degrees(T* self, const Array<uint32_t>& degrees, int64_t k, Args... args) {
    require(degrees.ndim() == 1, "degrees must be a vector");
    check_parts(k);
    new (self) T(degrees.data(), degrees.size(), k, args...);
}

Array<int32_t> owners_of(const VertexCut& cut, uint64_t seed) {
    Array<int32_t> owner(cut.nodes());
    int32_t* out = owner.mutable_data();
    nb::gil_scoped_release free;
    cut.owners(seed, out);
    return owner;
}

// partition(k, cap, seed) of a graph that is held: call it once, after the stream.
template <class Class>
void partition_in_levels(Class& type) {
    using T = typename Class::Type;
    add_pass(type);
    type.def(
        "partition",
        [](T& self, int64_t k, int64_t cap, uint64_t seed, int64_t entries) {
            check_parts(k);
            Array<int32_t> owner(self.nodes());
            int32_t* out = owner.mutable_data();
            nb::gil_scoped_release free;
            self.owners(Multilevel(k, cap, seed).run(self.take(), self.nodes(), entries), k, out);
            return owner;
        },
        nb::arg("k"), nb::arg("cap"), nb::arg("seed"), nb::arg("entries"));
}

void define_held(nb::module_& m) {
    auto held = nb::class_<Held>(m, "Held");
    held.def(
        "__init__",
        [](Held* self, const Array<uint32_t>& degrees) {
            require(degrees.ndim() == 1, "degrees must be a vector");
            new (self) Held(degrees.data(), degrees.size());
        },
        nb::arg("degrees"));
    held.def("finish", &Held::finish, nb::call_guard<nb::gil_scoped_release>());
    partition_in_levels(held);

    auto clusters = nb::class_<ClusterGraph>(m, "ClusterGraph");
    clusters.def(
        "__init__",
        [](ClusterGraph* self, const Array<int32_t>& cluster, int64_t count, int64_t most) {
            require(cluster.ndim() == 1, "clusters must be a vector");
            new (self) ClusterGraph(cluster.data(), cluster.size(), count, most);
        },
        nb::arg("cluster"), nb::arg("count"), nb::arg("most"), nb::keep_alive<1, 2>());
    partition_in_levels(clusters);

    auto blocks = nb::class_<Blocks>(m, "Blocks");
    blocks.def(
        "__init__",
        [](Blocks* self, const Array<uint32_t>& degrees, int64_t entries, int64_t most, int64_t k, int64_t cap,
           uint64_t seed) {
            require(degrees.ndim() == 1, "degrees must be a vector");
            check_parts(k);
            new (self) Blocks(degrees.data(), degrees.size(), entries, most, k, cap, seed);
        },
        nb::arg("degrees"), nb::arg("entries"), nb::arg("most"), nb::arg("k"), nb::arg("cap"), nb::arg("seed"));
    add_pass(blocks);
    const nb::call_guard<nb::gil_scoped_release> free;
    blocks.def("next", &Blocks::next, free);
    blocks.def("join", &Blocks::join, nb::arg("most"), free);
    blocks.def("move", &Blocks::move, nb::arg("sweeps"), nb::arg("limit"), nb::arg("noise"), free);
    blocks.def("clusters", [](Blocks& self) {
        Array<int32_t> number(self.nodes());
        const int64_t count = self.clusters(number.mutable_data());
        return nb::make_tuple(number, count);
    });
    blocks.def(
        "start",
        [](Blocks& self, const Array<int32_t>& owner, int64_t k) {
            check_size(owner, self.nodes());
            self.start(owner.data(), k);
        },
        nb::arg("owner"), nb::arg("k"));
    blocks.def("owners", [](Blocks& self) {
        Array<int32_t> owner(self.nodes());
        self.owners(owner.mutable_data());
        return owner;
    });
}

void define_spring(nb::module_& m) {
    auto fingerprint =
        nb::class_<Fingerprint>(m, "Fingerprint").def(nb::init<>()).def_prop_ro("count", &Fingerprint::count);
    fingerprint.def_prop_ro("value", &Fingerprint::value);
    add_pass(fingerprint);

    auto degrees = nb::class_<Degrees>(m, "Degrees").def(nb::init<int64_t, int64_t>(), nb::arg("n"), nb::arg("most"));
    add_pass(degrees);
    degrees.def("take", [](Degrees& self) {  // the vector becomes the array's memory
        auto* kept = new Large<uint32_t>(std::move(self.degree));
        self.degree.clear();
        nb::capsule owner(kept, [](void* v) noexcept { delete static_cast<Large<uint32_t>*>(v); });
        return Array<uint32_t>(kept->data(), int64_t(kept->size()), owner);
    });

    auto spring = nb::class_<Spring>(m, "Spring");
    spring.def(
        "__init__",
        [](Spring* self, const spgnn::Given& degrees, double volume_limit, int64_t n, int64_t most) {
            const auto d = spgnn::exactly_or_none<uint32_t>(degrees);
            require(d.ndim() == 1, "degrees must be a vector");
            new (self) Spring(d.data(), degrees.is_none() ? n : d.size(), volume_limit, most);
        },
        nb::arg("degrees"), nb::arg("volume_limit"), nb::arg("n") = -1, nb::arg("most") = MOST_NODES);
    add_pass(spring);
    spring.def(
        "partition",
        [](Spring& self, int64_t k, double balance) {
            check_parts(k);
            Array<int32_t> owner(self.nodes());
            int32_t* out = owner.mutable_data();
            nb::gil_scoped_release free;
            self.partition(k, balance, out);
            return owner;
        },
        nb::arg("k"), nb::arg("balance"));
    spring.def("clusters", [](Spring& self) {
        Array<int32_t> number(self.nodes());
        int32_t* out = number.mutable_data();
        nb::gil_scoped_release free;
        self.clusters(out);
        return number;
    });
    spring.def("sizes", [](const Spring& self) {
        return nb::make_tuple(array_of(self.sizes_before), array_of(self.sizes_after));
    });
}

void define_cuts(nb::module_& m) {
    auto base = nb::class_<VertexCut>(m, "VertexCut").def("owners", &owners_of, nb::arg("seed"));
    base.def_prop_ro("load", [](const VertexCut& self) { return array_of(self.load); });
    base.def_prop_ro("replicas", [](const VertexCut& self) { return self.replicas.total(); });

    auto dbh = nb::class_<DegreeHash, VertexCut>(m, "DegreeHash");
    dbh.def("__init__", &init_with_degrees<DegreeHash, uint64_t>, nb::arg("degrees"), nb::arg("k"), nb::arg("seed"));
    add_pass(dbh);

    auto greedy = nb::class_<Greedy, VertexCut>(m, "Greedy")
                      .def("__init__", &init_with_degrees<Greedy>, nb::arg("degrees"), nb::arg("k"));
    add_pass(greedy);

    auto hdrf = nb::class_<Hdrf, VertexCut>(m, "Hdrf");
    hdrf.def(
        "__init__",
        [](Hdrf* self, int64_t n, int64_t k, double lambda, double epsilon) {
            require(n >= 0 && n <= MOST_NODES, "too many nodes");
            check_parts(k);
            new (self) Hdrf(n, k, lambda, epsilon);
        },
        nb::arg("n"), nb::arg("k"), nb::arg("weight"), nb::arg("epsilon"));
    add_pass(hdrf);

    auto two = nb::class_<TwoPhase, VertexCut>(m, "TwoPhase");
    two.def("__init__", &init_with_degrees<TwoPhase, double, uint64_t>, nb::arg("degrees"), nb::arg("k"),
            nb::arg("balance"), nb::arg("seed"));
    pass(two, "cluster", [](TwoPhase& self, const auto& edges) { self.cluster(edges); });
    two.def("place_clusters", &TwoPhase::place_clusters).def_prop_ro("clusters", &TwoPhase::clusters);
    pass(two, "add_inner", [](TwoPhase& self, const auto& edges) { self.add(edges, false); });
    pass(two, "add_other", [](TwoPhase& self, const auto& edges) { self.add(edges, true); });

    auto halo = nb::class_<Halo>(m, "Halo");
    halo.def(
        "__init__",
        [](Halo* self, const Array<int32_t>& owner, int64_t k) {
            require(owner.ndim() == 1, "owner must be a vector");
            check_parts(k);
            new (self) Halo(owner.data(), owner.size(), k);
        },
        nb::arg("owner"), nb::arg("k"));
    add_pass(halo);
    halo.def("next_hop", &Halo::next_hop);
    halo.def("rows", [](const Halo& self) {
        Array<int64_t> rows({self.parts(), self.parts()});
        self.rows(rows.mutable_data());
        return rows;
    });
}

void define_numbering(nb::module_& m) {
    auto numbering = nb::class_<Numbering>(m, "Numbering").def(nb::init<>());
    add_pass(numbering);
    numbering.def("finish", [](Numbering& self) { return array_of(self.finish()); });
    on_both([&](auto index) {
        numbering.def(
            "numbers",
            [](const Numbering& self, const Array<decltype(index)>& ids, int64_t before) {
                const auto edges = edges_of(ids);
                Array<int64_t> out({int64_t(edges.size), 2});
                self.numbers(edges, before, out.mutable_data());
                return out;
            },
            nb::arg("edges"), nb::arg("before"));
    });
}

}  // namespace

NB_MODULE(_stream, m) {
    spgnn::import_numpy();
    m.doc() = "Passes of spgnn.partition.stream; it checks what they are given and runs them over a stream.";
    define_spring(m);
    define_held(m);
    define_cuts(m);
    define_numbering(m);
}

// Passes over chunks of edges, bound for ids of 32 and of 64 bits. Python's lock is released in each.
#pragma once

#include "../../native/arrays.h"
#include "edges.h"

namespace spgnn::stream {

template <class Index>
Edges<Index> edges_of(const Array<Index>& ids) {
    require(ids.ndim() == 2 && ids.shape(1) == 2, "edges must be (m, 2)");
    return {ids.data(), int64_t(ids.shape(0))};
}

template <class Bind>
void on_both(Bind bind) {
    bind(int32_t{});
    bind(int64_t{});
}

// def("name", f): f(object, edges).
template <class Class, class F>
void pass(Class& type, const char* name, F f) {
    using T = typename Class::Type;
    on_both([&](auto index) {
        type.def(
            name,
            [f](T& self, const Array<decltype(index)>& ids) {
                const auto edges = edges_of(ids);
                nb::gil_scoped_release free;
                f(self, edges);
            },
            nb::arg("edges"));
    });
}

// def("add", ...) of a class with add(edges).
template <class Class>
void add_pass(Class& type) {
    pass(type, "add", [](auto& self, const auto& edges) { self.add(edges); });
}

}  // namespace spgnn::stream

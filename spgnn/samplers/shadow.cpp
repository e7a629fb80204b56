// A bounded subgraph for each target, all of a batch in one block-diagonal pattern.

#include <algorithm>

#include "samplers.h"
#include "pick.h"
#include "workspaces.h"

namespace spgnn {

struct Shadows {
    std::vector<int32_t> local;       // (N,) of each node: its row in the subgraph that is built, or NOT_IN
    std::vector<int32_t> nodes;       // of the subgraph that is built
    std::vector<int64_t> node, root;  // of all subgraphs
    std::vector<int64_t> indptr, place;
    std::vector<int32_t> indices;
};

constexpr int32_t NOT_IN = -1;
constexpr int64_t SEARCH =
    8;  // in a row of this many nonzeros a node of the subgraph, those are searched; others are read

class Shadow {
  public:
    // fanouts: of each hop, the farthest hop first.
    Shadow(Array<int64_t> indptr, Array<int32_t> indices, std::vector<int64_t> fanouts)
        : indptr(indptr), indices(indices), fanouts(std::move(fanouts)) {
        check_csr(indptr, indices, indptr.size() - 1);
    }

    // node (m,), indptr, indices, place of the pattern (m, m), and the rows of the targets.
    nb::tuple draw(Array<int64_t> targets, uint64_t seed, uint64_t stream, uint64_t index) {
        auto w = workspaces.take();
        {
            const nb::gil_scoped_release unlocked;
            run(*w, targets.data(), targets.size(), seed, stream, index);
        }
        auto out = nb::make_tuple(array_of(w->node), array_of(w->indptr), array_of(w->indices), array_of(w->place),
                                  array_of(w->root));
        workspaces.give(std::move(w));
        return out;
    }

  private:
    void run(Shadows& w, const int64_t* targets, int64_t count, uint64_t seed, uint64_t stream, uint64_t index) const {
        const int64_t N = indptr.size() - 1;
        w.local.resize(size_t(N), NOT_IN);
        w.node.clear();
        w.root.clear();
        w.indptr.assign(1, 0);
        w.place.clear();
        w.indices.clear();
        WithoutReplacement pick(seed, stream, index);
        for (int64_t k = 0; k < count; ++k) {
            require(targets[k] >= 0 && targets[k] < N, "a target is not a node of the graph");
            find_nodes(w, pick, int32_t(targets[k]));
            require(int64_t(w.node.size() + w.nodes.size()) < (int64_t(1) << 31), "a batch of 2^31 rows is too large");
            w.root.push_back(int64_t(w.node.size()) + w.local[size_t(targets[k])]);
            add_rows(w);
            for (const int32_t v : w.nodes) w.local[size_t(v)] = NOT_IN;
        }
    }

    // The target, min(deg, f) neighbours of it, as many of each of those that are new, and so on; then in order of id.
    void find_nodes(Shadows& w, WithoutReplacement& pick, int32_t target) const {
        const int64_t* p = indptr.data();
        w.nodes.assign(1, target);
        w.local[size_t(target)] = 0;
        size_t done = 0;
        for (auto fanout = fanouts.rbegin(); fanout != fanouts.rend(); ++fanout)
            for (const size_t end = w.nodes.size(); done < end; ++done) {
                const int32_t u = w.nodes[done];
                const int32_t* neighbours = indices.data() + p[u];
                pick(neighbours, int32_t(p[u + 1] - p[u]), *fanout, [&](int32_t k) {
                    int32_t& row = w.local[size_t(neighbours[k])];
                    if (row != NOT_IN) return;
                    row = 0;
                    w.nodes.push_back(neighbours[k]);
                });
            }
        std::sort(w.nodes.begin(), w.nodes.end());
        for (size_t row = 0; row < w.nodes.size(); ++row) w.local[size_t(w.nodes[row])] = int32_t(row);
    }

    // The nonzeros between the nodes.
    void add_rows(Shadows& w) const {
        const int64_t *p = indptr.data(), base = int64_t(w.node.size()), m = int64_t(w.nodes.size());
        const int32_t* j = indices.data();
        for (const int32_t u : w.nodes) {
            if (p[u + 1] - p[u] > SEARCH * m) {
                const int32_t* from = j + p[u];
                for (int64_t row = 0; row < m; ++row) {
                    from = std::lower_bound(from, j + p[u + 1], w.nodes[row]);
                    if (from != j + p[u + 1] && *from == w.nodes[row]) add(w, int32_t(base + row), from - j);
                }
            } else {
                for (int64_t e = p[u]; e < p[u + 1]; ++e)
                    if (w.local[size_t(j[e])] != NOT_IN) add(w, int32_t(base) + w.local[size_t(j[e])], e);
            }
            w.indptr.push_back(int64_t(w.place.size()));
        }
        w.node.insert(w.node.end(), w.nodes.begin(), w.nodes.end());
    }

    static void add(Shadows& w, int32_t column, int64_t place) {
        w.indices.push_back(column);
        w.place.push_back(place);
    }

    const Array<int64_t> indptr;
    const Array<int32_t> indices;
    const std::vector<int64_t> fanouts;
    Workspaces<Shadows> workspaces;
};

void define_shadow(nb::module_& m) {
    nb::class_<Shadow>(m, "Shadow", "a bounded subgraph for each target")
        .def(nb::init<Array<int64_t>, Array<int32_t>, std::vector<int64_t>>())
        .def("draw", &Shadow::draw);
}

}  // namespace spgnn

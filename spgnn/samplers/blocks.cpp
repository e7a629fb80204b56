// Blocks of the layers above a batch of targets: their sampled neighbours, the neighbours of those, and so on.

#include <algorithm>

#include "../native/arrays.h"
#include "pick.h"
#include "samplers.h"
#include "workspaces.h"

namespace spgnn {

// One block (n, m), its nonzeros by row.
struct Block {
    int64_t n, m;
    Owned<int64_t> indptr, place;
    Owned<int32_t> indices;
    Owned<float> scale;
    bool is_scaled = false;  // a row lacks some of its neighbours
};

struct Neighbourhood {
    std::vector<int32_t> local;          // (N,) of each node: its row, or NOBODY
    std::vector<uint64_t> bits;          // (N,) bits of nodes that were just picked, zero elsewhere
    std::vector<uint8_t> touched;        // which runs of WORDS words have bits
    std::vector<int32_t> nodes;          // in the order of their rows: hop after hop, ascending within a hop
    std::vector<int64_t> hops;           // the first row of each hop, and that after the last
    std::vector<int64_t> indptr, place;  // of the nonzeros of a block in the order of A; at least as long
    std::vector<int32_t> column;         // their nodes, then their rows
    std::vector<Block> blocks;           // the last layer first
};

constexpr int32_t NOBODY = -1;
constexpr size_t WORDS = 64;  // 4,096 nodes

class Blocks {
  public:
    // fanouts: of each layer, the first layer first; is_poisson: LABOR instead of a fixed number of neighbours.
    Blocks(Array<int64_t> indptr, Array<int32_t> indices, std::vector<int64_t> fanouts, bool is_poisson)
        : indptr(indptr), indices(indices), fanouts(std::move(fanouts)), is_poisson(is_poisson) {
        check_csr(indptr, indices, indptr.size() - 1);
    }

    // The nodes of the first layer's inputs, and (n, m, indptr, indices, place, scale or None) of each block, the first
    // layer first; targets ascending.
    nb::tuple draw(Array<int64_t> targets, uint64_t seed, uint64_t stream, uint64_t index) {
        auto w = workspaces.take();
        {
            const nb::gil_scoped_release unlocked;
            run(*w, targets.data(), targets.size(), seed, stream, index);
        }
        Array<int64_t> node(int64_t(w->nodes.size()));
        std::copy(w->nodes.begin(), w->nodes.end(), node.mutable_data());
        nb::list out;
        for (auto block = w->blocks.rbegin(); block != w->blocks.rend(); ++block) {
            nb::object scale = nb::none();
            if (block->is_scaled) scale = block->scale.release().object();
            out.append(nb::make_tuple(block->n, block->m, block->indptr.release(), block->indices.release(),
                                      block->place.release(), scale));
        }
        w->blocks.clear();
        workspaces.give(std::move(w));
        return nb::make_tuple(node, out);
    }

  private:
    void run(Neighbourhood& w, const int64_t* targets, int64_t count, uint64_t seed, uint64_t stream,
             uint64_t index) const {
        const int64_t N = indptr.size() - 1;
        w.local.resize(size_t(N), NOBODY);
        w.touched.resize(size_t(N) / (64 * WORDS) + 1);
        w.bits.resize(w.touched.size() * WORDS);
        w.nodes.clear();
        for (int64_t row = 0; row < count; ++row) {
            const bool ascends = row ? targets[row] > targets[row - 1] : targets[row] >= 0;
            require(ascends && targets[row] < N, "targets must be distinct nodes of the graph, ascending");
            w.local[size_t(targets[row])] = int32_t(row);
            w.nodes.push_back(int32_t(targets[row]));
        }
        w.hops.assign({0, count});
        w.blocks.clear();
        if (is_poisson)
            add_layers(w, Poisson(seed, stream, index));
        else
            add_layers(w, WithoutReplacement(seed, stream, index));
        for (const int32_t v : w.nodes) w.local[size_t(v)] = NOBODY;
    }

    template <class Pick>
    void add_layers(Neighbourhood& w, Pick pick) const {
        for (auto fanout = fanouts.rbegin(); fanout != fanouts.rend(); ++fanout) {
            Block block;
            block.n = int64_t(w.nodes.size());
            pick_neighbours(w, block, pick, *fanout);
            add_hop(w);
            block.m = int64_t(w.nodes.size());
            number_columns(w, block);
            w.blocks.push_back(std::move(block));
        }
    }

    // The nonzeros of each row that are taken, and bits of their nodes.
    template <class Pick>
    void pick_neighbours(Neighbourhood& w, Block& block, Pick& pick, int64_t fanout) const {
        const int64_t *p = indptr.data(), n = block.n;
        const int32_t *j = indices.data(), *node = w.nodes.data();
        uint64_t* bits = w.bits.data();
        uint8_t* touched = w.touched.data();
        int64_t e = 0;
        w.indptr.resize(size_t(n) + 1);
        w.indptr[0] = 0;
        for (int64_t row = 0; row < n; ++row) {
            if (row + 2 * ROWS_AHEAD < n) __builtin_prefetch(p + node[row + 2 * ROWS_AHEAD]);
            if (row + ROWS_AHEAD < n) prefetch_row(p, j, node[row + ROWS_AHEAD]);
            const int64_t begin = p[node[row]];
            const int32_t degree = int32_t(p[node[row] + 1] - begin);
            if (int64_t(w.place.size()) < e + degree) {  // room for all, as LABOR may take them
                w.place.resize(size_t(2 * (e + degree)));
                w.column.resize(w.place.size());
            }
            int64_t* place = w.place.data();
            int32_t* column = w.column.data();
            pick(j + begin, degree, fanout, [&](int32_t k) {
                const int32_t v = j[begin + k];
                place[e] = begin + k;
                column[e++] = v;
                bits[v >> 6] |= uint64_t(1) << (v & 63);
                touched[size_t(v) / (64 * WORDS)] = 1;
            });
            w.indptr[row + 1] = e;
            block.is_scaled |= fanout != ALL && degree > fanout;
        }
    }

    // Gives rows to the nodes that were picked and have none, ascending.
    static void add_hop(Neighbourhood& w) {
        int32_t* local = w.local.data();
        for (size_t run = 0; run < w.touched.size(); ++run) {
            if (!w.touched[run]) continue;
            size_t k = w.nodes.size();
            w.nodes.resize(k + 64 * WORDS);
            for (size_t word = run * WORDS; word < (run + 1) * WORDS; ++word) {
                for (uint64_t left = w.bits[word]; left; left &= left - 1) {
                    const int32_t v = int32_t(word * 64) + __builtin_ctzll(left);
                    const bool is_fresh = local[v] == NOBODY;
                    w.nodes[k] = v;
                    local[v] = is_fresh ? int32_t(k) : local[v];
                    k += is_fresh;
                }
                w.bits[word] = 0;
            }
            w.nodes.resize(k);
            w.touched[run] = 0;
        }
        w.hops.push_back(int64_t(w.nodes.size()));
    }

    // Replaces the columns, which are nodes, by the rows of these nodes, and sorts each row. Within a hop ascending ids
    // are ascending rows, so it is enough to put the hops in order.
    void number_columns(Neighbourhood& w, Block& block) const {
        const int64_t n = block.n, e = w.indptr[size_t(n)];
        block.indptr = Owned<int64_t>(n + 1);
        block.indices = Owned<int32_t>(e + 1);  // with room for one that is not taken
        block.place = Owned<int64_t>(e + 1);
        block.indices.size = block.place.size = e;
        std::copy_n(w.indptr.data(), n + 1, block.indptr.data.get());
        int32_t *column = w.column.data(), *indices = block.indices.data.get();
        const int32_t* local = w.local.data();
        int64_t *place = w.place.data(), *places = block.place.data.get(), to = 0;
        for (int64_t row = 0; row < n; ++row) {
            const int64_t begin = w.indptr[size_t(row)], end = w.indptr[size_t(row) + 1];
            for (int64_t k = begin; k < end; ++k) column[k] = local[column[k]];
            for (size_t hop = 0; to < end; ++hop) {
                const uint32_t first = uint32_t(w.hops[hop]), rows = uint32_t(w.hops[hop + 1]) - first;
                for (int64_t k = begin; k < end; ++k) {  // without a branch: an entry that is not taken is overwritten
                    indices[to] = column[k];
                    places[to] = place[k];
                    to += uint32_t(column[k]) - first < rows;
                }
            }
        }
        if (block.is_scaled) scale_rows(w, block);
    }

    // deg / drawn for each nonzero, or deg / fan-out with LABOR, whose number of neighbours is random: its expectation.
    void scale_rows(const Neighbourhood& w, Block& block) const {
        const int64_t* p = indptr.data();
        const int64_t fanout = fanouts[fanouts.size() - w.blocks.size() - 1];
        block.scale = Owned<float>(w.indptr[size_t(block.n)]);
        for (int64_t row = 0; row < block.n; ++row) {
            const int64_t degree = p[w.nodes[row] + 1] - p[w.nodes[row]];
            const float scale = fanout == ALL || degree <= fanout ? 1.0f : float(double(degree) / double(fanout));
            std::fill(block.scale.data.get() + w.indptr[row], block.scale.data.get() + w.indptr[row + 1], scale);
        }
    }

    const Array<int64_t> indptr;
    const Array<int32_t> indices;
    const std::vector<int64_t> fanouts;
    const bool is_poisson;
    Workspaces<Neighbourhood> workspaces;
};

static Array<uint64_t> node_numbers(uint64_t seed, uint64_t stream, uint64_t index, Array<int64_t> nodes) {
    Array<uint64_t> out(nodes.size());
    const NodeNumbers number(seed, stream, index);
    for (int64_t k = 0; k < nodes.size(); ++k) out.mutable_data()[k] = number(nodes.data()[k]);
    return out;
}

void define_blocks(nb::module_& m) {
    m.def("node_numbers", &node_numbers, "64 random bits for each node, a function of (seed, stream, index, node)");
    nb::class_<Blocks>(m, "Blocks", "sampled neighbours of targets, a block for each layer")
        .def(nb::init<Array<int64_t>, Array<int32_t>, std::vector<int64_t>, bool>())
        .def("draw", &Blocks::draw);
}

}  // namespace spgnn

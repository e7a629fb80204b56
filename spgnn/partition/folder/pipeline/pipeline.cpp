// The loops of spgnn.partition.folder.pipeline, checked and bound. Python's lock is released in each.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "../../../native/arrays.h"
#include "../../stream/bind.h"
#include "halo.h"
#include "rows.h"
#include "sums.h"

namespace py = pybind11;
using namespace spgnn::pipeline;
namespace stream = spgnn::stream;

namespace {

using spgnn::Array;
using spgnn::require;

template <class T>
int64_t size_of(const Array<T>& values) {
    require(values.ndim() == 1, "expected a vector");
    return values.size();
}

// An array on memory of a C++ object, valid until the object changes.
template <class T, class Vector>
py::array view(const Vector& values, int64_t size, py::handle owner) {
    return py::array_t<T>(py::ssize_t(size), reinterpret_cast<const T*>(values.data()), owner);
}

template <class T>
py::array_t<T> array_of(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    py::capsule owner(kept, [](void* v) { delete static_cast<std::vector<T>*>(v); });
    return py::array_t<T>(py::ssize_t(kept->size()), kept->data(), owner);
}

Use use_of(const std::string& edges) {
    require(edges == "undirected" || edges == "directed" || edges == "reversed",
            "edges must be undirected, directed or reversed");
    return edges == "undirected" ? UNDIRECTED : edges == "directed" ? DIRECTED : REVERSED;
}

// Place of each node in the order by part, by id inside a part, (N,) uint32.
py::array_t<uint32_t> ranks(const Array<int32_t>& owner, int64_t k) {
    const int64_t n = size_of(owner);
    py::array_t<uint32_t> rank(n);
    const int32_t* p = owner.data();
    uint32_t* out = rank.mutable_data();
    py::gil_scoped_release free;
    std::vector<int64_t> next(k + 1);
    for (int64_t v = 0; v < n; ++v) {
        require(p[v] >= 0 && p[v] < k, "an owner is not a part");
        ++next[p[v] + 1];
    }
    for (int64_t part = 0; part < k; ++part) next[part + 1] += next[part];
    for (int64_t v = 0; v < n; ++v) out[v] = uint32_t(next[p[v]]++);
    return rank;
}

// values[v] at place rank[v].
py::array_t<uint32_t> in_rank_order(const Array<uint32_t>& rank, const Array<uint32_t>& values) {
    const int64_t n = size_of(rank);
    require(size_of(values) == n, "ranks and values must be as many");
    py::array_t<uint32_t> out(n);
    uint32_t* o = out.mutable_data();
    for (int64_t v = 0; v < n; ++v) {
        require(rank.data()[v] < n, "a rank is out of range");
        o[rank.data()[v]] = values.data()[v];
    }
    return out;
}

// Bounds of buckets: ranges of ranks that stay inside a part and have at most `most` entries, or one row.
std::vector<int64_t> bucket_bounds(const Array<uint32_t>& counts, const Array<int64_t>& part_ends, int64_t most) {
    const int64_t n = size_of(counts);
    require(size_of(part_ends) > 0 && part_ends.data()[part_ends.size() - 1] == n,
            "part_ends must end at the number of rows");
    std::vector<int64_t> bounds(1, 0);
    int64_t rank = 0;
    for (int64_t p = 0; p < part_ends.size(); ++p) {
        const int64_t end = part_ends.data()[p];
        require(end >= rank && end <= n, "part_ends must rise");
        int64_t entries = 0;
        for (; rank < end; ++rank) {
            const int64_t more = counts.data()[rank];
            if (rank > bounds.back() && entries + more > most) bounds.push_back(rank), entries = 0;
            entries += more;
        }
        if (end > bounds.back()) bounds.push_back(end);
    }
    return bounds;
}

// Columns of consecutive rows that come part after part: row order[i] is the i-th that came.
py::array_t<uint32_t> place_rows(const Array<uint32_t>& lengths, const Array<int64_t>& order,
                                 const Array<uint32_t>& columns) {
    const int64_t rows = size_of(lengths);
    require(size_of(order) == rows && columns.ndim() == 1, "lengths and order must be as many");
    py::array_t<uint32_t> out(columns.size());
    uint32_t* o = out.mutable_data();
    py::gil_scoped_release free;
    std::vector<int64_t> start(rows + 1);
    for (int64_t i = 0; i < rows; ++i) start[i + 1] = start[i] + lengths.data()[i];
    require(start[rows] == columns.size(), "rows have another number of columns than came");
    const uint32_t* column = columns.data();
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = order.data()[i];
        require(row >= 0 && row < rows && column + lengths.data()[row] <= columns.data() + columns.size(),
                "order is not one of the rows");
        std::copy(column, column + lengths.data()[row], o + start[row]);
        column += lengths.data()[row];
    }
    return out;
}

void define_rows(py::module_& m) {
    auto counts = py::class_<RowCounts>(m, "RowCounts");
    counts.def(py::init([](int64_t n, int64_t most, const std::string& edges) {
                   return std::make_unique<RowCounts>(n, most, use_of(edges));
               }),
               py::arg("n"), py::arg("most"), py::arg("edges"));
    stream::add_pass(counts);
    counts.def("counts", [](py::object self) {
        auto& c = py::cast<RowCounts&>(self);
        return view<uint32_t>(c.degree, int64_t(c.degree.size()), self);
    });

    auto spill = py::class_<Spill>(m, "Spill");
    spill.def(py::init([](const Array<uint32_t>& rank, std::vector<int64_t> bounds, const std::string& edges,
                          int64_t capacity) {
                  const int64_t n = size_of(rank);
                  require(bounds.size() >= 1 && bounds.front() == 0 && bounds.back() == n && capacity > 0,
                          "bounds must rise from 0 to the number of rows");
                  for (size_t b = 1; b < bounds.size(); ++b)
                      require(bounds[b - 1] < bounds[b], "bounds must rise from 0 to the number of rows");
                  for (int64_t v = 0; v < n; ++v) require(rank.data()[v] < n, "a rank is out of range");
                  return std::make_unique<Spill>(rank.data(), n, std::move(bounds), use_of(edges), capacity);
              }),
              py::arg("rank").noconvert(), py::arg("bounds"), py::arg("edges"), py::arg("capacity"),
              py::keep_alive<1, 2>());
    stream::add_pass(spill);
    spill.def_property_readonly("room", &Spill::room).def_property_readonly("size", &Spill::size);
    spill.def("sort", [](py::object self) {
        auto& s = py::cast<Spill&>(self);
        const int64_t size = s.size();
        {
            py::gil_scoped_release free;
            s.sort();
        }
        return view<uint64_t>(s.sorted(), size, self);
    });
    spill.def("offsets", [](Spill& self) { return self.offsets(); });

    auto bucket = py::class_<Bucket>(m, "Bucket");
    bucket.def(py::init([](int64_t first_rank, const Array<uint32_t>& counts, int64_t n) {
                   return std::make_unique<Bucket>(first_rank, counts.data(), size_of(counts), n);
               }),
               py::arg("first_rank"), py::arg("counts").noconvert(), py::arg("n"));
    bucket.def("finish", [](py::object self) {
        auto& b = py::cast<Bucket&>(self);
        {
            py::gil_scoped_release free;
            b.finish();
        }
        return py::make_tuple(view<uint32_t>(b.lengths, int64_t(b.lengths.size()), self),
                              view<uint32_t>(b.columns, int64_t(b.columns.size()), self));
    });
    auto wide = py::class_<WideRow>(m, "WideRow").def(py::init<int64_t, int64_t>(), py::arg("rank"), py::arg("n"));
    wide.def("take", [](WideRow& self, int64_t most) { return array_of(self.take(most)); }, py::arg("most"));
    auto entries = [](auto& type) {
        using T = typename std::decay_t<decltype(type)>::type;
        type.def(
            "add",
            [](T& self, const Array<uint64_t>& entries) {
                const int64_t size = size_of(entries);
                py::gil_scoped_release free;
                self.add(entries.data(), size);
            },
            py::arg("entries").noconvert());
    };
    entries(bucket);
    entries(wide);
    m.def("ranks", &ranks, py::arg("owner").noconvert(), py::arg("k"));
    m.def("in_rank_order", &in_rank_order, py::arg("rank").noconvert(), py::arg("values").noconvert());
    m.def("bucket_bounds", &bucket_bounds, py::arg("counts").noconvert(), py::arg("part_ends").noconvert(),
          py::arg("most"));
    m.def("place_rows", &place_rows, py::arg("lengths").noconvert(), py::arg("order").noconvert(),
          py::arg("columns").noconvert());
}

void define_halo(py::module_& m) {
    auto reads = py::class_<Reads>(m, "Reads");
    reads.def(
        py::init([](const Array<int32_t>& owner) { return std::make_unique<Reads>(owner.data(), size_of(owner)); }),
        py::arg("owner").noconvert(), py::keep_alive<1, 2>());
    reads.def("begin", &Reads::begin, py::arg("part")).def_readonly("cut", &Reads::cut);
    reads.def(
        "add",
        [](Reads& self, const Array<uint32_t>& columns) {
            const int64_t size = size_of(columns);
            py::gil_scoped_release free;
            self.add(columns.data(), size);
        },
        py::arg("columns").noconvert());
    reads.def(
        "ids",
        [](const Reads& self, int64_t k) {  // (g,) rising, and how many each part owns
            py::array_t<int64_t> ids(self.read().count()), sent(k);
            std::fill(sent.mutable_data(), sent.mutable_data() + k, 0);
            int64_t *out = ids.mutable_data(), *rows = sent.mutable_data();
            py::gil_scoped_release free;
            self.read().each([&](int64_t v) {
                require(self.owner(v) >= 0 && self.owner(v) < k, "an owner is not a part");
                *out++ = v;
                ++rows[self.owner(v)];
            });
            py::gil_scoped_acquire held;
            return py::make_tuple(ids, sent);
        },
        py::arg("k"));

    auto reach = py::class_<Reach>(m, "Reach");
    reach.def(py::init([](const Array<int32_t>& owner, int32_t first) {
                  return std::make_unique<Reach>(owner.data(), size_of(owner), first);
              }),
              py::arg("owner").noconvert(), py::arg("first"));
    reach.def(
        "hold",
        [](Reach& self, int part, const Array<int64_t>& ids) {
            require(part >= 0 && part < 64, "part must be from 0 to 63");
            self.hold(part, ids.data(), size_of(ids));
        },
        py::arg("part"), py::arg("ids").noconvert());
    reach.def(
        "spread",
        [](Reach& self, int64_t first_row, const Array<uint32_t>& lengths, const Array<uint32_t>& columns) {
            const int64_t rows = size_of(lengths), size = size_of(columns);
            require(first_row >= 0 && first_row + rows <= self.nodes(), "rows are out of range");
            for (int64_t e = 0; e < size; ++e) require(columns.data()[e] < self.nodes(), "a column is out of range");
            py::gil_scoped_release free;
            self.spread(first_row, lengths.data(), rows, columns.data(), size);
        },
        py::arg("first_row"), py::arg("lengths").noconvert(), py::arg("columns").noconvert());
    reach.def(
        "added",
        [](const Reach& self, int part) {
            require(part >= 0 && part < 64, "part must be from 0 to 63");
            return array_of(self.added(part));
        },
        py::arg("part"));
    reach.def("next_hop", &Reach::next_hop);
}

void define_sums(py::module_& m) {
    auto sums = py::class_<Columns>(m, "Columns");
    sums.def(py::init<int64_t, bool>(), py::arg("n"), py::arg("is_symmetric"));
    sums.def(
        "add",
        [](Columns& self, int64_t first_row, const Array<uint32_t>& lengths, const Array<uint32_t>& columns) {
            const int64_t rows = size_of(lengths), size = size_of(columns);
            py::gil_scoped_release free;
            self.add(first_row, lengths.data(), rows, columns.data(), size);
        },
        py::arg("first_row"), py::arg("lengths").noconvert(), py::arg("columns").noconvert());
    sums.def("counts", [](py::object self) {
        auto& c = py::cast<Columns&>(self);
        return view<uint32_t>(c.counts, int64_t(c.counts.size()), self);
    });
    sums.def("has_loop", [](py::object self) {
        auto& c = py::cast<Columns&>(self);
        return view<uint8_t>(c.has_loop, int64_t(c.has_loop.size()), self);
    });
}

}  // namespace

PYBIND11_MODULE(_pipeline, m) {
    m.doc() = "Loops of spgnn.partition.folder.pipeline; it checks what they are given.";
    define_rows(m);
    define_halo(m);
    define_sums(m);
}

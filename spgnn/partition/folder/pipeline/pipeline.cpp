// The loops of spgnn.partition.folder.pipeline, checked and bound. Python's lock is released in each.

#define SPGNN_MODULE

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "../../../native/arrays.h"
#include "../../stream/bind.h"
#include "../../stream/edges.h"
#include "rows.h"

namespace nb = nanobind;
using namespace spgnn::pipeline;
namespace stream = spgnn::stream;

namespace {

// The columns that one part reads from others, a bit per node, and the number of cut nonzeros.
class Reads {
  public:
    Reads(const int32_t* owner, int64_t n) : owner_(owner), n_(n), read_(n) {}

    void begin(int32_t part) {
        part_ = part;
        cut = 0;
        read_.clear();
    }

    void add(const Id* columns, int64_t size) {
        for (int64_t e = 0; e < size; ++e) {
            const Id column = columns[e];
            if (int64_t(column) >= n_) throw std::invalid_argument("a column is out of range");
            const bool is_foreign = owner_[column] != part_;
            read_.add(column, is_foreign);
            cut += is_foreign;
        }
    }

    const stream::Bits& read() const { return read_; }

    int32_t owner(int64_t v) const { return owner_[v]; }

    int64_t cut = 0;

  private:
    const int32_t* owner_;
    int64_t n_;
    stream::Bits read_;
    int32_t part_ = -1;
};

// The nodes that up to 64 parts hold: bit p of a node is set if part first + p holds it. A hop adds the columns of all
// held rows.
class Reach {
  public:
    Reach(const int32_t* owner, int64_t n, int32_t first) : before_(n), after_(n) {
        for (int64_t v = 0; v < n; ++v) {
            const int64_t p = int64_t(owner[v]) - first;
            if (p >= 0 && p < 64) before_[v] = after_[v] = uint64_t(1) << p;
        }
    }

    void hold(int part, const int64_t* ids, int64_t size) {
        for (int64_t i = 0; i < size; ++i) {
            if (ids[i] < 0 || ids[i] >= int64_t(before_.size())) throw std::invalid_argument("a node is out of range");
            before_[ids[i]] |= uint64_t(1) << part;
            after_[ids[i]] |= uint64_t(1) << part;
        }
    }

    // Rows first_row, first_row + 1, ... with their numbers of columns.
    void spread(int64_t first_row, const uint32_t* lengths, int64_t rows, const Id* columns, int64_t size) {
        const Id* column = columns;
        for (int64_t i = 0; i < rows; ++i) {
            const uint64_t held = before_[first_row + i];
            const Id* end = column + lengths[i];
            if (end > columns + size) throw std::invalid_argument("rows have more columns than there are");
            for (; column < end; ++column) after_[*column] |= held;
        }
    }

    // The nodes that this hop added to a part.
    std::vector<int64_t> added(int part) const {
        std::vector<int64_t> ids;
        for (size_t v = 0; v < after_.size(); ++v)
            if ((after_[v] & ~before_[v]) >> part & 1) ids.push_back(int64_t(v));
        return ids;
    }

    void next_hop() { std::copy(after_.begin(), after_.end(), before_.begin()); }

    int64_t nodes() const { return int64_t(before_.size()); }

  private:
    Large<uint64_t> before_, after_;
};

using spgnn::Array;
using spgnn::array_of;
using spgnn::require;

template <class T>
int64_t size_of(const Array<T>& values) {
    require(values.ndim() == 1, "expected a vector");
    return values.size();
}

// An array on memory of a C++ object, valid until the object changes.
template <class T, class Vector>
Array<T> view(const Vector& values, int64_t size, nb::handle owner) {
    return Array<T>(reinterpret_cast<const T*>(values.data()), size, nb::borrow(owner));
}

Use use_of(const std::string& edges) {
    require(edges == "undirected" || edges == "directed" || edges == "reversed",
            "edges must be undirected, directed or reversed");
    return edges == "undirected" ? UNDIRECTED : edges == "directed" ? DIRECTED : REVERSED;
}

// Columns of consecutive rows that come part after part: row order[i] is the i-th that came.
Array<uint32_t> place_rows(const Array<uint32_t>& lengths, const Array<int64_t>& order,
                           const Array<uint32_t>& columns) {
    const int64_t rows = size_of(lengths);
    require(size_of(order) == rows && columns.ndim() == 1, "lengths and order must be as many");
    Array<uint32_t> out(columns.size());
    uint32_t* o = out.mutable_data();
    nb::gil_scoped_release free;
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

void define_rows(nb::module_& m) {
    auto counts = nb::class_<RowCounts>(m, "RowCounts");
    counts.def(
        "__init__",
        [](RowCounts* self, int64_t n, int64_t most, const std::string& edges) {
            new (self) RowCounts(n, most, use_of(edges));
        },
        nb::arg("n"), nb::arg("most"), nb::arg("edges"));
    stream::add_pass(counts);
    counts.def("counts", [](nb::object self) {
        auto& c = nb::cast<RowCounts&>(self);
        return view<uint32_t>(c.degree, int64_t(c.degree.size()), self);
    });

    auto spill = nb::class_<Spill>(m, "Spill");
    spill.def(
        "__init__",
        [](Spill* self, const Array<uint32_t>& rank, std::vector<int64_t> bounds, const std::string& edges,
           int64_t capacity) {
            const int64_t n = size_of(rank);
            require(bounds.size() >= 1 && bounds.front() == 0 && bounds.back() == n && capacity > 0,
                    "bounds must rise from 0 to the number of rows");
            for (size_t b = 1; b < bounds.size(); ++b)
                require(bounds[b - 1] < bounds[b], "bounds must rise from 0 to the number of rows");
            for (int64_t v = 0; v < n; ++v) require(rank.data()[v] < n, "a rank is out of range");
            new (self) Spill(rank.data(), n, std::move(bounds), use_of(edges), capacity);
        },
        nb::arg("rank"), nb::arg("bounds"), nb::arg("edges"), nb::arg("capacity"), nb::keep_alive<1, 2>());
    stream::add_pass(spill);
    spill.def_prop_ro("room", &Spill::room).def_prop_ro("size", &Spill::size);
    spill.def("sort", [](nb::object self) {
        auto& s = nb::cast<Spill&>(self);
        const int64_t size = s.size();
        {
            nb::gil_scoped_release free;
            s.sort();
        }
        return view<uint64_t>(s.sorted(), size, self);
    });
    spill.def("offsets", [](Spill& self) { return self.offsets(); });

    auto bucket = nb::class_<Bucket>(m, "Bucket");
    bucket.def(
        "__init__",
        [](Bucket* self, int64_t first_rank, const Array<uint32_t>& counts, int64_t n) {
            new (self) Bucket(first_rank, counts.data(), size_of(counts), n);
        },
        nb::arg("first_rank"), nb::arg("counts"), nb::arg("n"));
    bucket.def("finish", [](nb::object self) {
        auto& b = nb::cast<Bucket&>(self);
        {
            nb::gil_scoped_release free;
            b.finish();
        }
        return nb::make_tuple(view<uint32_t>(b.lengths, int64_t(b.lengths.size()), self),
                              view<uint32_t>(b.columns, int64_t(b.columns.size()), self));
    });
    bucket.def(
        "add",
        [](Bucket& self, const Array<uint64_t>& entries) {
            const int64_t size = size_of(entries);
            nb::gil_scoped_release free;
            self.add(entries.data(), size);
        },
        nb::arg("entries"));
    m.def("place_rows", &place_rows, nb::arg("lengths"), nb::arg("order"), nb::arg("columns"));
}

void define_halo(nb::module_& m) {
    auto reads = nb::class_<Reads>(m, "Reads");
    reads.def(
        "__init__", [](Reads* self, const Array<int32_t>& owner) { new (self) Reads(owner.data(), size_of(owner)); },
        nb::arg("owner"), nb::keep_alive<1, 2>());
    reads.def("begin", &Reads::begin, nb::arg("part")).def_ro("cut", &Reads::cut);
    reads.def(
        "add",
        [](Reads& self, const Array<uint32_t>& columns) {
            const int64_t size = size_of(columns);
            nb::gil_scoped_release free;
            self.add(columns.data(), size);
        },
        nb::arg("columns"));
    reads.def(
        "ids",
        [](const Reads& self, int64_t k) {  // (g,) rising, and how many each part owns
            Array<int64_t> ids(self.read().count()), sent(k);
            std::fill(sent.mutable_data(), sent.mutable_data() + k, 0);
            int64_t *out = ids.mutable_data(), *rows = sent.mutable_data();
            nb::gil_scoped_release free;
            self.read().each([&](int64_t v) {
                require(self.owner(v) >= 0 && self.owner(v) < k, "an owner is not a part");
                *out++ = v;
                ++rows[self.owner(v)];
            });
            nb::gil_scoped_acquire held;
            return nb::make_tuple(ids, sent);
        },
        nb::arg("k"));

    auto reach = nb::class_<Reach>(m, "Reach");
    reach.def(
        "__init__",
        [](Reach* self, const Array<int32_t>& owner, int32_t first) {
            new (self) Reach(owner.data(), size_of(owner), first);
        },
        nb::arg("owner"), nb::arg("first"));
    reach.def(
        "hold",
        [](Reach& self, int part, const Array<int64_t>& ids) {
            require(part >= 0 && part < 64, "part must be from 0 to 63");
            self.hold(part, ids.data(), size_of(ids));
        },
        nb::arg("part"), nb::arg("ids"));
    reach.def(
        "spread",
        [](Reach& self, int64_t first_row, const Array<uint32_t>& lengths, const Array<uint32_t>& columns) {
            const int64_t rows = size_of(lengths), size = size_of(columns);
            require(first_row >= 0 && first_row + rows <= self.nodes(), "rows are out of range");
            for (int64_t e = 0; e < size; ++e) require(columns.data()[e] < self.nodes(), "a column is out of range");
            nb::gil_scoped_release free;
            self.spread(first_row, lengths.data(), rows, columns.data(), size);
        },
        nb::arg("first_row"), nb::arg("lengths"), nb::arg("columns"));
    reach.def(
        "added",
        [](const Reach& self, int part) {
            require(part >= 0 && part < 64, "part must be from 0 to 63");
            return array_of(self.added(part));
        },
        nb::arg("part"));
    reach.def("next_hop", &Reach::next_hop);
}

}  // namespace

NB_MODULE(_pipeline, m) {
    spgnn::import_numpy();
    m.doc() = "Loops of spgnn.partition.folder.pipeline; it checks what they are given.";
    define_rows(m);
    define_halo(m);
}

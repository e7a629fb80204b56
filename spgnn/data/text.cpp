// Numbers from lines of text: the edges of an edge list, or all numbers of each line. Python's lock is released
// meanwhile.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace {

// Where reading stopped, and why; line is -1 where it did not.
struct Fault {
    int64_t line = -1;      // 0-based line of the block
    const char* what = "";  // columns, id, range or number
    int64_t column = 0;     // of the token; for columns, how many there are
    const char* text = "";  // of the token
    int64_t size = 0;
};

struct Token {
    const char* start;
    const char* stop;
};

bool is_separator(char c) {
    return c == ' ' || c == '\t' || c == ',' || c == ';' || c == '\r' || c == '\v' || c == '\f';
}

// Whole lines of a block, one after another, as tokens; NetworkX's `{}`, an edge without attributes, is none.
class Lines {
  public:
    Lines(const char* text, int64_t size, const std::string& marks) : at_(text), end_(text + size), marks_(marks) {}

    std::vector<Token> tokens;
    int64_t line = -1;
    bool is_comment = false;

    bool next() {
        if (at_ == end_) return false;
        ++line;
        tokens.clear();
        const char* found = static_cast<const char*>(std::memchr(at_, '\n', end_ - at_));
        const char* stop = found ? found : end_;
        for (const char* c = at_; c < stop;) {
            if (is_separator(*c)) {
                ++c;
                continue;
            }
            const char* start = c;
            while (c < stop && !is_separator(*c)) ++c;
            if (c - start != 2 || start[0] != '{' || start[1] != '}') tokens.push_back({start, c});
        }
        is_comment = !tokens.empty() && marks_.find(*tokens[0].start) != std::string::npos;
        at_ = found ? found + 1 : end_;
        return true;
    }

  private:
    const char *at_, *end_;
    std::string marks_;
};

// An integer of at most 18 digits, which may be written 7.0; false for anything else.
bool read_id(Token token, int64_t& value) {
    const char* c = token.start;
    value = 0;
    for (; c < token.stop && *c >= '0' && *c <= '9'; ++c) {
        if (c - token.start == 18) return false;
        value = 10 * value + (*c - '0');
    }
    if (c == token.start) return false;
    if (c < token.stop && *c == '.')
        for (++c; c < token.stop && *c == '0';) ++c;
    return c == token.stop;
}

bool read_number(Token token, double& value) {
    const char* start = token.start + (*token.start == '+');
    const auto [stop, error] = std::from_chars(start, token.stop, value);
    const bool is_whole = stop == token.stop && start < token.stop && *start != '+';
    if (is_whole && error == std::errc::result_out_of_range) {  // as strtod has it: 0, or too large
        value = std::strtod(std::string(start, token.stop).c_str(), nullptr);
        return std::isfinite(value);
    }
    return is_whole && error == std::errc() && std::isfinite(value);
}

struct Columns {
    int64_t count, source, target, weight;  // of a line, and which of them; weight -1: none is read
    int64_t low, high;                      // ids
};

struct Edges {
    std::vector<int64_t> ids;  // u, v, u, v, ...
    std::vector<double> weights;
    Fault fault;
};

Fault fault_of(const Lines& lines, const char* what, int64_t column, Token token) {
    return {lines.line, what, column, token.start, token.stop - token.start};
}

Edges read_edges(const char* text, int64_t size, const Columns& columns, const std::string& marks) {
    Edges edges;
    for (Lines lines(text, size, marks); lines.next();) {
        if (lines.tokens.empty() || lines.is_comment) continue;
        const auto& token = lines.tokens;
        if (static_cast<int64_t>(token.size()) != columns.count) {
            edges.fault = fault_of(lines, "columns", token.size(), {token[0].start, token.back().stop});
            return edges;
        }
        for (const int64_t column : {columns.source, columns.target}) {
            int64_t id;
            const bool is_id = read_id(token[column], id);
            if (!is_id || id < columns.low || id > columns.high) {
                edges.fault = fault_of(lines, is_id ? "range" : "id", column, token[column]);
                return edges;
            }
            edges.ids.push_back(id);
        }
        if (columns.weight < 0) continue;
        double value;
        if (!read_number(token[columns.weight], value)) {
            edges.fault = fault_of(lines, "number", columns.weight, token[columns.weight]);
            return edges;
        }
        edges.weights.push_back(value);
    }
    return edges;
}

struct Rows {
    std::vector<double> values;
    std::vector<int64_t> counts;  // numbers of each line; -1 for a comment
    Fault fault;
};

Rows read_rows(const char* text, int64_t size, const std::string& marks) {
    Rows rows;
    for (Lines lines(text, size, marks); lines.next();) {
        rows.counts.push_back(lines.is_comment ? -1 : lines.tokens.size());
        if (lines.is_comment) continue;
        for (size_t column = 0; column < lines.tokens.size(); ++column) {
            double value;
            if (!read_number(lines.tokens[column], value)) {
                rows.fault = fault_of(lines, "number", column, lines.tokens[column]);
                return rows;
            }
            rows.values.push_back(value);
        }
    }
    return rows;
}

template <class T>
nb::bytes bytes_of(const std::vector<T>& values) {
    return nb::bytes(values.data(), sizeof(T) * values.size());
}

nb::object tuple_of(const Fault& fault) {
    if (fault.line < 0) return nb::none();
    return nb::make_tuple(fault.line, fault.what, fault.column, nb::bytes(fault.text, fault.size));
}

// Call read(text, size) on the bytes of a block, without Python's lock.
template <class Read>
auto unlocked(const nb::bytes& block, Read read) {
    const char* text = block.c_str();
    const int64_t size = int64_t(block.size());
    nb::gil_scoped_release free;
    return read(text, size);
}

}  // namespace

NB_MODULE(_text, m) {
    m.doc() = "Numbers of lines of text for spgnn.data.readers.lines, which says where a bad line is.";
    // (ids u, v, u, v, ... as bytes of int64, weights as bytes of float64, None or a fault: line, what, column, text)
    m.def(
        "read_edges",
        [](const nb::bytes& block, int64_t count, int64_t source, int64_t target, int64_t weight, int64_t low,
           int64_t high, const std::string& marks) {
            const Columns columns{count, source, target, weight, low, high};
            const Edges edges =
                unlocked(block, [&](const char* text, int64_t size) { return read_edges(text, size, columns, marks); });
            return nb::make_tuple(bytes_of(edges.ids), bytes_of(edges.weights), tuple_of(edges.fault));
        },
        nb::arg("block"), nb::arg("count"), nb::arg("source"), nb::arg("target"), nb::arg("weight"), nb::arg("low"),
        nb::arg("high"), nb::arg("marks"));
    // (values as bytes of float64, counts of each line as bytes of int64, None or a fault)
    m.def(
        "read_rows",
        [](const nb::bytes& block, const std::string& marks) {
            const Rows rows =
                unlocked(block, [&](const char* text, int64_t size) { return read_rows(text, size, marks); });
            return nb::make_tuple(bytes_of(rows.values), bytes_of(rows.counts), tuple_of(rows.fault));
        },
        nb::arg("block"), nb::arg("marks"));
}

// Pairs of ids from lines of text. Python's lock is released meanwhile.

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace py = pybind11;

namespace {

struct Lines {
    std::vector<int64_t> ids;  // u, v, u, v, ...
    int64_t bad_line = -1;     // 0-based line of the block at which reading stopped
    const char* expected = "";
    int64_t start = 0, stop = 0;  // bytes of that line
};

// Read lines `u v` or `u v weight`, separated by blanks, tabs or commas; lines that start with # or % are comments.
Lines read_lines(const char* text, int64_t size) {
    Lines lines;
    auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == ',' || c == '\r' || c == '\v' || c == '\f'; };
    int64_t at = 0;
    for (int64_t line = 0; at < size; ++line) {
        lines.start = at;
        int64_t id[2] = {0, 0};
        int columns = 0;
        const char* fault = nullptr;
        while (true) {
            while (at < size && is_blank(text[at])) ++at;
            if (at == size || text[at] == '\n') break;
            if (columns == 0 && (text[at] == '#' || text[at] == '%')) {
                while (at < size && text[at] != '\n') ++at;
                break;
            }
            int digits = 0;
            int64_t value = 0;
            const int64_t begin = at;
            for (; at < size && !is_blank(text[at]) && text[at] != '\n'; ++at) {
                if (columns >= 2 || fault) continue;
                if (text[at] < '0' || text[at] > '9' || ++digits > 18)
                    fault = "an id from 0 to 10^18 - 1";
                else
                    value = value * 10 + (text[at] - '0');
            }
            if (fault && text[begin] == '-') fault = "an id of 0 or more";
            if (fault) break;
            if (columns < 2) id[columns] = value;
            ++columns;
        }
        if (!fault && columns != 0 && columns != 2 && columns != 3)
            fault = "2 or 3 columns: source, target and perhaps a weight";
        if (fault) {
            while (at < size && text[at] != '\n') ++at;
            lines.bad_line = line;
            lines.expected = fault;
            lines.stop = at;
            return lines;
        }
        if (columns) lines.ids.push_back(id[0]), lines.ids.push_back(id[1]);
        ++at;
    }
    return lines;
}

}  // namespace

PYBIND11_MODULE(_text, m) {
    m.doc() = "Lines of text for spgnn.data.readers.edges, which says where a bad line is.";
    // (ids u, v, u, v, ... as bytes of int64, bad_line, expected, start, stop)
    m.def(
        "read_lines",
        [](const py::bytes& block) {
            char* text;
            py::ssize_t size;
            PyBytes_AsStringAndSize(block.ptr(), &text, &size);
            Lines lines;
            {
                py::gil_scoped_release free;
                lines = read_lines(text, size);
            }
            const py::bytes ids(reinterpret_cast<const char*>(lines.ids.data()), 8 * lines.ids.size());
            return py::make_tuple(ids, lines.bad_line, lines.expected, lines.start, lines.stop);
        },
        py::arg("block"));
}

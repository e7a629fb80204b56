// Rows packed for the wire and unpacked.

#include "parallel.h"
#define SPGNN_LOOPS "wire.h"
#include "isa.h"

namespace {

int format_of(const std::string& name) {
    const int format = name == "bfloat16"  ? base::BFLOAT16
                       : name == "float16" ? base::HALF
                       : name == "int8"    ? base::INT8
                                           : -1;
    require(format >= 0, "wire: the format is bfloat16, float16 or int8");
    return format;
}

void check(const py::array& X, const Array<uint8_t>& bytes, int format) {
    require(X.ndim() == 2 && bytes.ndim() == 2 && X.shape(0) == bytes.shape(0),
            "wire: a row of bytes for each row of numbers");
    require(bytes.shape(1) == (format == base::INT8 ? X.shape(1) + 4 : 2 * X.shape(1)),
            "wire: rows of 2 bytes a number, int8: 1 and a scale of 4");
}

template <class S>
void encode(const std::string& name, const Array<S>& X, Array<uint8_t>& out, const py::object& residual, int threads,
            const std::string& isa_name) {
    const int format = format_of(name);
    check(X, out, format);
    Array<float> kept;
    if (!residual.is_none()) {
        require(py::isinstance<Array<float>>(residual), "wire: the residual must be row-major and float32");
        kept = py::reinterpret_borrow<Array<float>>(residual);
        require(kept.ndim() == 2 && kept.shape(0) == X.shape(0) && kept.shape(1) == X.shape(1),
                "wire: the residual must have the shape of the rows");
    }
    const int64_t n = X.shape(0), F = X.shape(1);
    const S* x = X.data();
    float* r = residual.is_none() ? nullptr : kept.mutable_data();
    uint8_t* o = out.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(F)), threads, [&](int64_t begin, int64_t end, int64_t) {
#ifdef SPGNN_DISPATCH
        if (isa == 2) return avx512::encode_rows(avx512::Format(format), x, r, o, begin, end, F);
        if (isa == 1) return avx2::encode_rows(avx2::Format(format), x, r, o, begin, end, F);
#endif
        base::encode_rows(base::Format(format), x, r, o, begin, end, F);
    });
}

template <class S>
void decode(const std::string& name, const Array<uint8_t>& bytes, Array<S>& out, int threads,
            const std::string& isa_name) {
    const int format = format_of(name);
    check(out, bytes, format);
    const int64_t n = out.shape(0), F = out.shape(1);
    const uint8_t* b = bytes.data();
    S* o = out.mutable_data();
    const int isa = chosen_isa(isa_name);
    threads = chosen_threads(threads);
    py::gil_scoped_release unlocked;
    over_chunks(even(n, rows_a_chunk(F)), threads, [&](int64_t begin, int64_t end, int64_t) {
#ifdef SPGNN_DISPATCH
        if (isa == 2) return avx512::decode_rows(avx512::Format(format), b, o, begin, end, F);
        if (isa == 1) return avx2::decode_rows(avx2::Format(format), b, o, begin, end, F);
#endif
        base::decode_rows(base::Format(format), b, o, begin, end, F);
    });
}

template <class S>
void define(py::module_& m) {
    m.def("encode", &encode<S>, py::arg("format"), py::arg("X").noconvert(), py::arg("out").noconvert(),
          py::arg("residual") = py::none(), py::arg("threads") = 0, py::arg("isa") = "");
    m.def("decode", &decode<S>, py::arg("format"), py::arg("bytes").noconvert(), py::arg("out").noconvert(),
          py::arg("threads") = 0, py::arg("isa") = "");
}

}  // namespace

void define_wire(py::module_& m) {
    define<float>(m);
    define<double>(m);
    define<bfloat16>(m);
}

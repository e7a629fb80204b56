// NumPy arrays that bindings take and return, without conversion, and checks whose message becomes a ValueError.
//
// The file with NB_MODULE defines SPGNN_MODULE before it includes this, and calls import_numpy() first.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL spgnn_numpy
#ifndef SPGNN_MODULE
#define NO_IMPORT_ARRAY
#endif

#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace spgnn {

namespace nb = nanobind;

#ifdef SPGNN_MODULE
inline void import_numpy() {
    if (_import_array() < 0) throw nb::python_error();
    nb::set_leak_warnings(false);  // a thread that still runs when Python ends keeps its objects
}
#endif

inline void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

// An argument that may be None.
class Given : public nb::object {
    static bool is_any(PyObject*) { return true; }
    NB_OBJECT_DEFAULT(Given, nb::object, "object", is_any)
};

// A C-contiguous array of any type. Without one: a vector of length 0.
class AnyArray {
  public:
    // Whether an object is such an array; takes it then.
    bool take(nb::handle given) {
        if (!PyArray_Check(given.ptr()) || !PyArray_CHKFLAGS(of(given), NPY_ARRAY_CARRAY_RO)) return false;
        object_ = nb::borrow(given);
        return true;
    }

    int64_t ndim() const { return array() ? PyArray_NDIM(array()) : 1; }
    int64_t size() const { return array() ? PyArray_SIZE(array()) : 0; }
    int64_t itemsize() const { return array() ? PyArray_ITEMSIZE(array()) : 0; }
    int64_t shape(int64_t axis) const {
        require(axis < ndim(), "an array has too few dimensions");
        return array() ? PyArray_DIM(array(), int(axis)) : 0;
    }
    const void* bytes() const { return array() ? PyArray_DATA(array()) : nullptr; }
    void* mutable_bytes() const {
        require(!array() || PyArray_ISWRITEABLE(array()), "an array that is written to is read-only");
        return array() ? PyArray_DATA(array()) : nullptr;
    }
    const nb::object& object() const { return object_; }

  protected:
    static PyArrayObject* of(nb::handle given) { return reinterpret_cast<PyArrayObject*>(given.ptr()); }
    PyArrayObject* array() const { return of(object_); }

    nb::object object_;
};

// The character and the number by which NumPy knows a type.
template <class T>
constexpr char kind_of = std::is_same_v<T, bool>       ? 'b'
                         : std::is_floating_point_v<T> ? 'f'
                         : std::is_signed_v<T>         ? 'i'
                                                       : 'u';
template <class T>
constexpr int number_of = std::is_same_v<T, bool>     ? NPY_BOOL
                          : std::is_same_v<T, float>  ? NPY_FLOAT
                          : std::is_same_v<T, double> ? NPY_DOUBLE
                          : sizeof(T) == 1            ? NPY_UINT8
                          : sizeof(T) == 2            ? NPY_UINT16
                          : sizeof(T) == 4            ? (std::is_signed_v<T> ? NPY_INT32 : NPY_UINT32)
                                                      : (std::is_signed_v<T> ? NPY_INT64 : NPY_UINT64);

// A C-contiguous array of this very type.
template <class T>
class Array : public AnyArray {
  public:
    Array() = default;
    explicit Array(int64_t size) : Array({size}) {}
    Array(std::initializer_list<int64_t> shape) {
        std::vector<npy_intp> dims(shape);
        object_ = made(PyArray_SimpleNew(int(dims.size()), dims.data(), number_of<T>));
    }
    // A vector on memory that `owner` keeps.
    Array(const T* data, int64_t size, nb::object owner) {
        npy_intp dims[] = {size};
        object_ = made(PyArray_SimpleNewFromData(1, dims, number_of<T>, const_cast<T*>(data)));
        if (PyArray_SetBaseObject(array(), owner.release().ptr()) < 0) throw nb::python_error();
    }

    bool take(nb::handle given) {
        if (!PyArray_Check(given.ptr())) return false;
        PyArray_Descr* type = PyArray_DESCR(of(given));
        return type->kind == kind_of<T> && PyDataType_ELSIZE(type) == sizeof(T) && PyArray_ISNOTSWAPPED(of(given)) &&
               AnyArray::take(given);
    }

    const T* data() const { return static_cast<const T*>(bytes()); }
    T* mutable_data() const { return static_cast<T*>(mutable_bytes()); }

  private:
    static nb::object made(PyObject* array) {
        if (!array) throw nb::python_error();
        return nb::steal(array);
    }
};

template <class T>
bool has_shape(const Array<T>& M, int64_t rows, int64_t columns) {
    return M.ndim() == 2 && M.shape(0) == rows && M.shape(1) == columns;
}

// An array of this very type, contiguous.
template <class T>
Array<T> exactly(nb::handle given) {
    Array<T> array;
    require(array.take(given), "an array is of another type than the others, or not contiguous");
    return array;
}

// The same, or the empty array for None.
template <class T>
Array<T> exactly_or_none(nb::handle given) {
    return given.is_none() ? Array<T>() : exactly<T>(given);
}

// The data of an array of this type; null for None and for another type.
template <class T>
const T* data_or_null(nb::handle given) {
    Array<T> array;
    return array.take(given) ? array.data() : nullptr;
}

// f(pointer) of indices, int32 or int64.
template <class F>
auto on_indices(const AnyArray& indices, F f) {
    if (const auto* narrow = data_or_null<int32_t>(indices.object())) return f(narrow);
    const auto* wide = data_or_null<int64_t>(indices.object());
    require(wide != nullptr, "indices must be a contiguous vector of int32 or int64");
    return f(wide);
}

template <class Index>
void check_csr(const Array<int64_t>& indptr, const Array<Index>& indices, int64_t columns) {
    require(indptr.ndim() == 1 && indices.ndim() == 1 && indptr.size() > 0, "indptr and indices must be vectors");
    const int64_t *p = indptr.data(), n = indptr.size() - 1;
    require(p[0] == 0 && p[n] == indices.size(), "indptr must rise from 0 to the number of nonzeros");
    for (int64_t i = 0; i < n; ++i) require(p[i] <= p[i + 1], "indptr must rise from 0 to the number of nonzeros");
    const Index* j = indices.data();
    bool in_range = true;
    for (int64_t e = 0; e < indices.size(); ++e) in_range &= j[e] >= 0 && j[e] < columns;
    require(in_range, "a column index is out of range");
    require(n < std::numeric_limits<int32_t>::max() && columns < std::numeric_limits<int32_t>::max(),
            "2^31 rows or columns are too many");
}

// A new array with these values.
template <class T, class Memory>
Array<T> array_of(const std::vector<T, Memory>& values) {
    Array<T> array(int64_t(values.size()));
    std::copy(values.begin(), values.end(), array.mutable_data());
    return array;
}

// An array that NumPy will own; it is filled without Python's lock.
template <class T>
struct Owned {
    Owned() = default;
    explicit Owned(int64_t size) : data(new T[size_t(size)]), size(size) {}

    Array<T> release() {
        T* held = data.release();
        return Array<T>(held, size, nb::capsule(held, [](void* memory) noexcept { delete[] static_cast<T*>(memory); }));
    }

    std::unique_ptr<T[]> data;
    int64_t size = 0;
};

}  // namespace spgnn

namespace nanobind::detail {

template <>
struct has_arg_defaults<spgnn::Given> : std::true_type {};

template <>
struct type_caster<spgnn::AnyArray> {
    NB_TYPE_CASTER(spgnn::AnyArray, const_name("numpy.ndarray"))
    bool from_python(handle given, uint32_t, cleanup_list*) noexcept { return value.take(given); }
    static handle from_cpp(const spgnn::AnyArray& array, rv_policy, cleanup_list*) noexcept {
        return array.object().inc_ref();
    }
};

// What an error calls the type: "contiguous numpy.ndarray of i8".
template <class T>
struct type_caster<spgnn::Array<T>> {
    NB_TYPE_CASTER(spgnn::Array<T>,
                   const_name("contiguous numpy.ndarray of ") + const_name(spgnn::kind_of<T>) + const_name<sizeof(T)>())
    bool from_python(handle given, uint32_t, cleanup_list*) noexcept { return value.take(given); }
    static handle from_cpp(const spgnn::Array<T>& array, rv_policy, cleanup_list*) noexcept {
        return array.object().inc_ref();
    }
};

}  // namespace nanobind::detail

// Arrays that are filled without Python's lock and then handed to NumPy.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "samplers.h"

namespace spgnn {

// An array that NumPy will own; it is filled without Python's lock.
template <class T>
struct Owned {
    Owned() = default;
    explicit Owned(int64_t size) : data(new T[size_t(size)]), size(size) {}

    py::array_t<T> release() {
        T* held = data.release();
        return py::array_t<T>(size, held, py::capsule(held, [](void* memory) { delete[] static_cast<T*>(memory); }));
    }

    std::unique_ptr<T[]> data;
    int64_t size = 0;
};

}  // namespace spgnn

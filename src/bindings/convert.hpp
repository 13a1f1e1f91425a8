// What all bindings share: array types, and results as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "array.hpp"

namespace nb = nanobind;

namespace robustfd {

// Arguments are plain C-contiguous arrays; declare them with .noconvert(), so that nothing is copied silently.
template <class T> using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Result = nb::ndarray<nb::numpy, T>;

template <class T> Matrix<const T> matrix(const In2<T>& x) {
    return {x.data(), static_cast<Index>(x.shape(0)), static_cast<Index>(x.shape(1))};
}
template <class T> Matrix<T> matrix(const Out2<T>& x) {
    return {x.data(), static_cast<Index>(x.shape(0)), static_cast<Index>(x.shape(1))};
}
template <class A> Index length(const A& x) { return static_cast<Index>(x.shape(0)); }

// A NumPy array that owns the numbers of a vector.
template <class T> Result<T> numpy_array(std::vector<T> numbers, std::initializer_list<std::size_t> shape) {
    auto owned = std::make_unique<std::vector<T>>(std::move(numbers));
    T* data = owned->data();
    nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Result<T>(data, shape, owner);
}
template <class T> Result<T> numpy_array(std::vector<T> numbers) {
    const std::size_t n = numbers.size();
    return numpy_array(std::move(numbers), {n});
}

// What keeps the memory of a view alive.
inline nb::capsule owner_of(const std::shared_ptr<void>& memory) {
    auto owned = std::make_unique<std::shared_ptr<void>>(memory);
    return nb::capsule(owned.release(), [](void* p) noexcept { delete static_cast<std::shared_ptr<void>*>(p); });
}

inline void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

void ensure_blas();  // loads scipy's BLAS and LAPACK on first use

void bind_linalg(nb::module_& m);
void bind_lock(nb::module_& m);
void bind_one_row(nb::module_& m);
void bind_paper(nb::module_& m);
void bind_text(nb::module_& m);
void bind_untuned(nb::module_& m);

}  // namespace robustfd

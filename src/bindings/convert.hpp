// What all bindings share: arguments and results as NumPy arrays, rows, and the lock of a model.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "array.hpp"
#include "lock.hpp"
#include "rows.hpp"

namespace nb = nanobind;

namespace robustfd {

// Arguments are plain C-contiguous arrays; declare them with .noconvert(), so that nothing is copied silently.
template <class T> using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Result = nb::ndarray<nb::numpy, T>;

}  // namespace robustfd

namespace nanobind::detail {

// An argument that is a view of an array, of exactly its type and C-contiguous: nothing is converted or copied.
template <class View, class Array> struct view_caster {
    NB_TYPE_CASTER(View, make_caster<Array>::Name)
    bool from_python(handle source, std::uint8_t flags, cleanup_list* cleanup) noexcept {
        const auto exact = static_cast<std::uint8_t>(flags & ~static_cast<std::uint8_t>(cast_flags::convert));
        if (!array.from_python(source, exact, cleanup)) return false;
        const Array& x = array.value;
        if constexpr (requires { View(x.data(), x.size()); })
            value = View(x.data(), x.size());
        else
            value = View(x.data(), static_cast<std::int64_t>(x.shape(0)), static_cast<std::int64_t>(x.shape(1)));
        return true;
    }
    make_caster<Array> array;
};

template <class T>
struct type_caster<std::span<T>> : view_caster<std::span<T>, ndarray<T, ndim<1>, c_contig, device::cpu>> {};
template <class T>
struct type_caster<robustfd::Matrix<T>> : view_caster<robustfd::Matrix<T>, ndarray<T, ndim<2>, c_contig, device::cpu>> {
};

}  // namespace nanobind::detail

namespace robustfd {

template <class T> Matrix<const T> matrix(const In2<T>& x) {
    return {x.data(), static_cast<Index>(x.shape(0)), static_cast<Index>(x.shape(1))};
}
template <class A> Index length(const A& x) { return static_cast<Index>(x.shape(0)); }
template <class T> Index length(Span<T> x) { return static_cast<Index>(x.size()); }

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

// The result of work that needs no interpreter; for functions that never need it, `Unlocked` in their binding.
template <class Work> auto unlocked(Work work) {
    const nb::gil_scoped_release released;
    return work();
}
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

// Rows from Python: a C-contiguous float64 matrix, or a tuple (data, indices, indptr, ...) in CSR format.
struct RowsFromPython {
    Rows rows;
    nb::object owner[3];  // the arrays must stay alive while they are in use
};

template <class A> A cast_array(nb::handle value, const char* what) {
    A array;
    if (!nb::try_cast(value, array, false)) throw nb::type_error(what);
    return array;
}

inline RowsFromPython rows_from(nb::handle x) {
    RowsFromPython result;
    if (!nb::isinstance<nb::tuple>(x)) {
        const auto dense = cast_array<In2<double>>(x, "rows must be a C-contiguous float64 matrix");
        result.rows = {dense.data(), nullptr, nullptr, length(dense), static_cast<Index>(dense.shape(1))};
        result.owner[0] = nb::borrow(x);
        return result;
    }
    for (std::size_t i = 0; i < 3; ++i) result.owner[i] = nb::borrow(x[i]);
    const auto data = cast_array<In1<double>>(result.owner[0], "data must be a float64 array");
    const auto indices = cast_array<In1<std::int32_t>>(result.owner[1], "indices must be an int32 array");
    const auto indptr = cast_array<In1<Index>>(result.owner[2], "indptr must be an int64 array");
    const Index n = length(indptr) - 1;
    require(n >= 0, "indptr is empty");
    require(indptr.data()[0] >= 0 && indptr.data()[n] <= length(indices) && length(indices) <= length(data),
            "indptr exceeds the entries");
    result.rows = {data.data(), indices.data(), indptr.data(), n, 0};
    return result;
}

// All locks of this process, for forks. Guarded by the interpreter's lock.
inline std::vector<Lock*>& all_locks() {
    static auto* locks = new std::vector<Lock*>;  // never destroyed: models may outlive the module
    return *locks;
}

// The lock of a model as a Python object.
struct ModelLock : Lock {
    ModelLock() { all_locks().push_back(this); }
    ~ModelLock() { std::erase(all_locks(), this); }
    ModelLock(const ModelLock&) = delete;
};

void ensure_blas();  // loads scipy's BLAS and LAPACK on first use

void bind_linalg(nb::module_& m);
void bind_paper(nb::module_& m);
void bind_text(nb::module_& m);
void bind_untuned(nb::module_& m);
void bind_bandit(nb::module_& m);
void bind_tracker(nb::module_& m);
void bind_forest(nb::module_& m);

}  // namespace robustfd

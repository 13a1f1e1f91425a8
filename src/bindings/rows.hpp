// Rows from Python: a C-contiguous float64 matrix, or a tuple (data, indices, indptr, ...) in CSR format.
#pragma once

#include "convert.hpp"
#include "experts.hpp"

namespace robustfd {

// The rows, and the arrays that must stay alive while they are in use.
struct RowsFromPython {
    Rows rows;
    nb::object owner[3];
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
    if (n < 0) throw std::invalid_argument("indptr is empty");
    if (indptr.data()[0] < 0 || indptr.data()[n] > length(indices) || length(indices) > length(data))
        throw std::invalid_argument("indptr exceeds the entries");
    result.rows = {data.data(), indices.data(), indptr.data(), n, 0};
    return result;
}

}  // namespace robustfd

#include "learning.hpp"

#include <algorithm>

#include "progress.hpp"

namespace robustfd {

namespace {

template <class A> A cast_without_copy(nb::handle x, const char* message) {
    A array;
    if (!nb::try_cast(x, array, false)) throw std::invalid_argument(message);
    return array;
}

constexpr const char* FORM = "rows must be a C-contiguous array of float64, or data, indices (int32) and indptr (int64)";

}  // namespace

RowsArgument::RowsArgument(nb::handle x, Index d) {
    if (nb::isinstance<nb::tuple>(x)) {
        read_csr(x, d);
        return;
    }
    dense_ = cast_without_copy<In2<double>>(x, FORM);
    require(static_cast<Index>(dense_.shape(1)) == d, "the rows have another number of features than the model");
    rows_ = {dense_.data(), nullptr, nullptr, length(dense_), d};
}

void RowsArgument::read_csr(nb::handle x, Index d) {
    const nb::tuple parts = nb::borrow<nb::tuple>(x);
    require(nb::len(parts) == 3, FORM);
    data_ = cast_without_copy<In1<double>>(parts[0], FORM);
    indices_ = cast_without_copy<In1<std::int32_t>>(parts[1], FORM);
    indptr_ = cast_without_copy<In1<Index>>(parts[2], FORM);
    const Index n = length(indptr_) - 1, *starts = indptr_.data();
    require(n >= 0 && starts[0] >= 0 && starts[n] <= length(data_) && starts[n] <= length(indices_),
            "indptr does not fit the entries");
    bool ascending = true, inside = true;
    for (Index i = 0; i < n; ++i) ascending = ascending && starts[i] <= starts[i + 1];
    require(ascending, "indptr must not decrease");
    const std::uint32_t limit = static_cast<std::uint32_t>(std::min<Index>(d, std::numeric_limits<std::int32_t>::max()));
    for (Index e = starts[0]; e < starts[n]; ++e) inside &= static_cast<std::uint32_t>(indices_.data()[e]) < limit;
    require(inside, "a row has an index outside the features of the model");
    rows_ = {data_.data(), indices_.data(), starts, n, d};
}

Totals* table_of(const Out2<double>& progress) {
    require(progress.shape(0) == 1 + RECORDS && progress.shape(1) == 4, "the table of progress has shape (64, 4)");
    return reinterpret_cast<Totals*>(progress.data());
}

nb::dict views_of(const std::vector<Part>& parts, nb::handle owner) {
    nb::dict views;
    for (const Part& part : parts) {
        const std::vector<std::size_t> shape(part.shape.begin(), part.shape.end());
        std::visit([&](auto* data) {
            using T = std::remove_pointer_t<decltype(data)>;
            views[part.name] = nb::cast(Result<T>(data, shape.size(), shape.data(), owner), nb::rv_policy::reference);
        }, part.data);
    }
    return views;
}

}  // namespace robustfd

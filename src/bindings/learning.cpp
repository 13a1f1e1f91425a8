#include "learning.hpp"

#include "progress.hpp"

namespace robustfd {

RowsFromPython checked_rows(nb::handle x, Index d) {
    RowsFromPython given = rows_from(x);
    const Rows& rows = given.rows;
    require(rows.sparse() || rows.width == d, "the rows have another number of features than the model");
    rows.check(d, 0, rows.count);
    return given;
}

Progress* table_of(const Out2<double>& progress) {
    require(progress.shape(0) == 1 + RECORDS && progress.shape(1) == 4, "the table of progress has shape (64, 4)");
    return reinterpret_cast<Progress*>(progress.data());
}

nb::dict views_of(const std::vector<Part>& parts) {
    nb::dict views;
    for (const Part& part : parts) {
        const std::vector<std::size_t> shape(part.shape.begin(), part.shape.end());
        const nb::capsule owner = owner_of(part.memory);
        std::visit([&](auto* data) {
            using T = std::remove_pointer_t<decltype(data)>;
            views[part.name] = nb::cast(Result<T>(data, shape.size(), shape.data(), owner));
        }, part.data);
    }
    return views;
}

}  // namespace robustfd

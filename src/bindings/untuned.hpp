// The untuned learner as a Python object.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "convert.hpp"
#include "experts.hpp"

namespace robustfd {

// The numbers of an array element for NumPy: a record of eight-byte fields becomes a row of float64.
template <class T> using Number = std::conditional_t<std::is_arithmetic_v<T>, T, double>;
template <class T> constexpr std::size_t FIELDS = sizeof(T) / sizeof(Number<T>);

// A view of an array for NumPy, which stays valid when the model replaces the array.
template <class T> nb::object view_of(const Array<T>& array) {
    std::size_t shape[4];
    std::size_t dims = 0;
    for (int axis = 0; axis < array.dims(); ++axis) shape[dims++] = static_cast<std::size_t>(array.shape(axis));
    if (!std::is_arithmetic_v<T>) shape[dims++] = FIELDS<T>;
    return nb::cast(
        Result<Number<T>>(reinterpret_cast<Number<T>*>(array.data()), dims, shape, owner_of(array.memory())));
}

// Copy to zeros. Pages of zeros are skipped, so that they take no memory in the copy either.
inline void copy_sparing_memory(char* to, const char* from, std::size_t bytes) {
    constexpr std::size_t PAGE = 4096;
    for (std::size_t begin = 0; begin < bytes; begin += PAGE) {
        const std::size_t size = std::min(PAGE, bytes - begin);
        const char* page = from + begin;
        const bool empty = page[0] == 0 && std::memcmp(page, page + 1, size - 1) == 0;
        if (!empty) std::memcpy(to + begin, page, size);
    }
}

// Zeros of this shape, whose last axis has the fields of a record.
template <class T> Array<T> zeros_of(const std::vector<Index>& shape, const char* name) {
    const std::size_t dims = shape.size() - (std::is_arithmetic_v<T> ? 0 : 1);
    if (dims < 1 || dims > 3 || (!std::is_arithmetic_v<T> && shape[dims] != static_cast<Index>(FIELDS<T>)))
        throw std::invalid_argument(std::string(name) + " has an unexpected shape");
    if (dims == 1) return Array<T>(shape[0]);
    return dims == 2 ? Array<T>(shape[0], shape[1]) : Array<T>(shape[0], shape[1], shape[2]);
}

// Replace an array by a copy of one from NumPy, or by zeros of a shape.
template <class T> void assign(Array<T>& array, nb::handle value, const char* name) {
    using Given = nb::ndarray<const Number<T>, nb::c_contig, nb::device::cpu>;
    if (nb::isinstance<nb::tuple>(value)) {
        array = zeros_of<T>(nb::cast<std::vector<Index>>(value), name);
        return;
    }
    const auto given = cast_array<Given>(value, name);
    std::vector<Index> shape;
    for (std::size_t axis = 0; axis < given.ndim(); ++axis) shape.push_back(static_cast<Index>(given.shape(axis)));
    Array<T> copy = zeros_of<T>(shape, name);
    copy_sparing_memory(reinterpret_cast<char*>(copy.data()), reinterpret_cast<const char*>(given.data()),
                        given.nbytes());
    array = std::move(copy);
}

class Untuned {
  public:
    Experts experts;
    Index seen;  // rows so far

    explicit Untuned(Experts experts = {}, Index seen = 0) : experts(std::move(experts)), seen(seen) {}

    nb::dict arrays() {
        nb::dict result;
        Experts::visit([&](const char* name, auto& array) { result[name] = view_of(array); }, experts);
        return result;
    }

    // Replace some arrays. If they do not fit the others, nothing changes.
    void replace(const nb::dict& given) {
        Experts before = experts.shared();
        std::size_t used = 0;
        try {
            Experts::visit([&](const char* name, auto& array) {
                if (given.contains(name)) assign(array, given[name], name), ++used;
            }, experts);
            if (used != given.size()) throw std::invalid_argument("unknown arrays");
            experts.check();
        } catch (...) {
            experts = std::move(before);
            throw;
        }
    }

    Index learn(nb::handle x, Span<const double> y, Span<const double> weight, Matrix<double> margins,
                const std::optional<Matrix<double>>& readings, Index first, Index last, Lesson lesson) {
        const RowsFromPython given = rows_from(x);
        const Rows& rows = given.rows;
        check(rows, margins);
        if (readings) check(rows, *readings);
        require(0 <= first && first <= last && last <= rows.count, "the rows are out of range");
        require(length(y) == rows.count && length(weight) == rows.count,
                "y or weight has another length than the rows");
        return unlocked([&] {
            rows.check(experts.features(), first, last);
            if (!experts.targets[0].numbers) check_classes(y.subspan(first, last - first));
            scratch_.fit(experts, rows.longest(first, last));
            return untuned_loops().learn(experts, scratch_.work, rows, first, last, y.data(), weight.data(),
                                         margins.data, readings ? readings->data : nullptr, lesson);
        });
    }

    // Learn all rows again, and update the exact Hessian after each number of rows in `renewals`, in ascending order.
    void learn_again(nb::handle x, Span<const double> y, Span<const double> weight, Matrix<double> margins,
                     Span<const Index> renewals) {
        const Index n = length(y);
        Index done = 0;
        for (const Index rows : renewals) {
            require(done <= rows && rows <= n, "renewals is not ascending");
            learn(x, y, weight, margins, {}, done, rows, Lesson::replayed);
            renew_exact(std::pow(GAMMA, static_cast<double>(rows - done)));
            done = rows;
        }
        learn(x, y, weight, margins, {}, done, n, Lesson::replayed);
    }

    void renew_exact(double faded) {
        const nb::gil_scoped_release unlocked;
        experts.renew_exact(faded);
    }

    void read(nb::handle x, Matrix<double> margins) const {
        const RowsFromPython given = rows_from(x);
        check(given.rows, margins);
        const nb::gil_scoped_release unlocked;
        untuned_loops().read(experts, scratch_for(given.rows).work, given.rows, margins.data);
    }

    void doubt(nb::handle x, Matrix<double> margins, Matrix<double> variances) const {
        const RowsFromPython given = rows_from(x);
        check(given.rows, margins);
        check(given.rows, variances);
        const nb::gil_scoped_release unlocked;
        untuned_loops().doubt(experts, scratch_for(given.rows).work, given.rows, margins.data, variances.data);
    }

    void explain(nb::handle x, const nb::ndarray<const double, nb::ndim<3>, nb::c_contig>& effects,
                 Span<Index> indptr, Span<Index> which, Matrix<double> parts) const {
        const RowsFromPython given = rows_from(x);
        const Rows& rows = given.rows;
        const Index most = rows.entries(0, rows.count) + rows.count * experts.centred.size();
        require(length(indptr) == rows.count + 1 && length(which) >= most && parts.rows >= most,
                "results are too short");
        require(static_cast<Index>(effects.shape(0)) == 3 &&
                    static_cast<Index>(effects.shape(1)) == experts.table.size() &&
                    static_cast<Index>(effects.shape(2)) == experts.outputs() && parts.cols == experts.outputs(),
                "effects has another shape");
        const nb::gil_scoped_release unlocked;
        untuned_loops().explain(experts, scratch_for(rows).work, rows, effects.data(), indptr.data(), which.data(),
                                parts.data);
    }

    void first_scales(Span<const Index> which) {
        for (Index j : which) require(0 <= j && j < experts.table.size(), "which is out of range");
        untuned_loops().first_scales(experts, which.data(), length(which));
    }

    // Learn one row, all of whose columns the model has; fill the predictions (outputs,) before the step, and what
    // `read_one` would have predicted then, unless it is null.
    void learn_one(const Rows& row, double y, double weight, double* predictions, double* readings = nullptr) {
        scratch_.fit(experts, row.longest(0, 1));
        untuned_loops().learn(experts, scratch_.work, row, 0, 1, &y, &weight, predictions, readings, Lesson::fresh);
        ++seen;
    }

    // Return the prediction of such a row.
    double read_one(const Rows& row) const {
        double prediction = 0.0;
        static thread_local Scratch scratch;  // allocating it takes longer than reading a row
        scratch.fit(experts, row.longest(0, 1));
        untuned_loops().read(experts, scratch.work, row, &prediction);
        return prediction;
    }

    // Fill the prediction and the variance of such a row. It uses the scratch memory of `learn_one`.
    void doubt_one(const Rows& row, double& margin, double& variance) {
        scratch_.fit(experts, row.longest(0, 1));
        untuned_loops().doubt(experts, scratch_.work, row, &margin, &variance);
    }

  private:
    Scratch scratch_;

    void check(const Rows& rows, Matrix<double> margins) const {
        require(margins.rows == rows.count && margins.cols == experts.outputs(),
                "margins has another shape than the rows and outputs");
    }
    void check_classes(Span<const double> y) const {
        const double classes = static_cast<double>(std::max<Index>(experts.outputs(), 2));
        for (double each : y) require(0.0 <= each && each < classes, "y is not a class");
    }
    // Scratch memory of its own for every thread that reads, after all indices of the rows are checked.
    Scratch scratch_for(const Rows& rows) const {
        rows.check(experts.features(), 0, rows.count);
        return Scratch(experts, rows.longest(0, rows.count));
    }
};

}  // namespace robustfd

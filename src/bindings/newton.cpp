// Bindings of the Newton methods of the paper.
#include "newton.hpp"

#include <nanobind/stl/optional.h>

#include "learning.hpp"

namespace robustfd {

namespace {

using namespace nb::literals;
using Features = std::optional<In1<std::int32_t>>;

// Add one row to the block and take its step.
bool step(Newton& newton, nb::handle x, const In1<double>& y, const In1<double>& weight, const Out1<double>& margins,
          const std::optional<Out2<double>>& progress) {
    const RowsFromPython given = checked_rows(x, newton.features());
    require(given.rows.count == 1 && length(y) == 1 && length(weight) == 1 && length(margins) == 1, "one row only");
    require(!newton.is_full(), "the block is full");
    Progress* table = progress ? table_of(*progress) : nullptr;
    return newton.step(given.rows, {y.data(), weight.data(), margins.data(), table});
}

// The steps of the block so far, as coefficients of B and of its rows.
nb::tuple steps(Newton& newton) {
    std::vector<double> coef_b(newton.m - 1), coef_x(newton.state.filled);
    newton.collect_steps(coef_b.data(), coef_x.data());
    return nb::make_tuple(numpy_array(std::move(coef_b)), numpy_array(std::move(coef_x)));
}

Result<double> combine(Newton& newton, double of_w, const In1<double>& coef_b, const In1<double>& coef_x,
                       const Features& features) {
    const Index d = newton.features();
    require(length(coef_b) == newton.m - 1 && length(coef_x) == newton.state.filled, "the coefficients are too few");
    Span<const std::int32_t> some;
    if (features) {
        some = {features->data(), features->shape(0)};
        if (some.empty()) return numpy_array(std::vector<double>());
        for (std::int32_t j : some) require(0 <= j && j < d, "a feature is out of range");
    }
    std::vector<double> out(features ? some.size() : static_cast<std::size_t>(d));
    newton.combine(of_w, coef_b.data(), {coef_x.data(), coef_x.shape(0)}, some, out.data());
    return numpy_array(std::move(out));
}

nb::tuple last_change(Newton& newton) {
    const Change& change = newton.change();
    const auto copy = [](Matrix<double> x) {
        std::vector<double> numbers(x.data, x.data + x.rows * x.cols);
        return numpy_array(std::move(numbers), {static_cast<std::size_t>(x.rows), static_cast<std::size_t>(x.cols)});
    };
    return nb::make_tuple(copy(change.coef_b), copy(change.coef_x));
}

SparseBasis& sparse_of(Newton& newton) {
    require(newton.sparse() != nullptr, "the rows are dense");
    return *newton.sparse();
}

nb::tuple entries_of(Newton& newton) {
    auto [value, row, where] = sparse_of(newton).entries();
    return nb::make_tuple(numpy_array(std::move(value)), numpy_array(std::move(row)), numpy_array(std::move(where)));
}

// Files are untrusted, so everything that is used as an index is checked.
void restore_run(Newton& newton, Index number, Index rows, const In1<std::int32_t>& feature,
                 const In2<double>& gathered, const In1<double>& value, const In1<std::int32_t>& row,
                 const In1<std::int32_t>& where) {
    SparseBasis& basis = sparse_of(newton);
    const Index features = length(feature), entries = length(value);
    require(0 <= number && number < RUNS && newton.state.filled <= rows && rows <= basis.left() + basis.state().rows,
            "the run has too many rows, or there were too many runs");
    require(length(gathered) == features && static_cast<Index>(gathered.shape(1)) == newton.m &&
                length(row) == entries && length(where) == entries,
            "the shapes do not match");
    std::vector<bool> seen(newton.features());
    for (Index k = 0; k < features; ++k) {
        const std::int32_t j = feature.data()[k];
        require(0 <= j && j < newton.features() && !seen[j], "a feature of the run is out of range, or occurs twice");
        seen[j] = true;
    }
    for (Index e = 0; e < entries; ++e)
        require(0 <= where.data()[e] && where.data()[e] < features && row.data()[e] < rows &&
                    row.data()[e] >= (e == 0 ? 0 : row.data()[e - 1]),
                "the entries of the run are out of range or out of order");
    basis.restore(number, rows, {feature.data(), feature.shape(0)}, gathered.data(), {value.data(), value.shape(0)},
                  row.data(), where.data());
}

void bind_state(nb::module_& m) {
    nb::class_<BlockState>(m, "BlockState", "The numbers of a block.")
        .def_rw("filled", &BlockState::filled)
        .def_rw("seen", &BlockState::seen)
        .def_rw("shrinks", &BlockState::shrinks)
        .def_rw("rank", &BlockState::rank)
        .def_rw("span", &BlockState::span)
        .def_rw("careful", &BlockState::careful)
        .def_ro("overflowed", &BlockState::overflowed)
        .def_rw("alpha", &BlockState::alpha)
        .def_rw("delta_sum", &BlockState::delta_sum)
        .def_rw("delta", &BlockState::delta)
        .def_rw("factor", &BlockState::factor);
    nb::class_<RunState>(m, "RunState", "The counts of a run of sparse rows.")
        .def_ro("number", &RunState::number)
        .def_ro("rows", &RunState::rows)
        .def_ro("entries", &RunState::entries)
        .def_ro("features", &RunState::features)
        .def_ro("reach", &RunState::reach);
}

}  // namespace

void bind_newton(nb::module_& m) {
    bind_state(m);
    nb::class_<Newton, Learner>(m, "Newton", "RFD-SON, FD-SON, PFD-SON and FULL-ON.")
        .def(
            "__init__",
            [](Newton* self, const PaperSettings& settings, Index d, Index m, Index rows, bool sparse, Index run_rows) {
                // Products of these sizes must not overflow.
                require(1 <= d && d < Index(1) << 31 && 2 <= m && m < Index(1) << 24 && m <= rows &&
                            rows < Index(1) << 28 && run_rows >= 1 && 1 <= settings.shrunk && settings.shrunk <= m,
                        "a sketch of this size is not possible");
                ensure_blas();
                new (self) Newton(settings, d, m, rows, sparse, run_rows);
            },
            "settings"_a, "d"_a, "m"_a, "rows"_a, "sparse"_a, "run_rows"_a)
        .def(
            "copy", [](const Newton& newton) { return Newton(newton); }, "Return a copy.")
        .def_prop_ro(
            "state", [](Newton& newton) -> BlockState& { return newton.state; }, nb::rv_policy::reference_internal)
        .def_prop_ro(
            "run", [](Newton& newton) { return RunState(sparse_of(newton).state()); }, "Copy of the counts.")
        .def_prop_ro(
            "run_left", [](Newton& newton) { return sparse_of(newton).left(); }, "Rows until the end of the run.")
        .def_prop_ro("is_full", &Newton::is_full)
        .def("step", step, "x"_a, "y"_a.noconvert(), "weight"_a.noconvert(), "margins"_a.noconvert(),
             "progress"_a.noconvert().none(),
             "Add one row to the block and take its step; return False after an overflow.")
        .def(
            "end_block",
            [](Newton& newton) {
                require(newton.is_full(), "the block is not full");
                return newton.end_block();
            },
            "End a full block; return False after an overflow.")
        .def("last_change", last_change, "Return coef_b and coef_x of the last `end_block`.")
        .def("steps", steps, "Return the coefficients of B and of the rows in the change of w by the block so far.")
        .def("combine", combine, "of_w"_a, "coef_b"_a.noconvert(), "coef_x"_a.noconvert(),
             "features"_a.noconvert().none() = nb::none(),
             "Return of_w w + coef_b B + coef_x X, with w and B of the beginning of the block, for some features.")
        .def("multiply_weights", &Newton::multiply_weights, "factor"_a, "Multiply w.")
        .def("multiply_stored_weights", &Newton::multiply_stored_weights, "factor"_a,
             "Multiply w as it was at the beginning of the block.")
        .def(
            "widen", [](Newton& newton, Index d) { sparse_of(newton).widen(d); }, "d"_a, "Allocate d features.")
        .def("entries", entries_of, "Return the values, rows and feature positions of all entries of the run.")
        .def("restore_run", restore_run, "number"_a, "rows"_a, "feature"_a.noconvert(), "gathered"_a.noconvert(),
             "value"_a.noconvert(), "row"_a.noconvert(), "where"_a.noconvert(), "Restore a run from a snapshot.");
}

}  // namespace robustfd

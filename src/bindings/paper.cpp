// Bindings of the learners of the paper, with their losses, progress and rows.
#include <nanobind/stl/optional.h>

#include "learning.hpp"
#include "newton.hpp"
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

namespace {

using namespace nb::literals;
using RFD_LEVEL::slope_of;
using RFD_LEVEL::tally;
using RFD_LEVEL::value_of;

Loss loss_of(int code, double delta) {
    require(0 <= code && code <= Loss::HUBER, "unknown loss");
    return {static_cast<Loss::Kind>(code), delta};
}

void bind_losses(nb::module_& m) {
    m.def("loss_value", [](int code, double p, double y, double delta) { return value_of(loss_of(code, delta), p, y); },
          "code"_a, "p"_a, "y"_a, "delta"_a,
          "Return l(p) for the label y; `delta` is the threshold of the Huber loss, ignored by the others.");
    m.def("loss_slope", [](int code, double p, double y, double delta) { return slope_of(loss_of(code, delta), p, y); },
          "code"_a, "p"_a, "y"_a, "delta"_a,
          "Return l'(p) for the label y; near a kink (hinge, absolute) return the subgradient 0.");
    m.def("loss_values", [](int code, In1<double> p, In1<double> y, double delta, Out1<double> out) {
        require(p.shape(0) == y.shape(0) && p.shape(0) == out.shape(0), "the lengths differ");
        const Loss loss = loss_of(code, delta);
        for (Index i = 0; i < length(p); ++i) out.data()[i] = value_of(loss, p.data()[i], y.data()[i]);
    }, "code"_a, "p"_a.noconvert(), "y"_a.noconvert(), "delta"_a, "out"_a.noconvert(),
       "Fill `out` with the losses of margins p.");
}

void bind_progress(nb::module_& m) {
    m.def("tally_all", [](int code, double delta, In1<double> margins, In1<double> y, In1<double> weight,
                          Out2<double> progress) {
        require(margins.shape(0) == y.shape(0) && weight.shape(0) == y.shape(0), "the lengths differ");
        const Loss loss = loss_of(code, delta);
        Progress* table = table_of(progress);
        for (Index i = 0; i < length(y); ++i) tally(table, loss, margins.data()[i], y.data()[i], weight.data()[i]);
    }, "code"_a, "delta"_a, "margins"_a.noconvert(), "y"_a.noconvert(), "weight"_a.noconvert(),
       "progress"_a.noconvert(), "Add rows with these margins and labels.");
    m.def("tally_judged", [](In1<double> losses, In1<double> wrong, In1<double> weight, Out2<double> progress) {
        require(losses.shape(0) == wrong.shape(0) && losses.shape(0) == weight.shape(0), "the lengths differ");
        Progress* table = table_of(progress);
        for (Index i = 0; i < length(losses); ++i) tally(table, losses.data()[i], wrong.data()[i], weight.data()[i]);
    }, "losses"_a.noconvert(), "wrong"_a.noconvert(), "weight"_a.noconvert(), "progress"_a.noconvert(),
       "Add rows with these losses; `wrong` is 1 for an error and 0 otherwise.");
}

// Fill the dense array `out` with sparse rows.
void scatter_rows(nb::handle x, const Out2<double>& out) {
    const Index d = static_cast<Index>(out.shape(1));
    const RowsFromPython given = checked_rows(x, d);
    const Rows& rows = given.rows;
    require(rows.sparse() && rows.count == length(out), "there must be a sparse row for each row of the array");
    nb::gil_scoped_release unlocked;
    std::fill_n(out.data(), rows.count * d, 0.0);
    for (Index i = 0; i < rows.count; ++i)
        for (Index e = rows.indptr[i]; e < rows.indptr[i + 1]; ++e)
            out.data()[i * d + rows.indices[e]] += rows.data[e];
}

// ------------------------------------------------------------------------------------------------- all learners

// The random numbers of RP-SON, m for each row.
const double* numbers_of(Learner& learner, const std::optional<In2<double>>& normal, Index rows) {
    const auto* model = dynamic_cast<const RowModel*>(&learner);
    if (!model || model->method != Method::PROJECTION) return nullptr;
    require(normal && length(*normal) == rows && static_cast<Index>(normal->shape(1)) == model->m,
            "RP-SON needs random numbers for each row");
    return normal->data();
}

Index learn(Learner& learner, nb::handle x, const In1<double>& y, const In1<double>& weight,
            const Out1<double>& margins, const std::optional<Out2<double>>& progress,
            const std::optional<In2<double>>& normal) {
    const RowsFromPython given = checked_rows(x, learner.features());
    const Rows& rows = given.rows;
    require(length(y) == rows.count && length(weight) == rows.count && length(margins) == rows.count,
            "there must be a label, a weight and a margin for each row");
    const Batch batch{y.data(), weight.data(), margins.data(), progress ? table_of(*progress) : nullptr};
    const double* numbers = numbers_of(learner, normal, rows.count);
    nb::gil_scoped_release unlocked;
    return learner.learn(rows, batch, numbers);
}

bool learn_a_few(Learner& learner, const In2<double>& x, const In1<double>& y, const Out1<double>& margins,
                 const Out2<double>& progress, const std::optional<In2<double>>& normal) {
    static constexpr double ONES[FEW] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    const Index n = length(x), d = learner.features();
    require(n <= FEW && static_cast<Index>(x.shape(1)) == d && length(y) == n && length(margins) == n,
            "the rows have another shape than the model, or are too many");
    const Batch batch{y.data(), ONES, margins.data(), table_of(progress)};
    const double* numbers = numbers_of(learner, normal, n);
    nb::gil_scoped_release unlocked;
    return learn_few(learner, {x.data(), nullptr, nullptr, n, d}, batch, numbers);
}

// A dict of the arrays of a state, as views that stay valid when the state replaces an array.
nb::dict views_of(Learner& learner) {
    nb::dict views;
    for (const Part& part : learner.parts()) {
        const std::vector<std::size_t> shape(part.shape.begin(), part.shape.end());
        const nb::capsule owner = owner_of(part.memory);
        std::visit([&](auto* data) {
            using T = std::remove_pointer_t<decltype(data)>;
            views[part.name] = nb::cast(Result<T>(data, shape.size(), shape.data(), owner));
        }, part.data);
    }
    return views;
}

void bind_learner(nb::module_& m) {
    nb::class_<PaperSettings>(m, "PaperSettings", "The settings of a learner of the paper.")
        .def("__init__", [](PaperSettings* self, int loss, double delta, double bound, int projection, double mu,
                            double rate, double power, double alpha0, bool shrink_first, Index shrunk, double added,
                            int root) {
            require(0 <= projection && projection <= 2, "unknown projection");
            require(0 <= root && root <= 2 && (root == 0 || shrink_first), "unknown root, or a step before the shrink");
            new (self) PaperSettings{loss_of(loss, delta), bound, static_cast<Projection>(projection), mu, rate, power,
                                     alpha0, shrink_first, shrunk, added, static_cast<Root>(root)};
        }, "loss"_a, "delta"_a, "bound"_a, "projection"_a, "mu"_a, "rate"_a, "power"_a, "alpha0"_a, "shrink_first"_a,
           "shrunk"_a, "added"_a, "root"_a);
    nb::class_<Learner>(m, "Learner", "A learner of the paper. It is not safe to use one from several threads.")
        .def("learn", learn, "x"_a, "y"_a.noconvert(), "weight"_a.noconvert(), "margins"_a.noconvert(),
             "progress"_a.noconvert().none(), "normal"_a.noconvert().none() = nb::none(),
             "Learn from rows, dense or as a tuple (data, indices, indptr); return the number before an overflow.")
        .def("learn_few", learn_a_few, "x"_a.noconvert(), "y"_a.noconvert(), "margins"_a.noconvert(),
             "progress"_a.noconvert(), "normal"_a.noconvert().none() = nb::none(),
             "Learn up to eight rows, or return False and change nothing if they need a closer look.")
        .def("begin", &Learner::begin, "Begin a call that `rollback` can revert.")
        .def("commit", &Learner::commit, "End the call.")
        .def("rollback", &Learner::rollback, "Revert everything since `begin`.")
        .def("arrays", views_of, "Return the arrays of the state as views.")
        .def_prop_ro("extreme", &Learner::extreme,
                     "Since `begin`: 0 if all numbers are ordinary, 1 if some are huge, 2 if rows are huge or tiny.")
        .def_prop_ro("d", &Learner::features, "Number of features.");
}

// ------------------------------------------------------------------------------------------------- without blocks

void bind_row_model(nb::module_& m) {
    nb::enum_<Method>(m, "Method", "The methods without blocks.")
        .value("adagrad", Method::ADAGRAD)
        .value("descent", Method::DESCENT)
        .value("projection", Method::PROJECTION)
        .value("oja", Method::OJA);
    nb::class_<RowModel, Learner>(m, "RowModel", "ADAGRAD, gradient descent, RP-SON and Oja-SON.")
        .def("__init__", [](RowModel* self, Method method, const PaperSettings& settings, Index d, Index m) {
            const bool has_sketch = method == Method::PROJECTION || method == Method::OJA;
            // Products of these sizes must not overflow.
            require(1 <= d && d < Index(1) << 31 && (has_sketch ? 1 <= m && m < Index(1) << 24 : m == 0),
                    "a model of this size is not possible");
            new (self) RowModel(method, settings, d, m);
        }, "method"_a, "settings"_a, "d"_a, "m"_a,
             "m is the number of rows of the sketch. The caller fills `yt` of Oja-SON with orthonormal columns.")
        .def_ro("m", &RowModel::m, "Number of rows of the sketch.")
        .def_rw("seen", &RowModel::seen, "Number of rows learned.")
        .def("copy", [](const RowModel& model) { return RowModel(model); }, "Return a copy.");
    m.def("solve_projection", [](double alpha, In2<double> gram, In1<double> b, double square) {
        const Index size = length(gram);
        require(static_cast<Index>(gram.shape(1)) == size && length(b) == size, "the shapes do not match");
        std::vector<double> scratch((2 * size + 8) * size);
        const Direction found = row_loops().solve_projection(alpha, matrix(gram), b.data(), square, scratch.data());
        return nb::make_tuple(found.coef_x, numpy_array(std::vector<double>(found.coef_b, found.coef_b + size)),
                              found.kappa, numpy_array(std::vector<double>(found.outside_b, found.outside_b + size)),
                              found.n0);
    }, "alpha"_a, "gram"_a.noconvert(), "b"_a.noconvert(), "square"_a,
       "Return coef_x, coef_b, kappa, outside_b and n0 of RP-SON for a row with B x = b and x'x = square.");
}

// ------------------------------------------------------------------------------------------------- with blocks

using Features = std::optional<In1<std::int32_t>>;

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
    const BlockState& block = newton.state;
    const Index later = newton.size - (block.shrinks > 0 ? newton.m - 1 : 0) - block.filled;  // rows of the block
    require(0 <= number && number < RUNS && block.filled <= rows && rows + later <= basis.left() &&
                features <= entries,
            "the run has too many rows or features, or there were too many runs");
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
        .def_ro("features", &RunState::features)
        .def_ro("reach", &RunState::reach);
}

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
        .def("steps", steps, "Return the coefficients of B and of the rows in the change of w by the block so far.")
        .def("combine", combine, "of_w"_a, "coef_b"_a.noconvert(), "coef_x"_a.noconvert(),
             "features"_a.noconvert().none() = nb::none(),
             "Return of_w w + coef_b B + coef_x X, with w and B of the beginning of the block, for some features.")
        .def("multiply_weights", &Newton::multiply_weights, "factor"_a, "Multiply w.")
        .def(
            "widen", [](Newton& newton, Index d) { sparse_of(newton).widen(d); }, "d"_a, "Allocate d features.")
        .def("entries", entries_of, "Return the values, rows and feature positions of all entries of the run.")
        .def("restore_run", restore_run, "number"_a, "rows"_a, "feature"_a.noconvert(), "gathered"_a.noconvert(),
             "value"_a.noconvert(), "row"_a.noconvert(), "where"_a.noconvert(), "Restore a run from a snapshot.");
}

}  // namespace

void bind_paper(nb::module_& m) {
    bind_losses(m);
    bind_progress(m);
    m.def("scatter_rows", scatter_rows, "x"_a, "out"_a.noconvert(), "Fill the dense array `out` with sparse rows.");
    bind_learner(m);
    bind_row_model(m);
    bind_newton(m);
}

}  // namespace robustfd

// Bindings of the learners of the paper: losses, progress, rows, and the methods without blocks (newton.cpp has the
// rest).
#include <nanobind/stl/optional.h>

#include "first_order.hpp"
#include "learning.hpp"
#include "progress.hpp"
#include "random_basis.hpp"

namespace robustfd {

namespace {

using namespace nb::literals;
using RFD_LEVEL::slope_of;
using RFD_LEVEL::tally;
using RFD_LEVEL::value_of;

Loss loss_of(int code, double delta) {
    require(0 <= code && code <= Loss::HUBER, "unknown loss");
    return {static_cast<Loss::Kind>(code), delta};
}

PaperSettings settings_of(int loss, double delta, double bound, int domain, int projection, double mu, double rate,
                          double power, double alpha0, bool shrink_first, Index shrunk, double added) {
    require(0 <= domain && domain <= 2 && 0 <= projection && projection <= 2, "unknown domain or projection");
    PaperSettings settings{loss_of(loss, delta), bound, static_cast<Domain>(domain),
                           static_cast<Projection>(projection), mu, rate, power, alpha0, shrink_first, shrunk, added};
    return settings;
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

// The random numbers of RP-SON, m for each row.
const double* numbers_of(Learner& learner, const std::optional<In2<double>>& normal, Index rows) {
    const auto* random = dynamic_cast<const RandomProjection*>(&learner);
    if (!random) return nullptr;
    require(normal && length(*normal) == rows && static_cast<Index>(normal->shape(1)) == random->m,
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

void bind_learner(nb::module_& m) {
    nb::class_<PaperSettings>(m, "PaperSettings", "The settings of a learner of the paper.")
        .def("__init__", [](PaperSettings* self, int loss, double delta, double bound, int domain, int projection,
                            double mu, double rate, double power, double alpha0, bool shrink_first, Index shrunk,
                            double added) {
            new (self) PaperSettings(settings_of(loss, delta, bound, domain, projection, mu, rate, power, alpha0,
                                                 shrink_first, shrunk, added));
        }, "loss"_a, "delta"_a, "bound"_a, "domain"_a, "projection"_a, "mu"_a, "rate"_a, "power"_a, "alpha0"_a,
           "shrink_first"_a, "shrunk"_a, "added"_a);
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
        .def("arrays", [](Learner& learner) { return views_of(learner.parts()); },
             "Return the arrays of the state as views.")
        .def_prop_ro("extreme", &Learner::extreme,
                     "Since `begin`: 0 if all numbers are ordinary, 1 if some are huge, 2 if rows are huge or tiny.")
        .def_prop_ro("d", &Learner::features, "Number of features.");
}

// The constructors of models with d features and, for some, m rows of a sketch. Products of these sizes must not
// overflow.
void check_sizes(Index d, Index m) {
    require(1 <= d && d < Index(1) << 31 && 1 <= m && m < Index(1) << 24, "a model of this size is not possible");
}

template <class Model> void bind_first_order(nb::class_<Model, Learner> bound) {
    bound.def("__init__", [](Model* self, const PaperSettings& settings, Index d) {
        check_sizes(d, 1);
        new (self) Model(settings, d);
    }, "settings"_a, "d"_a);
}

template <class Model> void bind_random(nb::class_<Model, Learner> bound) {
    bound.def("__init__", [](Model* self, const PaperSettings& settings, Index d, Index m) {
        check_sizes(d, m);
        new (self) Model(settings, d, m);
    }, "settings"_a, "d"_a, "m"_a);
    bound.def_ro("m", &Model::m, "Number of rows of the sketch.");
}

template <class Model> nb::class_<Model, Learner> bind_model(nb::module_& m, const char* name, const char* doc) {
    nb::class_<Model, Learner> bound(m, name, doc);
    bound.def_rw("seen", &Model::seen, "Number of rows learned.");
    bound.def("copy", [](const Model& model) { return Model(model); }, "Return a copy.");
    return bound;
}

void bind_models(nb::module_& m) {
    bind_first_order(bind_model<AdaGrad>(m, "AdaGrad", "ADAGRAD."));
    bind_first_order(bind_model<GradientDescent>(m, "GradientDescent", "Online gradient descent."));
    bind_random(bind_model<RandomProjection>(m, "RandomProjection", "RP-SON."));
    bind_random(bind_model<Oja>(m, "Oja", "Oja-SON. The caller fills the array `yt` with orthonormal columns."));
    m.def("solve_projection", [](double alpha, In2<double> gram, In1<double> b, double square) {
        const Index size = length(gram);
        require(static_cast<Index>(gram.shape(1)) == size && length(b) == size, "the shapes do not match");
        std::vector<double> scratch((2 * size + 8) * size);
        const Direction found = random_basis().solve_projection(alpha, matrix(gram), b.data(), square, scratch.data());
        return nb::make_tuple(found.coef_x, numpy_array(std::vector<double>(found.coef_b, found.coef_b + size)),
                              found.kappa, numpy_array(std::vector<double>(found.outside_b, found.outside_b + size)),
                              found.n0);
    }, "alpha"_a, "gram"_a.noconvert(), "b"_a.noconvert(), "square"_a,
       "Return coef_x, coef_b, kappa, outside_b and n0 of RP-SON for a row with B x = b and x'x = square.");
}

}  // namespace

void bind_paper(nb::module_& m) {
    bind_losses(m);
    bind_progress(m);
    m.def("scatter_rows", scatter_rows, "x"_a, "out"_a.noconvert(), "Fill the dense array `out` with sparse rows.");
    bind_learner(m);
    bind_models(m);
    bind_newton(m);
}

}  // namespace robustfd

// Bindings of the untuned learner, and of single rows as dicts, without a detour through Python: names to columns, a
// step of the learner, its loss.
//
// Of single rows, anything unusual (a new name, a missing value, an unknown label, an event that is due, a busy model)
// is refused, and the caller takes the ordinary path, which handles it or raises an error.
#include "untuned.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "calibration.hpp"
#include "learning.hpp"
#include "names.hpp"
#include "progress.hpp"

namespace robustfd {

namespace {

using namespace nb::literals;

enum class Judge { classes, squared, absolute, pinball, poisson };  // which loss `progressive_loss_` averages

double* shares_of(Span<double> shares) {
    require(length(shares) == MAPS, "shares has another length than the maps");
    return shares.data();
}

// Fill the probabilities of the classes 0 and 1, given that of the label.
void set_chances(double* chances, double label, double p) {
    chances[label > 0.0] = p;
    chances[label <= 0.0] = 1.0 - p;
}

// What learns from the prediction of a row: a model of the sizes of residuals and one of quantiles (None for classes),
// the arrays of a tracker, and the least possible target. It is made of a tuple of these.
struct Watch {
    nb::object owner;
    Untuned *sizes, *quantiles;
    Tracker tracker;
    double floor;

    explicit Watch(const nb::tuple& parts)
        : owner(parts), sizes(model_in(parts[0])), quantiles(model_in(parts[1])),
          tracker(tracker_of(nb::cast<nb::tuple>(parts[2]), sizes != nullptr)), floor(nb::cast<double>(parts[3])) {
        require(!sizes || (quantiles && sizes->experts.outputs() == 1 && quantiles->experts.outputs() == 2 * PAIRS),
                "a model has other outputs");
    }

    // `p` is what the model would have read for a number, or the probability of the label y.
    void learn(const Rows& row, double y, double p, double weight) const {
        double size = 0.0, unused[2 * PAIRS], ends[2 * PAIRS], chances[2];
        if (sizes) {
            sizes->learn_one(row, std::abs(y - p), weight, unused, &size);
            quantiles->learn_one(row, y, weight, unused, ends);
            return tracker.number(y, p, size, ends, weight, floor);
        }
        set_chances(chances, y, p);
        tracker.label(y > 0.0 ? 1 : 0, chances, 2, weight);
    }

    // The number of features that all of them have.
    Index features(Index most) const {
        for (const Untuned* each : {sizes, quantiles})
            if (each) most = std::min(most, each->experts.features());
        return most;
    }

  private:
    static Untuned* model_in(nb::handle part) { return part.is_none() ? nullptr : &nb::cast<Untuned&>(part); }
};

class OneRow {
  public:
    OneRow(nb::object model, nb::object lock, nb::dict vocabulary, nb::object labels, Judge judge, double level,
           nb::object progress, nb::object shares, Span<const std::int32_t> usual, Index until, const nb::object& watch)
        : model_object_(std::move(model)),
          lock_object_(std::move(lock)),
          progress_object_(std::move(progress)),
          shares_object_(std::move(shares)),
          model_(nb::cast<Untuned&>(model_object_)),
          lock_(nb::cast<ModelLock&>(lock_object_)),
          progress_(table_of(nb::cast<Out2<double>>(progress_object_))),
          labels_(std::move(labels)),
          names_(std::move(vocabulary)),
          judge_(judge),
          level_(level),
          usual_(usual.begin(), usual.end()),
          until_(until) {
        if (!watch.is_none()) watch_.emplace(nb::cast<nb::tuple>(watch));
        if (judge_ == Judge::classes) {
            shares_ = shares_of(nb::cast<Span<double>>(shares_object_));
            for (auto [label, place] : nb::borrow<nb::dict>(labels_))
                classes_[nb::cast<Index>(place) > 0] = nb::borrow(label);
        }
    }

    // Learn a row before row number `until`; return whether that was possible.
    bool learn(nb::handle x, nb::handle y, nb::handle weight) {
        double target = 0.0, w = 1.0;
        if (model_.seen + 1 >= until_ || !PyDict_CheckExact(x.ptr()) || !read_target(y, target)) return false;
        if (!PyFloat_CheckExact(weight.ptr())) return false;
        w = PyFloat_AsDouble(weight.ptr());
        if (!(w > 0.0 && w < INFINITY) || !names_.convert(x, false) || !has_usual() || !fits()) return false;
        if (!lock_.try_enter(Lock::Use::write)) return false;
        const Leave leave{lock_};
        if (model_.seen + 1 >= until_ || model_.experts.is_full()) return false;
        double reading = 0.0, p = 0.0;
        model_.learn_one(names_.row(), target, w, &p, watch_ ? &reading : nullptr);
        const bool labelled = judge_ == Judge::classes, wrong = labelled && (p > 0.0) != (target > 0.0);
        const double chance = labelled ? recalibrate(shares_, target > 0.0 ? p : -p, w) : 0.0;  // of the label
        if (watch_) watch_->learn(names_.row(), target, labelled ? chance : reading, w);
        const double loss = labelled ? -std::log(chance) : loss_of(target, p);
        RFD_LEVEL::tally(progress_, loss, labelled ? (wrong ? 1.0 : 0.0) : NAN, w);
        return true;
    }

    // Return the prediction of a row, a label or a number, or None if the ordinary path must make it.
    nb::object predict(nb::handle x) {
        if (!PyDict_CheckExact(x.ptr()) || !names_.convert(x, true) || !has_usual() || !fits()) return nb::none();
        if (!lock_.try_enter(Lock::Use::read)) return nb::none();
        const Leave leave{lock_};
        const double p = model_.read_one(names_.row());
        if (!std::isfinite(p)) return nb::none();
        return judge_ == Judge::classes ? classes_[p > 0.0] : nb::float_(p);
    }

  private:
    bool read_target(nb::handle y, double& target) const {
        if (judge_ != Judge::classes) {
            if (!PyFloat_Check(y.ptr()) && !PyLong_Check(y.ptr())) return false;
            target = PyFloat_AsDouble(y.ptr());
            if (target == -1.0 && PyErr_Occurred()) return PyErr_Clear(), false;
            return std::abs(target) <= LARGEST && !(judge_ == Judge::poisson && target < 0.0);
        }
        PyObject* place = PyDict_GetItemWithError(labels_.ptr(), y.ptr());
        if (!place) return PyErr_Clear(), false;
        target = static_cast<double>(PyLong_AsLong(place));
        return true;
    }

    bool has_usual() const { return has_all(usual_, names_.columns); }
    bool fits() const {
        const Index own = model_.experts.features(), features = watch_ ? watch_->features(own) : own;
        return names_.columns.empty() || names_.columns.back() < features;
    }

    double loss_of(double y, double p) const {
        const double off = y - p;
        switch (judge_) {
            case Judge::absolute: return std::abs(off);
            case Judge::pinball: return off * (level_ - (off < 0.0 ? 1.0 : 0.0));
            case Judge::poisson: return 2.0 * ((y > 0.0 ? y * std::log(y) - y * std::log(p) : 0.0) - off);
            default: return off * off;
        }
    }

    nb::object model_object_, lock_object_, progress_object_, shares_object_;
    Untuned& model_;
    Lock& lock_;
    Progress* progress_;
    double* shares_ = nullptr;  // of the maps of calibration.hpp
    nb::object labels_;         // the places 0 and 1 of two labels by label, or None
    nb::object classes_[2];     // the labels by place
    Names names_;
    Judge judge_;
    double level_;
    std::vector<std::int32_t> usual_;  // ascending
    Index until_;
    std::optional<Watch> watch_;
};

void bind_one_row(nb::module_& m) {
    nb::enum_<Judge>(m, "Judge", "Which loss `progressive_loss_` averages.")
        .value("classes", Judge::classes)
        .value("squared", Judge::squared)
        .value("absolute", Judge::absolute)
        .value("pinball", Judge::pinball)
        .value("poisson", Judge::poisson);
    nb::class_<OneRow>(m, "OneRow", "Learns and predicts single dicts of a fitted model.")
        .def(nb::init<nb::object, nb::object, nb::dict, nb::object, Judge, double, nb::object, nb::object,
                      Span<const std::int32_t>, Index, const nb::object&>(),
             "model"_a, "lock"_a, "vocabulary"_a, "labels"_a.none(), "judge"_a, "level"_a, "progress"_a,
             "shares"_a.none(), "usual"_a, "until"_a, "watch"_a.none())
        .def("learn", &OneRow::learn, "x"_a, "y"_a, "weight"_a, "Learn a dict; return whether that was possible.")
        .def("predict", &OneRow::predict, "x"_a, nb::sig("def predict(self, x: object) -> typing.Any"),
             "Return the prediction of a dict, or None if the ordinary path must make it.");
}

}  // namespace

void bind_untuned(nb::module_& m) {
    nb::class_<Kept>(m, "Kept", "What rows may change in an untuned learner.");
    m.attr("INTERCEPT") = INTERCEPT;
    m.attr("GAMMA") = GAMMA;
    m.attr("WINDOWS") = WINDOWS;
    m.attr("CENTRE_ROWS") = CENTRE_ROWS;
    m.attr("OFFERED") = OFFERED;
    m.attr("LINE") = LINE;
    m.attr("ROUND_OFF") = ROUND_OFF;
    m.attr("HEAVIEST") = HEAVIEST;
    m.attr("LARGEST_TARGET") = LARGEST_TARGET;
    m.attr("FOLLOW_SHARE") = nb::make_tuple(FOLLOW_SHARE[0], FOLLOW_SHARE[1], FOLLOW_SHARE[2], FOLLOW_SHARE[3]);
    nb::enum_<Lesson>(m, "Lesson", "What rows are: new, the first rows again, or known from an earlier pass.")
        .value("fresh", Lesson::fresh)
        .value("replayed", Lesson::replayed)
        .value("known", Lesson::known);
    nb::class_<Untuned>(m, "Untuned", "The experts of the untuned learner.")
        .def(nb::init<>())
        .def_rw("seen", &Untuned::seen, "The number of rows so far.")
        .def("arrays", &Untuned::arrays, nb::sig("def arrays(self) -> dict[str, numpy.typing.NDArray[typing.Any]]"),
             "Return views of all arrays by name; records are rows of float64.")
        .def("replace", &Untuned::replace, "arrays"_a, "Replace some arrays by copies of the given ones.")
        .def("learn", &Untuned::learn, "x"_a, "y"_a, "weight"_a, "margins"_a, "readings"_a.none(), "first"_a, "last"_a,
             "lesson"_a,
             "Learn rows and fill their predictions before each step, and what `read` would have predicted then; return "
             "the row at which the sketch was full.")
        .def("read", &Untuned::read, "x"_a, "margins"_a, "Fill the predictions of rows.")
        .def("doubt", &Untuned::doubt, "x"_a, "margins"_a, "variances"_a,
             "Fill the predictions of rows and their variances.")
        .def("explain", &Untuned::explain, "x"_a, "effects"_a.noconvert(), "indptr"_a, "which"_a, "parts"_a,
             "List the contributions of features to predictions.")
        .def(
            "keep",
            [](Untuned& self, Index rows, std::optional<Span<const std::int32_t>> features) {
                return Kept(self.experts, rows, features.value_or(Span<const std::int32_t>()), !features);
            },
            "rows"_a, "features"_a.none(), "Return what `undo` needs to forget rows with these features, None for all.")
        .def(
            "undo", [](Untuned& self, const Kept& kept) { kept.restore(self.experts); }, "kept"_a,
            "Restore the state at the time of `keep`.")
        .def("first_scales", &Untuned::first_scales, "which"_a, "Set the scales of features.")
        .def("renew_exact", &Untuned::renew_exact, "faded"_a, "Update the exact Hessian.")
        .def("learn_again", &Untuned::learn_again, "x"_a, "y"_a, "weight"_a, "margins"_a, "renewals"_a,
             "Learn all rows without statistics of features, and update the exact Hessian after some of them.")
        .def(
            "__deepcopy__", [](const Untuned& self, nb::handle) { return Untuned(self.experts, self.seen); }, "memo"_a);
    m.def(
        "implicit_steps",
        [](Span<const float> z, Span<const float> length, Span<float> chance, Span<float> step) {
            const std::size_t n = z.size();
            require(n == length.size() && n == chance.size() && n == step.size(), "the lengths differ");
            require(n % LONGEST_VECTOR == 0, "the lengths must be multiples of 16");
            untuned_loops().implicit_steps(z.data(), length.data(), chance.data(), step.data(), static_cast<Index>(n));
        },
        "z"_a, "length"_a, "chance"_a, "step"_a,
        "Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)).");
    m.attr("STEEPNESS") = std::vector<double>(STEEPNESS, STEEPNESS + MAPS);
    m.attr("NOISE") = std::vector<double>(NOISE, NOISE + MAPS);
    m.attr("FIRST_SHARE") = std::vector<double>(FIRST_SHARE, FIRST_SHARE + MAPS);
    m.def(
        "recalibrate",
        [](Span<double> shares, Span<const double> margins, Span<const double> y, Span<const double> weight,
           Span<double> losses, Matrix<double> chances) {
            const Index n = length(margins);
            require(n == length(y) && n == length(weight) && n == length(losses), "the lengths differ");
            require(chances.rows == n && chances.cols == 2, "chances has another shape");
            double* share = shares_of(shares);
            for (Index i = 0; i < n; ++i) {
                const double chance = recalibrate(share, y[i] > 0.0 ? margins[i] : -margins[i], weight[i]);
                losses[i] = -std::log(chance);
                set_chances(chances[i], y[i], chance);
            }
        },
        "shares"_a.noconvert(), "margins"_a, "y"_a, "weight"_a, "losses"_a.noconvert(), "chances"_a.noconvert(),
        "Fill log losses and probabilities (n, 2) of rows of two classes, 0 and 1, and update the shares of the maps.");
    bind_one_row(m);
}

}  // namespace robustfd

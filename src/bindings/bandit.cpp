// Bindings of bandits: the doubts of all arms about a row, choices, and single dicts without a detour through Python.
#include "bandit.hpp"

#include "learning.hpp"
#include "names.hpp"
#include "progress.hpp"
#include "untuned.hpp"

namespace robustfd {

namespace {

using namespace nb::literals;

// The models of the arms. An arm without a model has not been pulled.
std::vector<Untuned*> models_of(const nb::list& arms) {
    std::vector<Untuned*> models;
    for (nb::handle arm : arms) models.push_back(arm.is_none() ? nullptr : &nb::cast<Untuned&>(arm));
    return models;
}

// Chooses and learns for dicts or, with a width, for arrays of so many numbers. Each arm has a model, which learns only
// before its row number `until`, and all of them together learn fewer than `left` rows.
class OneChoice {
  public:
    OneChoice(nb::list models, nb::dict places, nb::object lock, nb::dict vocabulary, Index width,
              Span<const std::int32_t> usual,
              nb::object until, Index left, nb::object choices, nb::object pulls, nb::object range,
              nb::object progress, bool costs, double epsilon, double prior, std::uint64_t seed)
        : owner_(std::move(models)), places_(std::move(places)), lock_object_(std::move(lock)),
          owners_{until, choices, pulls, range, progress}, models_(models_of(owner_)),
          lock_(nb::cast<ModelLock&>(lock_object_)), names_(std::move(vocabulary)), width_(width),
          usual_(usual.begin(), usual.end()), until_(nb::cast<Span<const Index>>(until)), left_(left),
          choices_(nb::cast<Span<Index>>(choices)), pulls_(nb::cast<Span<Index>>(pulls)),
          range_(nb::cast<Span<const double>>(range)), progress_(table_of(nb::cast<Out2<double>>(progress))),
          best_(costs ? 0 : 1), epsilon_(epsilon), seed_(seed), margin_(models_.size()),
          variance_(models_.size(), prior), probability_(models_.size()) {
        require(until_.size() == models_.size() && pulls_.size() == models_.size(), "the numbers of arms differ");
        require(choices_.size() == 1 && range_.size() == 2 && !models_.empty(), "a count or the range is missing");
    }

    // Return the place and the probability of the chosen arm, or None if the ordinary path must choose.
    nb::object choose(nb::handle x) {
        if (!convert(x, true) || !lock_.try_enter(Lock::Use::write)) return nb::none();
        const Leave leave{lock_};
        for (std::size_t a = 0; a < models_.size(); ++a) {
            if (!models_[a]) continue;
            if (last_ >= models_[a]->experts.features()) return nb::none();
            models_[a]->doubt_one(row_, margin_[a], variance_[a]);
            if (!std::isfinite(margin_[a])) return nb::none();
        }
        const auto count = static_cast<Index>(models_.size());
        choose_probabilities(margin_.data(), variance_.data(), count, epsilon_, probability_.data());
        const double drawn = draw(seed_, static_cast<std::uint64_t>(choices_[0]++));
        const Index arm = drawn_arm(probability_.data(), count, drawn);
        return nb::make_tuple(arm, probability_[static_cast<std::size_t>(arm)]);
    }

    // Learn the reward of an arm; return whether that was possible. The reward is one of the ends of the range.
    bool learn(nb::handle x, nb::handle arm, nb::handle number) {
        if (!PyUnicode_CheckExact(arm.ptr()) && !PyLong_CheckExact(arm.ptr())) return false;
        PyObject* place = PyDict_GetItemWithError(places_.ptr(), arm.ptr());
        if (!place || !PyFloat_CheckExact(number.ptr())) return PyErr_Clear(), false;
        const auto a = static_cast<std::size_t>(PyLong_AsLong(place));
        const double reward = PyFloat_AsDouble(number.ptr());
        Untuned* model = a < models_.size() ? models_[a] : nullptr;
        if (!model || (reward != range_[0] && reward != range_[1]) || range_[0] == range_[1]) return false;
        if (!convert(x, false) || last_ >= model->experts.features()) return false;
        if (!lock_.try_enter(Lock::Use::write)) return false;
        const Leave leave{lock_};
        if (left_ <= 1 || model->seen + 1 >= until_[a] || model->experts.is_full()) return false;
        --left_;
        model->learn_one(row_, reward == range_[best_] ? 1.0 : 0.0, 1.0);
        ++pulls_[a];
        RFD_LEVEL::tally(progress_, reward, NAN, 1.0);
        return true;
    }

  private:
    using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    bool convert(nb::handle x, bool known_only) {
        if (width_ > 0) {
            if (!nb::try_cast(x, numbers_, false) || length(numbers_) != width_) return false;
            const double* values = numbers_.data();
            for (Index j = 0; j < width_; ++j)
                if (!(std::abs(values[j]) <= LARGEST)) return false;
            row_ = {values, nullptr, nullptr, 1, width_};
            last_ = width_ - 1;
            return true;
        }
        if (!PyDict_CheckExact(x.ptr()) || !names_.convert(x, known_only)) return false;
        if (!has_all(usual_, names_.columns)) return false;
        row_ = names_.row();
        last_ = names_.columns.empty() ? -1 : names_.columns.back();
        return true;
    }

    nb::list owner_;
    nb::dict places_;  // of the arms by name
    nb::object lock_object_, owners_[5];
    std::vector<Untuned*> models_;
    Lock& lock_;
    Names names_;
    Index width_;      // of arrays, 0 for dicts
    Numbers numbers_;  // the last array
    Rows row_;
    Index last_ = -1;  // the last column of the row
    std::vector<std::int32_t> usual_;  // ascending
    Span<const Index> until_;
    Index left_;  // rows until Python looks at all of them again
    Span<Index> choices_, pulls_;
    Span<const double> range_;
    Progress* progress_;
    std::size_t best_;  // the better end of the range
    double epsilon_;
    std::uint64_t seed_;
    std::vector<double> margin_, variance_, probability_;
};

}  // namespace

void bind_bandit(nb::module_& m) {
    m.def("choose_probabilities",
          [](Matrix<const double> margins, Matrix<const double> variances, double epsilon, Matrix<double> out) {
              require(margins.rows == variances.rows && margins.rows == out.rows && margins.cols == variances.cols &&
                          margins.cols == out.cols,
                      "the shapes differ");
              for (Index i = 0; i < out.rows; ++i)
                  choose_probabilities(margins[i], variances[i], out.cols, epsilon, out[i]);
          },
          "margins"_a, "variances"_a, "epsilon"_a, "out"_a, Unlocked(), "Fill the probabilities of arms, row by row.");
    m.def("draw_arm", [](Span<const double> probabilities, std::uint64_t seed, std::uint64_t number) {
        return drawn_arm(probabilities.data(), length(probabilities), draw(seed, number));
    }, "probabilities"_a, "seed"_a, "number"_a, "Return the arm of draw `number` of a seed.");
    nb::class_<OneChoice>(m, "OneChoice", "Chooses and learns for single dicts of a fitted bandit.")
        .def(nb::init<nb::list, nb::dict, nb::object, nb::dict, Index, Span<const std::int32_t>, nb::object, Index,
                      nb::object, nb::object, nb::object, nb::object, bool, double, double, std::uint64_t>(),
             "models"_a, "places"_a, "lock"_a, "vocabulary"_a, "width"_a, "usual"_a, "until"_a, "left"_a, "choices"_a,
             "pulls"_a, "range"_a, "progress"_a, "costs"_a, "epsilon"_a, "prior"_a, "seed"_a)
        .def("choose", &OneChoice::choose, "x"_a, nb::sig("def choose(self, x: object) -> tuple[int, float] | None"),
             "Return the place and probability of the chosen arm, or None if the ordinary path must choose.")
        .def("learn", &OneChoice::learn, "x"_a, "arm"_a, "reward"_a,
             "Learn the reward of an arm; return whether that was possible.");
}

}  // namespace robustfd

// Bindings of bandits: probabilities of choices, and single rows without a detour through Python.
//
// Anything unusual (a new name, a new arm, a missing value, a busy model) is refused, and the caller takes the ordinary
// path, which handles it or raises an error.
#include "bandit.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "learning.hpp"
#include "names.hpp"
#include "progress.hpp"
#include "untuned.hpp"

namespace robustfd {

namespace {

using namespace nb::literals;

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Indices = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A context as a row: a dict, an array of `width` numbers, or a pair of ascending indices below `width` and values.
class Context {
  public:
    Context(const std::string& kind, nb::dict vocabulary, Index width, Span<const std::int32_t> usual)
        : names_(std::move(vocabulary)), dicts_(kind == "dicts"), fixed_(kind == "rows"), width_(width),
          usual_(usual.begin(), usual.end()) {}

    Rows row;
    Index last = -1;  // its last column

    // Convert a context; return whether that was possible. New features are refused, or ignored if `known_only`.
    bool convert(nb::handle x, bool known_only) {
        if (PyTuple_CheckExact(x.ptr())) return !dicts_ && convert_pair(x, known_only);
        if (fixed_) return convert_array(x);
        if (!dicts_ || !PyDict_CheckExact(x.ptr()) || !names_.convert(x, known_only)) return false;
        if (!has_all(usual_, names_.columns)) return false;
        row = names_.row();
        last = names_.columns.empty() ? -1 : names_.columns.back();
        return true;
    }

  private:
    bool convert_array(nb::handle x) {
        if (!nb::try_cast(x, values_, false) || length(values_) != width_) return false;
        const double* values = values_.data();
        for (Index j = 0; j < width_; ++j)
            if (!(std::abs(values[j]) <= LARGEST)) return false;
        row = {values, nullptr, nullptr, 1, width_};
        last = width_ - 1;
        return true;
    }

    bool convert_pair(nb::handle x, bool known_only) {
        if (PyTuple_GET_SIZE(x.ptr()) != 2 || !nb::try_cast(x[1], values_, false)) return false;
        Indices<std::int32_t> narrow;
        Indices<Index> wide;
        columns_.clear();
        if (nb::try_cast(x[0], narrow, false)) columns_.assign(narrow.data(), narrow.data() + narrow.size());
        else if (nb::try_cast(x[0], wide, false)) columns_.assign(wide.data(), wide.data() + wide.size());
        else return false;
        if (columns_.size() != values_.size()) return false;
        last = -1;
        ends_[1] = 0;
        for (std::size_t k = 0; k < columns_.size(); ++k) {
            if (columns_[k] <= last || !(std::abs(values_.data()[k]) <= LARGEST)) return false;
            if (columns_[k] >= width_ && (fixed_ || !known_only)) return false;
            last = columns_[k];
            ends_[1] += last < width_;
        }
        if (last >= INT32_MAX) return false;
        kept_.assign(columns_.begin(), columns_.begin() + ends_[1]);
        last = kept_.empty() ? -1 : kept_.back();
        row = {values_.data(), kept_.data(), ends_, 1, 0};
        return true;
    }

    Names names_;
    bool dicts_, fixed_;  // fixed: arrays, or pairs without new indices
    Index width_;
    std::vector<std::int32_t> usual_;  // ascending
    Doubles values_;                   // of the last array or pair
    std::vector<Index> columns_;
    std::vector<std::int32_t> kept_;  // the known ones of these
    Index ends_[2] = {0, 0};
};

// Products of a context with named arms, for arms that share a learner; see Together in estimators/_arms.py.
class Products {
  public:
    explicit Products(Index capacity) : capacity_(capacity) {}

    void begin(const Rows& context) {
        columns_.clear(), values_.clear();
        const Index n = context.indptr ? context.indptr[1] : context.width;
        for (Index k = 0; k < n; ++k) {
            if (!context.indptr && context.data[k] == 0.0) continue;
            columns_.push_back(context.indptr ? context.indices[k] + 1 : static_cast<std::int32_t>(k + 1));
            values_.push_back(context.data[k]);
        }
        size_ = columns_.size();
        columns_.resize(2 * size_ + 1);
        values_.push_back(1.0);
        for (std::size_t k = 0; k < size_; ++k) values_.push_back(values_[k]);
    }

    // The row of an arm in this context; its columns are below `end`.
    Rows with(std::size_t arm) {
        const auto base = static_cast<std::int32_t>(end(arm) - capacity_);
        columns_[size_] = base;
        for (std::size_t k = 0; k < size_; ++k) columns_[size_ + 1 + k] = base + columns_[k];
        ends_[1] = static_cast<Index>(columns_.size());
        return {values_.data(), columns_.data(), ends_, 1, 0};
    }
    Index end(std::size_t arm) const { return (static_cast<Index>(arm) + 2) * capacity_; }

  private:
    Index capacity_, ends_[2] = {0, 0};
    std::size_t size_ = 0;  // entries of the context
    std::vector<std::int32_t> columns_;
    std::vector<double> values_;
};

// Chooses and learns for single rows. Each arm has a learner, or with a `capacity` all of them share the first one. At
// row number `until` of a learner `on_event` learns, and all of them together learn fewer than `left` rows.
class OneChoice {
  public:
    OneChoice(nb::list states, nb::dict places, nb::object lock, const std::string& kind, nb::dict vocabulary,
              Index width, Span<const std::int32_t> usual, Index capacity, nb::object csr, nb::object on_event,
              std::vector<Index> until, Index left, nb::object choices, nb::object pulls, nb::object range,
              nb::object progress, bool costs, double epsilon, double prior, std::uint64_t seed)
        : states_(std::move(states)), places_(std::move(places)), lock_object_(std::move(lock)),
          owners_{choices, pulls, range, progress}, csr_(std::move(csr)), on_event_(std::move(on_event)),
          lock_(nb::cast<ModelLock&>(lock_object_)), context_(kind, std::move(vocabulary), width, usual),
          together_(capacity > 0), products_(capacity), capacity_(capacity), until_(std::move(until)), left_(left),
          choices_(nb::cast<Span<Index>>(choices)), pulls_(nb::cast<Span<Index>>(pulls)),
          range_(nb::cast<Span<const double>>(range)), progress_(table_of(nb::cast<Out2<double>>(progress))),
          costs_(costs), epsilon_(epsilon), prior_(prior), seed_(seed) {
        for (nb::handle state : states_)
            models_.push_back(state.is_none() ? nullptr : &nb::cast<Untuned&>(state.attr("core")));
        require(until_.size() == models_.size(), "the numbers of learners differ");
        require(pulls_.size() == places_.size() && models_.size() == (together_ ? 1 : pulls_.size()),
                "the numbers of arms differ");
        require(choices_.size() == 1 && range_.size() == 2 && !pulls_.empty(), "a count or the range is missing");
    }

    // Return the place among `arms` and the probability of the chosen arm, or None if the ordinary path must choose.
    nb::object choose(nb::handle x, nb::handle arms) {
        if (!lock_.try_enter(Lock::Use::write)) return nb::none();
        const Leave leave{lock_};
        if (!find(arms) || !convert(x, true)) return nb::none();
        for (std::size_t i = 0; i < given_.size(); ++i) {
            Untuned* model = model_of(given_[i]);
            margin_[i] = 0.0, variance_[i] = prior_;
            if (!model || (together_ && model->seen == 0)) continue;
            if (end_of(given_[i]) > model->experts.features()) return nb::none();
            model->doubt_one(row_of(given_[i]), margin_[i], variance_[i]);
            if (!std::isfinite(margin_[i])) return nb::none();
        }
        const auto count = static_cast<Index>(given_.size());
        choose_probabilities(margin_.data(), variance_.data(), count, epsilon_, probability_.data());
        const double drawn = draw(seed_, static_cast<std::uint64_t>(choices_[0]++));
        const Index arm = drawn_arm(probability_.data(), count, drawn);
        return nb::make_tuple(arm, probability_[static_cast<std::size_t>(arm)]);
    }

    // Learn the reward of an arm, inside the range of rewards; return whether that was possible.
    bool learn(nb::handle x, nb::handle arm, nb::handle number) {
        if (!PyFloat_Check(number.ptr()) && !PyLong_CheckExact(number.ptr())) return false;
        const double reward = PyFloat_AsDouble(number.ptr()), low = range_[0], high = range_[1];
        if (PyErr_Occurred()) PyErr_Clear();  // an integer that is too large
        if (!(low <= reward && reward <= high) || !lock_.try_enter(Lock::Use::write)) return false;
        const Leave leave{lock_};
        const Index place = place_of(arm);
        if (place < 0 || !convert(x, false)) return false;
        const auto a = static_cast<std::size_t>(place);
        if (low < high && !learn_good(a, (reward - low) / (high - low))) return false;
        ++pulls_[a];
        RFD_LEVEL::tally(progress_, reward, NAN, 1.0);
        return true;
    }

  private:
    Untuned* model_of(std::size_t arm) const { return models_[together_ ? 0 : arm]; }
    Rows row_of(std::size_t arm) { return together_ ? products_.with(arm) : context_.row; }
    Index end_of(std::size_t arm) const { return together_ ? products_.end(arm) : context_.last + 1; }

    bool convert(nb::handle x, bool known_only) {
        if (!context_.convert(x, known_only)) return false;
        if (!together_) return true;
        if (context_.last + 1 >= capacity_) return false;
        products_.begin(context_.row);
        return true;
    }

    Index place_of(nb::handle arm) const {
        if (!PyUnicode_CheckExact(arm.ptr()) && !PyLong_CheckExact(arm.ptr())) return -1;
        PyObject* place = PyDict_GetItemWithError(places_.ptr(), arm.ptr());
        return place ? PyLong_AsLong(place) : (PyErr_Clear(), -1);
    }

    // List the places of the given arms, by default of all; return whether all are known and differ.
    bool find(nb::handle arms) {
        const std::size_t all = pulls_.size();
        given_.clear();
        if (arms.is_none()) {
            for (std::size_t a = 0; a < all; ++a) given_.push_back(a);
        } else {
            if (!PyList_CheckExact(arms.ptr())) return false;
            taken_.assign(all, 0);
            for (nb::handle arm : nb::borrow<nb::list>(arms)) {
                const Index place = place_of(arm);
                if (place < 0 || taken_[static_cast<std::size_t>(place)]++) return false;
                given_.push_back(static_cast<std::size_t>(place));
            }
        }
        for (std::vector<double>* each : {&margin_, &variance_, &probability_}) each->resize(given_.size());
        return !given_.empty();
    }

    // Learn a reward scaled to [0, 1]. Between the ends it counts as a good row and a bad row.
    bool learn_good(std::size_t a, double good) {
        const std::size_t m = together_ ? 0 : a;
        Untuned* model = models_[m];
        if (!model || end_of(a) > model->experts.features()) return false;
        if (costs_) good = 1.0 - good;
        const bool ends = good == 0.0 || good == 1.0;
        const double label[2] = {ends ? good : 1.0, 0.0}, weight[2] = {ends ? 1.0 : good, 1.0 - good};
        const Index count = ends ? 1 : 2;
        if (left_ <= count) return false;
        const Rows row = row_of(a);
        const Experts& e = model->experts;
        const bool full = e.has_sketch() && e.filled[0] + count > e.buffer.shape(0);
        if (full || model->seen + count >= until_[m]) {
            until_[m] = nb::cast<Index>(on_event_(states_[m], *stored(row, label, weight, count)));
        } else {
            const bool young = model->seen < nb::cast<Index>(states_[m].attr("first"));
            if (young) states_[m].attr("kept").attr("append")(stored(row, label, weight, count));
            double margin;
            for (Index k = 0; k < count; ++k) model->learn_one(row, label[k], weight[k], &margin);
        }
        left_ -= count;
        return true;
    }

    // Return copies of a row for its labels, with these and their weights.
    nb::tuple stored(const Rows& row, const double* label, const double* weight, Index count) const {
        const auto copies = static_cast<std::size_t>(count);
        const auto n = static_cast<std::size_t>(row.entries(0, 1));
        std::vector<double> values;
        for (Index k = 0; k < count; ++k) values.insert(values.end(), row.data, row.data + n);
        nb::object rows;
        if (!row.indptr) {
            rows = nb::cast(numpy_array(std::move(values), {copies, n}));
        } else {
            std::vector<std::int32_t> columns;
            std::vector<Index> ends{0};
            for (Index k = 0; k < count; ++k) {
                columns.insert(columns.end(), row.indices, row.indices + n);
                ends.push_back(static_cast<Index>(columns.size()));
            }
            rows = csr_(numpy_array(std::move(values)), numpy_array(std::move(columns)), numpy_array(std::move(ends)));
        }
        return nb::make_tuple(rows, numpy_array(std::vector<double>(label, label + count)),
                              numpy_array(std::vector<double>(weight, weight + count)));
    }

    nb::list states_;
    nb::dict places_;  // of the arms by name
    nb::object lock_object_, owners_[4], csr_, on_event_;
    std::vector<Untuned*> models_;  // an arm without a model has not been pulled
    Lock& lock_;
    Context context_;
    bool together_;
    Products products_;
    Index capacity_;
    std::vector<Index> until_;
    Index left_;  // rows until Python looks at all of them again
    Span<Index> choices_, pulls_;
    Span<const double> range_;
    Progress* progress_;
    bool costs_;
    double epsilon_, prior_;
    std::uint64_t seed_;
    std::vector<std::size_t> given_;  // places of the arms to choose from
    std::vector<char> taken_;
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
    nb::class_<OneChoice>(m, "OneChoice", "Chooses and learns for single rows of a fitted bandit.")
        .def(nb::init<nb::list, nb::dict, nb::object, const std::string&, nb::dict, Index, Span<const std::int32_t>,
                      Index, nb::object, nb::object, std::vector<Index>, Index, nb::object, nb::object, nb::object,
                      nb::object, bool, double, double, std::uint64_t>(),
             "states"_a, "places"_a, "lock"_a, "kind"_a, "vocabulary"_a, "width"_a, "usual"_a, "capacity"_a, "csr"_a,
             "on_event"_a, "until"_a, "left"_a, "choices"_a, "pulls"_a, "range"_a, "progress"_a, "costs"_a,
             "epsilon"_a, "prior"_a, "seed"_a)
        .def("choose", &OneChoice::choose, "x"_a, "arms"_a = nb::none(),
             nb::sig("def choose(self, x: object, arms: object = None) -> tuple[int, float] | None"),
             "Return the place and probability of the chosen arm, or None if the ordinary path must choose.")
        .def("learn", &OneChoice::learn, "x"_a, "arm"_a, "reward"_a,
             "Learn the reward of an arm; return whether that was possible.");
}

}  // namespace robustfd

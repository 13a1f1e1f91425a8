// Bindings of the untuned learner, and of single rows as dicts, without a detour through Python: names to columns, a
// step of the learner, its loss.
//
// Of single rows, anything unusual (a new name, a missing value, an unknown label, an event that is due, a busy model)
// is refused, and the caller takes the ordinary path, which handles it or raises an error.
#include "untuned.hpp"

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>

#include "learning.hpp"
#include "progress.hpp"
#include "words.hpp"

namespace robustfd {

namespace {

using namespace nb::literals;

constexpr double LARGEST = 1e150;  // squares of larger numbers can overflow

// The columns of the names in a dict. Most dicts of a stream have the same names in the same order, so the columns of
// the last dict are kept, with references to its names.
class Names {
  public:
    explicit Names(nb::dict vocabulary) : vocabulary_(std::move(vocabulary)) {}

    std::vector<std::int32_t> columns;  // of the last row, ascending
    std::vector<double> values;

    // Convert a dict; return whether that was possible. Unknown names are refused, or ignored if `known_only`.
    bool convert(nb::handle x, bool known_only) {
        found_.clear();
        numbers_.clear();
        PyObject *key = nullptr, *value = nullptr;
        Py_ssize_t at = 0;
        std::size_t place = 0;
        while (PyDict_Next(x.ptr(), &at, &key, &value)) {
            // Other names may run Python code when they are compared, which may let another thread use this object.
            if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) return false;
            double number = 1.0;
            Index column = -1;
            if (PyUnicode_Check(value)) {
                const auto text = letters_of(value);
                if (!text) return false;
                const std::vector<Term>& terms = terms_.of(*text);
                if (terms.size() > 1) {
                    if (!add_terms(key, terms, known_only)) return false;
                    ++place;
                    continue;
                }
                column = column_of_text(key, value);
            } else {
                if (!read_number(value, number)) return false;
                column = column_of(key, place);
            }
            ++place;
            if (column < 0) {
                if (!known_only) return false;
                continue;
            }
            found_.push_back(static_cast<std::int32_t>(column));
            numbers_.push_back(number);
        }
        return sort();
    }

  private:
    static bool read_number(PyObject* value, double& number) {
        if (PyFloat_Check(value)) {
            number = PyFloat_AsDouble(value);
        } else if (PyLong_Check(value)) {
            number = PyLong_AsDouble(value);
            if (number == -1.0 && PyErr_Occurred()) return PyErr_Clear(), false;
        } else {
            return false;
        }
        return std::abs(number) <= LARGEST;  // false for NaN, which is a missing value
    }

    static std::optional<Text> letters_of(PyObject* text) {
        Py_ssize_t size = 0;
        const char* letters = PyUnicode_AsUTF8AndSize(text, &size);
        if (!letters) return PyErr_Clear(), std::nullopt;
        return Text(reinterpret_cast<const Letter*>(letters), static_cast<std::size_t>(size));
    }

    // Add the features "name=term"; return whether all are known, or may be ignored.
    bool add_terms(PyObject* key, const std::vector<Term>& terms, bool known_only) {
        const nb::object prefix = nb::steal(PyUnicode_FromFormat("%S=", key));
        if (!prefix.is_valid()) throw nb::python_error();
        const auto letters = letters_of(prefix.ptr());
        if (!letters) return false;
        std::string name(letters->begin(), letters->end());
        for (const Term& term : terms) {
            name.resize(letters->size());
            name.append(term.name.begin(), term.name.end());
            const nb::object held = nb::steal(PyUnicode_FromStringAndSize(name.data(), std::ssize(name)));
            if (!held.is_valid()) throw nb::python_error();
            const Index column = look_up(vocabulary_.ptr(), held.ptr());
            if (column < 0 && !known_only) return false;
            if (column < 0) continue;
            found_.push_back(static_cast<std::int32_t>(column));
            numbers_.push_back(term.value);
        }
        return true;
    }

    // Whether two names are the same text. Keys of dicts have their hashes, so most that differ are told apart by them.
    static bool same_name(PyObject* a, PyObject* b) {
        if (a == b) return true;
        if (!a || !PyUnicode_CheckExact(a) || !PyUnicode_CheckExact(b)) return false;
        return PyObject_Hash(a) == PyObject_Hash(b) && PyUnicode_Compare(a, b) == 0;
    }

    // The column of a name, or -1; `place` is its place in the dict.
    Index column_of(PyObject* key, std::size_t place) {
        if (place < last_.size() && same_name(last_[place].name.ptr(), key)) return last_[place].column;
        const Index column = look_up(vocabulary_.ptr(), key);
        if (column >= 0) {
            if (place >= last_.size()) last_.resize(place + 1, Last{nb::object(), -1});
            last_[place] = {nb::borrow(key), column};
        }
        return column;
    }

    // The column of the feature "name=value", or -1.
    Index column_of_text(PyObject* key, PyObject* value) {
        PyObject* known = PyDict_GetItemWithError(texts_.ptr(), key);
        if (!known) {
            if (PyErr_Occurred()) throw nb::python_error();
            texts_[nb::handle(key)] = nb::dict();
            known = PyDict_GetItemWithError(texts_.ptr(), key);
        }
        Index column = look_up(known, value);
        if (column >= 0) return column;
        const nb::object name = nb::steal(PyUnicode_FromFormat("%S=%U", key, value));
        if (!name.is_valid()) throw nb::python_error();
        column = look_up(vocabulary_.ptr(), name.ptr());
        if (column >= 0) nb::borrow<nb::dict>(known)[nb::handle(value)] = nb::int_(column);
        return column;
    }

    static Index look_up(PyObject* names, PyObject* key) {
        PyObject* found = PyDict_GetItemWithError(names, key);
        if (!found) {
            if (PyErr_Occurred()) throw nb::python_error();
            return -1;
        }
        return PyLong_AsLongLong(found);
    }

    // Sort the entries by column; return false if a column occurs twice. Dicts with the same names share their order.
    bool sort() {
        if (found_ != sorted_) {
            order_.resize(found_.size());
            for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
            std::sort(order_.begin(), order_.end(), [&](auto i, auto k) { return found_[i] < found_[k]; });
            columns.resize(found_.size());
            for (std::size_t i = 0; i < order_.size(); ++i) columns[i] = found_[order_[i]];
            sorted_.clear();
            if (std::adjacent_find(columns.begin(), columns.end()) != columns.end()) return false;
            sorted_ = found_;
        }
        values.resize(numbers_.size());
        for (std::size_t i = 0; i < order_.size(); ++i) values[i] = numbers_[order_[i]];
        return true;
    }

    struct Last {
        nb::object name;
        Index column;
    };
    nb::dict vocabulary_, texts_;
    std::vector<Last> last_;
    std::vector<std::int32_t> found_, sorted_;  // columns in the order of the dict; those that `order_` sorts
    std::vector<double> numbers_;               // values in the order of the dict
    std::vector<std::size_t> order_;
    Terms terms_;
};

enum class Judge { classes, squared, absolute, pinball, poisson };  // which loss `progressive_loss_` averages

class OneRow {
  public:
    OneRow(nb::object model, nb::object lock, nb::dict vocabulary, nb::object labels, Judge judge, double level,
           nb::object progress, Span<const std::int32_t> usual, Index until)
        : model_object_(std::move(model)), lock_object_(std::move(lock)), progress_object_(std::move(progress)),
          model_(nb::cast<Untuned&>(model_object_)), lock_(nb::cast<ModelLock&>(lock_object_)),
          progress_(table_of(nb::cast<Out2<double>>(progress_object_))), labels_(std::move(labels)),
          names_(std::move(vocabulary)), judge_(judge), level_(level), usual_(usual.begin(), usual.end()),
          until_(until) {
        if (judge_ == Judge::classes)
            for (auto [label, place] : nb::borrow<nb::dict>(labels_))
                classes_[nb::cast<Index>(place) > 0] = nb::borrow(label);
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
        const double p = model_.learn_one(names_.columns, names_.values, target, w);
        const bool wrong = judge_ == Judge::classes && (p > 0.0) != (target > 0.0);
        RFD_LEVEL::tally(progress_, loss(target, p), judge_ == Judge::classes ? (wrong ? 1.0 : 0.0) : NAN, w);
        return true;
    }

    // Return the prediction of a row, a label or a number, or None if the ordinary path must make it.
    nb::object predict(nb::handle x) {
        if (!PyDict_CheckExact(x.ptr()) || !names_.convert(x, true) || !has_usual() || !fits()) return nb::none();
        if (!lock_.try_enter(Lock::Use::read)) return nb::none();
        const Leave leave{lock_};
        const double p = model_.read_one(names_.columns, names_.values);
        if (!std::isfinite(p)) return nb::none();
        return judge_ == Judge::classes ? classes_[p > 0.0] : nb::float_(p);
    }

  private:
    struct Leave {
        Lock& lock;
        ~Leave() { lock.leave(); }
    };

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

    // Whether the row has all features that most rows have; the others count as missing.
    bool has_usual() const {
        std::size_t found = 0;
        for (std::int32_t column : names_.columns) found += found < usual_.size() && usual_[found] == column;
        return found == usual_.size();
    }
    bool fits() const {
        return names_.columns.empty() || names_.columns.back() < model_.experts.features();
    }

    double loss(double y, double p) const {
        const double off = y - p;
        switch (judge_) {
            case Judge::classes: return RFD_LEVEL::value_of({Loss::LOGISTIC}, p, y > 0.0 ? 1.0 : -1.0);
            case Judge::absolute: return std::abs(off);
            case Judge::pinball: return off * (level_ - (off < 0.0 ? 1.0 : 0.0));
            case Judge::poisson: return 2.0 * ((y > 0.0 ? y * std::log(y) - y * std::log(p) : 0.0) - off);
            default: return off * off;
        }
    }

    nb::object model_object_, lock_object_, progress_object_;
    Untuned& model_;
    Lock& lock_;
    Progress* progress_;
    nb::object labels_;      // the places 0 and 1 of two labels by label, or None
    nb::object classes_[2];  // the labels by place
    Names names_;
    Judge judge_;
    double level_;
    std::vector<std::int32_t> usual_;  // ascending
    Index until_;
};

void bind_one_row(nb::module_& m) {
    nb::enum_<Judge>(m, "Judge", "Which loss `progressive_loss_` averages.")
        .value("classes", Judge::classes)
        .value("squared", Judge::squared)
        .value("absolute", Judge::absolute)
        .value("pinball", Judge::pinball)
        .value("poisson", Judge::poisson);
    nb::class_<OneRow>(m, "OneRow", "Learns and predicts single dicts of a fitted model.")
        .def(nb::init<nb::object, nb::object, nb::dict, nb::object, Judge, double, nb::object, Span<const std::int32_t>,
                      Index>(),
             "model"_a, "lock"_a, "vocabulary"_a, "labels"_a.none(), "judge"_a, "level"_a, "progress"_a, "usual"_a,
             "until"_a)
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
    m.attr("OFFERED") = OFFERED;
    m.attr("ROUND_OFF") = ROUND_OFF;
    m.attr("HEAVIEST") = HEAVIEST;
    m.attr("LARGEST_TARGET") = LARGEST_TARGET;
    m.attr("FOLLOW_SHARE") = nb::make_tuple(FOLLOW_SHARE[0], FOLLOW_SHARE[1], FOLLOW_SHARE[2], FOLLOW_SHARE[3]);
    nb::class_<Untuned>(m, "Untuned", "The experts of the untuned learner.")
        .def(nb::init<>())
        .def_rw("seen", &Untuned::seen, "The number of rows so far.")
        .def("arrays", &Untuned::arrays, nb::sig("def arrays(self) -> dict[str, numpy.typing.NDArray[typing.Any]]"),
             "Return views of all arrays by name; records are rows of float64.")
        .def("replace", &Untuned::replace, "arrays"_a, "Replace some arrays by copies of the given ones.")
        .def("learn", &Untuned::learn, "x"_a, "y"_a, "weight"_a, "margins"_a, "first"_a, "last"_a, "update_stats"_a,
             "Learn rows and fill their predictions before each step; return the row at which the sketch was full.")
        .def("read", &Untuned::read, "x"_a, "margins"_a, "Fill the predictions of rows.")
        .def("explain", &Untuned::explain, "x"_a, "effects"_a.noconvert(), "indptr"_a, "which"_a, "parts"_a,
             "List the contributions of features to predictions.")
        .def("keep", [](Untuned& self, Index rows, std::optional<Span<const std::int32_t>> features) {
            return Kept(self.experts, rows, features.value_or(Span<const std::int32_t>()), !features);
        }, "rows"_a, "features"_a.none(), "Return what `undo` needs to forget rows with these features, None for all.")
        .def("undo", [](Untuned& self, const Kept& kept) { kept.restore(self.experts); }, "kept"_a,
             "Restore the state at the time of `keep`.")
        .def("first_scales", &Untuned::first_scales, "which"_a, "Set the scales of features.")
        .def("renew_exact", [](Untuned& self, double faded) { self.experts.renew_exact(faded); }, "faded"_a, Unlocked(),
             "Update the exact Hessian.")
        .def("__deepcopy__", [](const Untuned& self, nb::handle) { return Untuned(self.experts, self.seen); }, "memo"_a);
    m.def("implicit_steps", [](Span<const float> z, Span<const float> length, Span<float> chance, Span<float> step) {
        const std::size_t n = z.size();
        require(n == length.size() && n == chance.size() && n == step.size(), "the lengths differ");
        require(n % LANES == 0, "the lengths must be multiples of 8");
        untuned_loops().implicit_steps(z.data(), length.data(), chance.data(), step.data(), static_cast<Index>(n));
    }, "z"_a, "length"_a, "chance"_a, "step"_a,
       "Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)).");
    bind_one_row(m);
}

}  // namespace robustfd

// Single rows as dicts: their names become columns without a detour through Python.
//
// Anything unusual (a new name, a missing value, a busy model) is refused, and the caller takes the ordinary path, which
// handles it or raises an error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert.hpp"
#include "lock.hpp"
#include "rows.hpp"
#include "words.hpp"

namespace robustfd {

constexpr double LARGEST = 1e150;  // squares of larger numbers can overflow

// The columns of the names in a dict. Most dicts of a stream have the same names in the same order, so the columns of
// the last dict are kept, with references to its names.
class Names {
  public:
    explicit Names(nb::dict vocabulary) : vocabulary_(std::move(vocabulary)) {}

    std::vector<std::int32_t> columns;  // of the last row, ascending
    std::vector<double> values;

    Rows row() {
        ends_[1] = static_cast<Index>(columns.size());
        return {values.data(), columns.data(), ends_, 1, 0};
    }

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
    Index ends_[2] = {0, 0};

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

// Leaves a lock at the end of a scope.
struct Leave {
    Lock& lock;
    ~Leave() { lock.leave(); }
};

// Whether a row of ascending columns has all `usual` features, those that most rows have; absent ones count as missing.
inline bool has_all(const std::vector<std::int32_t>& usual, const std::vector<std::int32_t>& columns) {
    std::size_t found = 0;
    for (std::int32_t column : columns) found += found < usual.size() && usual[found] == column;
    return found == usual.size();
}

}  // namespace robustfd

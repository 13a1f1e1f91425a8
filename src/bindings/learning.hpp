// What the bindings of the learners of the paper share.
#pragma once

#include "convert.hpp"
#include "learner.hpp"
#include "rows.hpp"

namespace robustfd {

// Rows for a learner with d features. Every index is checked.
RowsFromPython checked_rows(nb::handle x, Index d);

// The table of progress of an array (64, 4).
Progress* table_of(const Out2<double>& progress);

// A dict of the arrays of a state, as views that stay valid when the state replaces an array.
nb::dict views_of(const std::vector<Part>& parts);

void bind_newton(nb::module_& m);

}  // namespace robustfd

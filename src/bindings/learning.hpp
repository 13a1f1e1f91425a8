// What bindings of learners share.
#pragma once

#include "convert.hpp"
#include "learner.hpp"
#include "rows.hpp"
#include "tracker.hpp"

namespace robustfd {

// Rows for a learner with d features. Every index is checked.
RowsFromPython checked_rows(nb::handle x, Index d);

// The table of progress of an array (64, 4).
Progress* table_of(const Out2<double>& progress);

// The tracker in three arrays: thresholds (sides, GRID), six totals, and a row for each window of the trace.
Tracker tracker_of(Matrix<double> thresholds, Index sides, Span<double> totals, Matrix<double> trace);

}  // namespace robustfd

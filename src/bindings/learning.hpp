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

// The tracker in a tuple of four arrays: thresholds (sides, GRID), leans (4, 3) of numbers or (0, 3), six totals, and a
// row for each window of the trace.
Tracker tracker_of(const nb::tuple& arrays, bool numbers);

}  // namespace robustfd

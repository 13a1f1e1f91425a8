// Progressive validation: sums over rows that are predicted before they are learned. The table has the running totals,
// then their values after 1, 2, 4, ... rows.
#pragma once

#include "losses.hpp"
#include "rows.hpp"

namespace robustfd {

constexpr Index RECORDS = 63;  // one for each power of two that fits into an int64

}  // namespace robustfd

namespace robustfd::RFD_LEVEL {

// Add a row with this loss; `wrong` is 1 for an error and 0 otherwise.
inline void tally(Progress* table, double loss, double wrong, double weight) {
    Progress& now = table[0];
    now.weight += weight;
    now.loss += weight * loss;
    now.errors += weight * wrong;
    now.rows += 1.0;
    Index count = static_cast<Index>(now.rows), place = 1;
    if ((count & (count - 1)) != 0) return;
    for (; count > 1 && place < RECORDS; count >>= 1) ++place;
    table[place] = now;
}

// Add a row with this margin and label; it counts as an error if the signs differ.
inline void tally(Progress* table, const Loss& loss, double margin, double y, double weight) {
    if (table) tally(table, value_of(loss, margin, y), (margin > 0.0) != (y > 0.0) ? 1.0 : 0.0, weight);
}

// Restore earlier totals, and delete the records made since.
inline void restore(Progress* table, const Progress& before) {
    Index place = 1;
    for (Index count = static_cast<Index>(before.rows); count > 0; count >>= 1) ++place;
    table[0] = before;
    for (; place <= RECORDS; ++place) table[place] = {};
}

}  // namespace robustfd::RFD_LEVEL

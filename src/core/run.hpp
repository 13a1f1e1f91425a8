// The basis of wide sparse rows, updated lazily: a feature is brought up to date when it next occurs.
//
// For every feature the basis holds q numbers: its weight and its r = q - 1 entries in the rows of B. A shrink changes
// all features by the same small matrix. So rows are processed in runs of a few hundred. The features of a run are
// gathered when they first occur, and until the end of the run
//
//     [w; B] = [w; 0] at its beginning + coefficients of (B at its beginning, rows of the run),
//
// where only the coefficients change. The end of a run writes its own features back and leaves the others unchanged.
// Each feature stores the run up to which it is current. When it next occurs, it is multiplied by the product of the
// small matrices it missed. So the cost of a row depends on its non-zeros only. The only operation of length d brings
// all features up to date, once in RUNS runs.
#pragma once

#include "level.hpp"
#include "rows.hpp"

namespace robustfd {

constexpr Index RUNS = 128;  // runs after which all features are brought up to date
constexpr Index PIECE = 8;   // entries of a feature that are stored contiguously

// The counts of the current run.
struct RunState {
    Index number = 0;    // earlier runs since all features were brought up to date
    Index rows = 0;
    Index entries = 0;
    Index features = 0;  // number of gathered features
    Index pieces = 0;    // number of pieces in use
    Index reach = 0;     // `reach` is computed up to this index
};

// The arrays of the basis and of the current run.
struct Run {
    RunState& state;
    Index d, q, r;
    Matrix<double> basis;     // (d, q): a feature's weight, then its entries in B
    std::uint8_t* age;        // (d): the run up to which the feature is current
    std::int32_t* place;      // (d): 1 + position of the feature among the gathered ones, or 0
    double* history;          // (RUNS, r, q): the change of each run to features that did not occur in it
    double* reach;            // (RUNS + 1, r, q): reach[g] is the change of the last g runs, computed lazily
    Matrix<double> gathered;  // (features, q): the features of this run, as they were at its beginning
    std::int32_t* feature;    // (features): index of the feature
    std::int32_t* latest;     // (features): the last piece of this feature's entries, or -1
    std::int32_t* used;       // (features): number of entries in that piece
    double* value;            // (pieces, PIECE): entries
    std::int32_t* row;        // (pieces, PIECE): the rows of the entries, counted in the run
    std::int32_t* before;     // (pieces): the previous piece of the same feature, or -1
    Matrix<double> coefficients;  // (r + rows, q): the transposed coefficients above

    Matrix<double> change_of(Index run) const { return {history + run * r * q, r, q}; }
    Matrix<double> reach_of(Index runs) const { return {reach + runs * r * q, r, q}; }
};

struct RunLoops {
    // Gather the features of entries first to last - 1 that are new in this run.
    void (*gather)(const Run& run, const std::int32_t* indices, Index first, Index last);
    // Add a row to the run; fill its products (q) with the gathered features, and with all rows of the run (overlaps).
    void (*append_row)(const Run& run, const SparseRow& row, double* products, double* overlaps);
    // Add an entry of a row to the gathered feature at this position.
    void (*append_entry)(const Run& run, Index position, double value, Index row);
    // Add the rows of the run to features of the run, starting at position `first`, and write them to the basis.
    void (*write_back)(const Run& run, Index first, Matrix<double> current);
    // Bring all features up to date after RUNS runs; `current` is scratch for q numbers.
    void (*catch_up)(const Run& run, double* current);
    // Fill `out` with of_w w + coefficients of (B at the beginning, rows of the run), for some features, or for the
    // first `count` of them if `features` is null; `current` is scratch for q numbers.
    void (*read)(const Run& run, const std::int32_t* features, Index count, double of_w, const double* coefficients,
                 double* current, double* out);
};

RFD_LEVELS(RunLoops, run_loops)

// Compute reach[0 : runs + 1]: reach[g + 1] is the change of run number - g - 1, followed by reach[g].
void fill_reach(const Run& run, Index runs);

}  // namespace robustfd

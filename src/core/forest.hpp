// Boosted trees over the columns of stored rows, which give a linear learner columns with curves and interactions.
//
// A tree is a full binary tree of depth DEPTH in heap order: the children of node i are 2 i + 1 and 2 i + 2. Node i
// compares one number of a row with cut[i], and the row goes right if the number is larger. A node that is not split has
// the cut infinity, so that every row goes left, and its value is that of its descendants on the left. Every node has a
// value, inner nodes too: the differences along a path say what each column of the row adds.
//
// A row has two places for column j: place 2 j has -infinity where the value is missing, and place 2 j + 1 has infinity.
// A node chooses one of them, and with it the side of missing values.
//
// Trees are grown from bins: column j of the stored rows in at most BINS values, 1 + the number of cuts below x. The sums
// of gradients g and curvatures h of a node, for each column and bin, are its histogram. The gain of a cut is
//     G_l^2 / (H_l + LAMBDA) + G_r^2 / (H_r + LAMBDA) - G^2 / (H + LAMBDA)
// and the value of a node is -RATE G / (H + LAMBDA): Newton boosting (Friedman 2001; Chen and Guestrin 2016). Only the
// smaller child of a node is summed; the other is the difference.
#pragma once

#include <limits>

#include "array.hpp"
#include "level.hpp"

namespace robustfd {

constexpr Index DEPTH = 7, INNER = (Index{1} << DEPTH) - 1, NODES = 2 * INNER + 1;
constexpr Index BINS = 64;               // at most so many bins of a column: 1, 2, ...; bin 0 has the missing values
constexpr Index ROWS_PER_BIN = 16;       // at least, so that few rows have few bins
constexpr Index MOST_COLUMNS = 32;       // columns that one tree uses, chosen at random
constexpr double LAMBDA = 1.0, RATE = 0.1;
constexpr double LEAST = 4.0;            // the least sum of curvatures of a child, in rows of average curvature
constexpr Index SAMPLE = 4096;            // values of a column that decide its cuts
constexpr double LEAST_GAIN = 1e-10;     // relative to the squared gradients of the node
constexpr double TIE = 1e-9;             // scores that differ by less are equal, and the first cut is the best
constexpr double NOWHERE = std::numeric_limits<double>::infinity();

// The arrays of T trees: (T, INNER), (T, INNER), (T, NODES), (T, INNER).
struct Trees {
    Matrix<std::int32_t> place;  // of the number that a node compares
    Matrix<double> cut, value;
    Matrix<float> gain;          // of the split at a node, 0 if there is none
};

// What trees are grown from: n rows with K outputs.
struct Boosting {
    Matrix<const std::uint8_t> bins;  // (columns, n)
    Matrix<const double> cuts;        // (columns, BINS): ascending, then infinity
    Span<const std::int32_t> owner;   // the output whose trees may use a column, -1 for all
    Span<const double> y, weight;     // targets in units of the margin; weights with mean 1
    Matrix<double> margin;            // (n, K): of the trees so far and of what they start from
    Matrix<double> gradient, curvature;  // (n, K), at the beginning of the present round
    std::uint64_t seed;
};

// The loss that trees reduce: of two classes, of more, of numbers (residuals beyond `level` units are clipped), of a
// quantile, or of counts, whose logarithm is the margin.
enum class Objective { logistic, softmax, squared, pinball, counts };

struct ForestLoops {
    // Return the number of the best of `cuts` cuts of a column, and its score in *best, or -1 if none is better than
    // *best. The histogram has pairs of sums (g, h) from bin 1 on; `start` is the sum of missing values on the left, and
    // `all` that of the node. The score is the gain plus that of the node.
    Index (*best_cut)(const double* histogram, Index cuts, const double* start, const double* all, double least,
                      double* best);
    // Add the leaf values of trees to the sums of rows that have both places of each column, and fill in the leaves.
    void (*add_values)(const Trees& trees, const std::int32_t* column, const double* rows, Index width,
                       Matrix<double> sums, Matrix<std::int32_t> leaves);
};

RFD_LEVELS(ForestLoops, forest_loops)

// Fill cuts (BINS) for a column, between its quantiles, and the bins (n) of its values.
void bin_column(Span<const double> values, Span<std::uint8_t> bins, Span<double> cuts);

// Whether all bins are numbers of bins.
bool has_valid_bins(Matrix<const std::uint8_t> bins);

// Grow trees first to last - 1; tree t is that of output t % K in round t / K.
void grow(const Boosting& data, Objective objective, double level, const Trees& trees, Index first, Index last);

// Add the leaf values of tree t to column[t] of the sums, for rows of cells; NaN is a missing value. Fill in the leaves
// (n, T), each of which is counted from 0.
void add_values(const Trees& trees, Span<const std::int32_t> column, Matrix<const double> cells, Matrix<double> sums,
                Matrix<std::int32_t> leaves);

// For each row, add factor(row, column[t]) times the differences along the path of tree t to those of the columns of its
// nodes. The values of the roots are left out.
void add_paths(const Trees& trees, Span<const std::int32_t> column, Matrix<const double> cells,
               Matrix<const double> factor, Matrix<double> parts);

// For each row, divide amount(row, t) evenly among the columns of the splits on the path of tree t.
void divide_amounts(const Trees& trees, Matrix<const double> cells, Matrix<const double> amounts, Matrix<double> parts);

}  // namespace robustfd

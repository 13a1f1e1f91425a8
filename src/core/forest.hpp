// Boosted trees over the columns of stored rows, which give a linear learner columns with curves and interactions.
//
// Every column has at most BINS bins, between its cuts: the bin of a value is 1 + the number of cuts below it, and that of
// a missing value is 0. Trees see only bins, when they are grown and when they are read.
//
// A row has two places for column j: place 2 j has its bin b, and place 2 j + 1 has b - 1 as a byte, which is 255 for a
// missing value. A node chooses one of them, and with it the side of missing values.
//
// A tree is a full binary tree of depth DEPTH in heap order: the children of node i are 2 i + 1 and 2 i + 2. A row goes
// right at node i if the byte at one place is above a limit. At a node that is not split every row goes left, and the
// value is that of its descendants on the left. Every node has a value, inner nodes too: the differences along a path
// say what each column of the row adds.
//
// The sums of gradients g and curvatures h of a node, for each column and bin, are its histogram. The gain of a cut is
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
constexpr std::uint8_t UNSPLIT = 255;

// T trees and the cuts of their columns.
struct Trees {
    Matrix<const double> cuts;    // (columns, BINS): ascending, then infinity
    Matrix<std::int32_t> place;   // (T, INNER): of the byte that a node compares
    Matrix<std::uint8_t> limit;   // (T, INNER): of the bytes that go left; UNSPLIT if all do
    Matrix<double> value;         // (T, NODES)
    Matrix<float> gain;           // (T, INNER): of the split at a node, 0 if there is none
};

struct Sum {
    double g = 0.0, h = 0.0;
};

// The child of a node of a tree to which a row goes.
inline Index child_of(const std::int32_t* place, const std::uint8_t* limit, Index node, const std::uint8_t* row) {
    return 2 * node + 1 + (row[place[node]] > limit[node] ? 1 : 0);
}

// The number of the last node, a leaf, to which a row goes.
inline Index leaf_of(const std::int32_t* place, const std::uint8_t* limit, const std::uint8_t* row) {
    Index node = 0;
    for (Index level = 0; level < DEPTH; ++level) node = child_of(place, limit, node, row);
    return node;
}

// Call see(k, leaf) with the number of the leaf to which the row with bins row_of(k) goes, for all k < n. A row waits
// for each node before the next; several rows at once wait together.
template <class RowOf, class See>
void for_leaves(const std::int32_t* place, const std::uint8_t* limit, Index n, RowOf row_of, See see) {
    constexpr Index TOGETHER = 8;
    Index k = 0;
    for (; k + TOGETHER <= n; k += TOGETHER) {
        Index node[TOGETHER] = {};
        for (Index level = 0; level < DEPTH; ++level)
            for (Index i = 0; i < TOGETHER; ++i) node[i] = child_of(place, limit, node[i], row_of(k + i));
        for (Index i = 0; i < TOGETHER; ++i) see(k + i, node[i]);
    }
    for (; k < n; ++k) see(k, leaf_of(place, limit, row_of(k)));
}

// What trees are grown from: n rows with K outputs.
struct Boosting {
    Matrix<const std::uint8_t> bins;  // (n, 2 columns)
    Span<const std::int32_t> owner;   // the output whose trees may use a column, -1 for all
    Span<const double> y, weight;     // targets in units of the margin; weights with mean 1
    Matrix<double> margin;            // (n, K): of the trees so far and of what they start from
    Matrix<double> gradient;          // (K, 2 n): g and h of each row, at the beginning of the present round
    std::uint64_t seed;

    Sum* sums(Index output) const { return reinterpret_cast<Sum*>(gradient[output]); }
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
    // Subtract n numbers.
    void (*subtract)(double* x, const double* y, Index n);
    // Fill both places of rows of cells, for columns with these cuts; NaN is a missing value.
    void (*bin_rows)(Matrix<const double> cells, Matrix<const double> cuts, Matrix<std::uint8_t> bins);
    // Add the values of the leaves of tree t to the first column of `sums`, for rows of bins, and fill in the first
    // column of `leaves`.
    void (*add_tree)(const Trees& trees, Index t, Matrix<const std::uint8_t> bins, Matrix<double> sums,
                     Matrix<std::int32_t> leaves);
    // Fill g and h of n rows, from the margins of two classes, 0 and 1.
    void (*logistic)(const double* margin, const double* y, const double* weight, Index n, Sum* out);
};

RFD_LEVELS(ForestLoops, forest_loops)

// Fill the cuts of column j of cells, between its quantiles, and both of its places.
void bin_column(Matrix<const double> cells, Index j, Matrix<double> cuts, Matrix<std::uint8_t> bins);

// Whether each pair of bytes is a bin of its column, and that bin minus 1.
bool has_valid_bins(Matrix<const std::uint8_t> bins, Matrix<const double> cuts);

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

// Intervals and sets with a promised coverage: thresholds that move up after a miss and down after a hit, at levels on
// a fixed grid (Gibbs and Candes, NeurIPS 2021). A threshold changes by step (misses - tail rows), so whatever the
// stream does, the share of misses approaches the tail.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "array.hpp"

namespace robustfd {

constexpr Index GRID = 16, JUDGED = 5, TRACE = 128;
constexpr double GRID_LEVELS[GRID] = {0.0, 0.1, 0.2,  0.3,  0.4,  0.5,   0.6,   0.7,
                                      0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999};
constexpr Index JUDGED_PLACES[JUDGED] = {5, 8, 9, 10, 12};  // the levels whose coverage and width are recorded

constexpr double NEAR = 0.3;        // scores are tracked as asinh(score / NEAR): nearly linear below, logarithmic above
constexpr double FARTHEST = 300.0;  // thresholds stay within this, so that sinh does not overflow
constexpr double WIDEST = 1e200;    // the largest width that is recorded, for the same reason
constexpr double STEP = 0.05, LARGEST_STEP = 0.2, STEP_OF_FIRST = 2.0, STEP_OF_SETS = 0.01, FIRST_OF_SETS = 0.3;
constexpr double HEAVY = 10.0;       // larger weights, relative to the mean, are clipped to this
constexpr double FORGET = 0.98;      // decay of the typical residual per row
constexpr double OUTLIER = 8.0;      // residuals above this many typical ones are clipped to that
constexpr double LEAST_SCALE = 0.1;  // of the typical residual

// Sums over rows: their number and weights, those that were judged, and residuals of recent rows with their weights.
// `stride` is the number of rows in a window of the trace.
struct Tracked {
    double rows, weight, judged, residuals, recent, stride;
};

// A window of the trace: sums of weights, of weights of covered rows, and of weighted widths.
struct Window {
    double weight, covered[JUDGED], width[JUDGED];
};

inline double tail_of(Index k) { return (1.0 - GRID_LEVELS[k]) / 2.0; }

// The steps of a threshold of numbers: the usual one, and the first one, which falls with the root of the rows. Small
// tails have longer usual steps, as they seldom miss, and shorter first ones, as they need many rows to return.
struct Step {
    double usual, first;
};

inline const Step* steps() {
    static const std::array<Step, GRID> all = [] {
        std::array<Step, GRID> found{};
        for (Index k = 0; k < GRID; ++k) {
            const double tail = tail_of(k), usual = STEP * std::max(std::sqrt(0.1 / tail), 1.0);
            found[static_cast<std::size_t>(k)] = {std::min(usual, LARGEST_STEP),
                                                  STEP_OF_FIRST * std::sqrt(std::sqrt(2.0 * tail))};
        }
        return found;
    }();
    return all.data();
}

// The scale of a row: the predicted size of its residual, at least a tenth of the typical one. If all residuals were 0
// there is no unit, and the prediction means nothing.
inline double scale_of(const Tracked& t, double predicted) {
    if (t.residuals <= 0.0) return 1e-300;
    return std::max(std::max(predicted, LEAST_SCALE * t.residuals / t.recent), 1e-300);
}

// The window of the next row.
inline Window& window_of(Tracked& t, Window* trace) {
    const auto row = static_cast<Index>(t.rows);
    auto stride = static_cast<Index>(t.stride);
    if (row / stride >= TRACE) {
        for (Index i = 0; i < TRACE; ++i) {
            Window sum{};
            for (Index j = 2 * i; j < 2 * i + 2 && j < TRACE; ++j) {
                sum.weight += trace[j].weight;
                for (Index k = 0; k < JUDGED; ++k) {
                    sum.covered[k] += trace[j].covered[k];
                    sum.width[k] += trace[j].width[k];
                }
            }
            trace[i] = sum;
        }
        t.stride = static_cast<double>(stride *= 2);
    }
    return trace[row / stride];
}

// Count a row, and return its weight relative to the mean.
inline double count_row(Tracked& t, double weight) {
    t.rows += 1.0;
    t.weight += weight;
    return std::min(weight / (t.weight / t.rows), HEAVY);
}

// Track quantiles of (y - predicted) / scale: lower[k] and upper[k] are those at tail_of(k) and 1 - tail_of(k), as
// asinh(quantile / NEAR). `floor` is the least possible y. The first row is not learned from, as nothing predicted it,
// and a row before which no residual is known is not judged.
inline void track_number(double y, double predicted, double size, double weight, double floor, double* lower,
                         double* upper, Tracked& t, Window* trace) {
    const bool first = t.rows == 0.0, judged = t.recent > 0.0;
    const double residual = y - predicted, scale = scale_of(t, size);
    Window& window = window_of(t, trace);
    const double relative = count_row(t, weight);
    if (first) return;
    if (judged) {
        window.weight += weight;
        double low = (lower[0] + upper[0]) / 2.0, high = low;
        for (Index k = 0, next = 0; next < JUDGED; ++k) {
            low = std::min(low, lower[k]), high = std::max(high, upper[k]);
            if (k != JUDGED_PLACES[next]) continue;
            const double from = std::max(predicted + scale * (NEAR * std::sinh(low)), floor);
            const double to = std::max(predicted + scale * (NEAR * std::sinh(high)), floor);
            window.covered[next] += from <= y && y <= to ? weight : 0.0;
            window.width[next++] += std::min(weight * (to - from), WIDEST);
        }
        t.judged += 1.0;
        const double score = std::asinh(residual / scale / NEAR), root = std::sqrt(t.judged);
        const Step* all = steps();
        for (Index k = 0; k < GRID; ++k) {
            const double tail = tail_of(k), step = relative * std::max(all[k].usual, all[k].first / root);
            lower[k] = std::clamp(lower[k] - step * ((score < lower[k] ? 1.0 : 0.0) - tail), -FARTHEST, FARTHEST);
            upper[k] = std::clamp(upper[k] + step * ((score > upper[k] ? 1.0 : 0.0) - tail), -FARTHEST, FARTHEST);
        }
    }
    const double off = std::abs(residual), most = judged ? OUTLIER * t.residuals / t.recent : off;
    t.residuals = FORGET * t.residuals + relative * (most > 0.0 ? std::min(off, most) : off);
    t.recent = FORGET * t.recent + relative;
}

// Track quantiles of 1 - p, where p is the probability of the label: the set of a level has all classes whose 1 - p is
// at most threshold[k], and the most probable class.
inline void track_label(Index label, const double* chances, Index classes, double weight, double* threshold, Tracked& t,
                        Window* trace) {
    Window& window = window_of(t, trace);
    const double relative = count_row(t, weight), score = 1.0 - chances[label];
    const auto top = static_cast<Index>(std::max_element(chances, chances + classes) - chances);
    double most = -INFINITY;
    window.weight += weight;
    for (Index k = 0, next = 0; next < JUDGED; ++k) {
        most = std::max(most, threshold[k]);
        if (k != JUDGED_PLACES[next]) continue;
        Index size = 1.0 - chances[top] > most ? 1 : 0;
        for (Index c = 0; c < classes; ++c) size += 1.0 - chances[c] <= most ? 1 : 0;
        window.covered[next] += score <= most || label == top ? weight : 0.0;
        window.width[next++] += weight * static_cast<double>(size);
    }
    t.judged += 1.0;
    const double step = relative * std::max(STEP_OF_SETS, FIRST_OF_SETS / std::sqrt(t.judged));
    for (Index k = 1; k < GRID; ++k) {
        threshold[k] += step * ((score > threshold[k] ? 1.0 : 0.0) - (1.0 - GRID_LEVELS[k]));
        threshold[k] = std::clamp(threshold[k], -1.0, 2.0);
    }
}

// Views of all of them.
struct Tracker {
    Matrix<double> thresholds;
    Tracked& totals;
    Window* trace;

    void number(double y, double predicted, double size, double weight, double floor) const {
        track_number(y, predicted, size, weight, floor, thresholds[0], thresholds[1], totals, trace);
    }
    void label(Index label, const double* chances, Index classes, double weight) const {
        track_label(label, chances, classes, weight, thresholds[0], totals, trace);
    }
};

}  // namespace robustfd

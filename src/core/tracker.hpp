// Intervals and sets with a promised coverage: thresholds that move up after a miss and down after a hit, at levels on
// a fixed grid (Gibbs and Candes, NeurIPS 2021). A threshold changes by step (misses - tail rows), so whatever the
// stream does, the share of misses approaches the tail.
//
// The interval of a number is f - s r to f + s r', where f is the prediction, s its scale, and the reach r of a side is
//
//     r = threshold + w (q - mean of q),    q = (distance from f to a quantile of this side, from another model) / s
//
// The quantile model sees where the noise is larger on one side, and where the targets are not linear. It need not be
// good: only what it says beyond its mean counts, and w in [0, 1], the slope of an online quantile regression, stays
// near 0 where this does not help. Each side has a w for the levels up to 0.5 and one from 0.9 on.
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

// Levels of the quantile model: outer and inner ones of both sides, and the places of the intervals between them.
constexpr Index PAIRS = 2;
constexpr double QUANTILES[2 * PAIRS] = {0.05, 0.25, 0.75, 0.95};
constexpr Index PAIR_PLACES[PAIRS] = {5, 9};

constexpr double NEAR = 0.3;        // steps are in asinh(threshold / NEAR): nearly linear below, logarithmic above
constexpr double FARTHEST = 1e120;  // thresholds stay within this
constexpr double WIDEST = 1e200;    // the largest width that is recorded, so that sums do not overflow
constexpr double STEP = 0.05, LARGEST_STEP = 0.2, STEP_OF_FIRST = 2.0, STEP_OF_SETS = 0.01, FIRST_OF_SETS = 0.3;
constexpr double LONGEST_MOVE = 1.0;  // of a threshold in a row
constexpr double BEHIND = 2.0;        // how far a threshold may fall behind that of the level before it
constexpr double LEAN_RATE = 0.3, USUAL_ROWS = 50.0;  // of w; over which the mean of q averages
constexpr double STRANGE = 20.0, UNUSUAL = 2.0;  // limits of q, and of q - mean of inner quantiles; twice for outer ones
constexpr double HEAVY = 10.0;       // larger weights, relative to the mean, are clipped to this
constexpr double FORGET = 0.98;      // decay of the typical residual per row
constexpr double OUTLIER = 8.0;      // residuals above this many typical ones are clipped to that
constexpr double LEAST_SCALE = 0.1;  // of the typical residual

// Sums over rows: their number and weights, those that were judged, and residuals of recent rows with their weights.
// `stride` is the number of rows in a window of the trace.
struct Tracked {
    double rows, weight, judged, residuals, recent, stride;
};

// What the quantile model adds to a side at the inner or the outer levels: w, the sum of squared slopes of its loss, and
// the mean of q.
struct Lean {
    double weight, squares, usual;
};

// A window of the trace: sums of weights, of weights of covered rows, and of weighted widths.
struct Window {
    double weight, covered[JUDGED], width[JUDGED];
};

inline double tail_of(Index k) { return (1.0 - GRID_LEVELS[k]) / 2.0; }

// Numbers of each level, for numbers: its tail; the usual step of its thresholds, and the first one, which falls with the
// root of the rows; and how much of w is that of the outer levels. Small tails have longer usual steps, as they seldom
// miss, and shorter first ones, as they need many rows to return.
struct Levels {
    double tail[GRID], usual[GRID], first[GRID], outer[GRID];
};

inline const Levels& levels() {
    static const Levels all = [] {
        Levels found{};
        for (Index k = 0; k < GRID; ++k) {
            const double tail = tail_of(k), from = GRID_LEVELS[PAIR_PLACES[0]], to = GRID_LEVELS[PAIR_PLACES[1]];
            found.tail[k] = tail;
            found.usual[k] = std::min(STEP * std::max(std::sqrt(0.1 / tail), 1.0), LARGEST_STEP);
            found.first[k] = STEP_OF_FIRST * std::sqrt(std::sqrt(2.0 * tail));
            found.outer[k] = std::clamp((GRID_LEVELS[k] - from) / (to - from), 0.0, 1.0);
        }
        return found;
    }();
    return all;
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

// What is known of a row before it is learned. Side 0 is below the prediction and side 1 above it.
struct Outlook {
    double predicted, scale;
    double apart[2][PAIRS], unusual[2][PAIRS];  // q, and its limited difference from the mean
};

// `size` and `quantiles` are what the models of residuals and of quantiles predict, `leans` is (2, PAIRS).
inline Outlook outlook(const Tracked& t, const Lean* leans, double predicted, double size, const double* quantiles) {
    Outlook row{predicted, scale_of(t, size), {}, {}};
    for (Index side = 0; side < 2; ++side)
        for (Index p = 0; p < PAIRS; ++p) {
            const double off = quantiles[side > 0 ? PAIRS + p : PAIRS - 1 - p] - predicted;
            const double q = (side > 0 ? off : -off) / row.scale, most = UNUSUAL * static_cast<double>(1 + p);
            row.apart[side][p] = std::isfinite(q) ? std::clamp(q, -STRANGE, STRANGE) : 0.0;
            if (t.judged > 0.0)
                row.unusual[side][p] = std::clamp(row.apart[side][p] - leans[side * PAIRS + p].usual, -most, most);
        }
    return row;
}

// Fill the reach of each level before levels are ordered; those of a side would be the quantiles of the targets there.
inline void fill_reaches(const Outlook& row, Matrix<const double> thresholds, const Lean* leans,
                         double (*reach)[GRID]) {
    for (Index side = 0; side < 2; ++side) {
        const double inner = leans[side * PAIRS].weight * row.unusual[side][0];
        const double outer = leans[side * PAIRS + 1].weight * row.unusual[side][1];
        const double *outwards = levels().outer, *threshold = thresholds[side];
        for (Index k = 0; k < GRID; ++k) reach[side][k] = threshold[k] + (inner + outwards[k] * (outer - inner));
    }
}

// Order the levels: each reaches at least as far as smaller ones, and all contain the middle of the ends of level 0.
inline void order_reaches(double (*reach)[GRID]) {
    const double middle = (reach[1][0] - reach[0][0]) / 2.0;
    reach[0][0] = -middle, reach[1][0] = middle;
    for (Index side = 0; side < 2; ++side)
        for (Index k = 1; k < GRID; ++k) reach[side][k] = std::max(reach[side][k], reach[side][k - 1]);
}

inline double logit_of(double level) { return std::log((1.0 + level) / (1.0 - level)); }

// The reach at any level in (0, 1): linear in the logit between levels of the grid. Above them its logarithm is, with
// the slope from TAIL on, as in heavy tails.
constexpr Index TAIL = 12;
inline double reach_at(const double* reach, double level) {
    const double at = logit_of(level), last = logit_of(GRID_LEVELS[GRID - 1]);
    if (at > last) {
        const double end = std::asinh(reach[GRID - 1] / NEAR), before = std::asinh(reach[TAIL] / NEAR);
        const double slope = std::clamp((end - before) / (last - logit_of(GRID_LEVELS[TAIL])), 0.0, 1.0);
        return std::max(NEAR * std::sinh(end + slope * (at - last)), reach[GRID - 1]);
    }
    Index k = 1;
    while (level > GRID_LEVELS[k]) ++k;
    const double from = logit_of(GRID_LEVELS[k - 1]), part = (at - from) / (logit_of(GRID_LEVELS[k]) - from);
    return part >= 1.0 ? reach[k] : reach[k - 1] + part * (reach[k] - reach[k - 1]);
}

// The threshold u after asinh(u / NEAR) has moved by d, at most 1; the series have an error below 3e-8.
inline double moved(double u, double d) {
    const double d2 = d * d;
    const double sinh = d * (1.0 + d2 * (1.0 / 6.0 + d2 * (1.0 / 120.0 + d2 * (1.0 / 5040.0 + d2 / 362880.0))));
    const double cosh = 1.0 + d2 * (0.5 + d2 * (1.0 / 24.0 + d2 * (1.0 / 720.0 + d2 / 40320.0)));
    return u * cosh + std::sqrt(u * u + NEAR * NEAR) * sinh;
}

// Thresholds (2, GRID), and what the quantile model adds.
struct Sides {
    Matrix<double> thresholds;
    Lean* leans;

    // Move the thresholds of a side, given its reaches; `off` is the residual in this direction, in units of the scale.
    // The misses are those of the ordered reaches, so that the share of intervals that miss approaches the tail. Where
    // a smaller level reaches farther a threshold has no effect, and must not fall far behind in the meantime.
    void move(Index side, double off, double relative, double judged, const double* reach) const {
        const double part = 1.0 / std::sqrt(judged);
        const Levels& all = levels();
        double *threshold = thresholds[side], least[GRID];
        least[0] = -FARTHEST;
        for (Index k = 1; k < GRID; ++k) least[k] = threshold[k - 1] - BEHIND;
        for (Index k = 0; k < GRID; ++k) {  // without branches, so that it is vectorised
            const double step = std::min(relative * std::max(all.usual[k], all.first[k] * part), LONGEST_MOVE);
            const double to = moved(threshold[k], step * ((off > reach[k] ? 1.0 : 0.0) - all.tail[k]));
            threshold[k] = std::min(std::max(to, least[k]), FARTHEST);
        }
    }

    // Let the ends of level 0 meet again: ties are misses of neither, and both would fall.
    void meet() const {
        thresholds(1, 0) = (thresholds(1, 0) - thresholds(0, 0)) / 2.0;
        thresholds(0, 0) = -thresholds(1, 0);
    }

    // Learn the weights and means of a side.
    void lean(Index side, const Outlook& row, double off, double relative, double judged, const double* wanted) const {
        const double part = std::min(relative / std::min(judged, USUAL_ROWS), 1.0);
        for (Index p = 0; p < PAIRS; ++p) {
            Lean& own = leans[side * PAIRS + p];
            const Index k = PAIR_PLACES[p];
            const double slope = ((off > wanted[k] ? 1.0 : 0.0) - tail_of(k)) * row.unusual[side][p];
            own.squares += slope * slope;
            own.weight = std::clamp(own.weight + LEAN_RATE * relative * slope / std::sqrt(1.0 + own.squares), 0.0, 1.0);
            own.usual += part * (row.apart[side][p] - own.usual);
        }
    }
};

// Track a number y. `floor` is the least possible one. The first row is not learned from, as nothing predicted it, and
// a row before which no residual is known is not judged.
inline void track_number(const Outlook& row, double y, double weight, double floor, const Sides& sides, Tracked& t,
                         Window* trace) {
    const bool first = t.rows == 0.0, judged = t.recent > 0.0;
    const double residual = y - row.predicted;
    Window& window = window_of(t, trace);
    const double relative = count_row(t, weight);
    if (first) return;
    if (judged) {
        double wanted[2][GRID], reach[2][GRID];
        fill_reaches(row, sides.thresholds, sides.leans, wanted);
        std::copy(&wanted[0][0], &wanted[0][0] + 2 * GRID, &reach[0][0]);
        order_reaches(reach);
        window.weight += weight;
        for (Index j = 0; j < JUDGED; ++j) {
            const Index k = JUDGED_PLACES[j];
            const double from = std::max(row.predicted - row.scale * reach[0][k], floor);
            const double to = std::max(row.predicted + row.scale * reach[1][k], floor);
            window.covered[j] += from <= y && y <= to ? weight : 0.0;
            window.width[j] += std::min(weight * (to - from), WIDEST);
        }
        t.judged += 1.0;
        for (Index side = 0; side < 2; ++side) {
            const double off = (side > 0 ? residual : -residual) / row.scale;
            sides.move(side, off, relative, t.judged, reach[side]);
            sides.lean(side, row, off, relative, t.judged, wanted[side]);
        }
        sides.meet();
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

// Views of all of them. A tracker of labels has thresholds (1, GRID) and no leans.
struct Tracker {
    Sides sides;
    Tracked& totals;
    Window* trace;

    void number(double y, double predicted, double size, const double* quantiles, double weight, double floor) const {
        const Outlook row = outlook(totals, sides.leans, predicted, size, quantiles);
        track_number(row, y, weight, floor, sides, totals, trace);
    }
    // Fill the low ends and then the high ends of a row at these levels; return what follows.
    double* fill_ends(double predicted, double size, const double* quantiles, Span<const double> levels, double floor,
                      double* out) const {
        const Outlook row = outlook(totals, sides.leans, predicted, size, quantiles);
        double reach[2][GRID];
        fill_reaches(row, sides.thresholds, sides.leans, reach);
        order_reaches(reach);
        for (Index side = 0; side < 2; ++side)
            for (const double level : levels) {
                const double off = row.scale * reach_at(reach[side], level);
                *out++ = std::max(predicted + (side > 0 ? off : -off), floor);
            }
        return out;
    }
    void label(Index label, const double* chances, Index classes, double weight) const {
        track_label(label, chances, classes, weight, sides.thresholds[0], totals, trace);
    }
};

}  // namespace robustfd

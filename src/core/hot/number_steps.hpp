// Regression: steps of the experts with squared, Huber, pinball or Poisson loss, and updates of their shares.
#pragma once

#include "mixture.hpp"
#include "sigmoid.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double FORGET_SPREAD = 0.99;  // decay of squared residuals per row
constexpr double SLOWER = 0.2;          // learning rate of forgetting intercepts, relative to classification
constexpr double SMALL_LENGTH = 1e-9;   // Poisson: steps below this length are explicit
constexpr int ITERATIONS = 40;          // Poisson: Newton's iterations at most
constexpr double FEWEST = 0.01;         // replaces a count of 0 in logarithms, in units of the mean

// The Huber loss of a residual, in units of the spread.
inline double huber_loss(double off, double spread, double huber) {
    const double u = off * off / spread, far = huber * (2.0 * sqrt(u) - huber);
    return 0.5 * (u > huber * huber ? far : u);
}

// The root s of s = -l'(p + length s) for the Huber loss, whose slope is at most `largest`.
inline double huber_slope(double off, double length, double largest) {
    return clipped(off / (1.0 + length), -largest, largest);
}

// The loss of a prediction p for the target y, in units of the spread.
inline double number_loss(const Targets& t, double y, double p, double spread) {
    if (t.counts) return (exp(p) - y * p) / spread;
    if (t.level > 0.0) return 2.0 * (y - p) * (t.level - (y < p ? 1.0 : 0.0)) / sqrt(spread);
    return huber_loss(y - p, spread, t.huber);
}

// The root s of s = y - exp(p + length s). With u = p + length s, the root of h(u) = u - p - length (y - exp(u)) is
// needed. h is convex, so Newton's iteration from the right does not overshoot. The root is between p and log y.
inline double step_of_counts(double y, double p, double length) {
    if (length <= SMALL_LENGTH) return y - exp(p);
    double u = y > 0.0 ? larger(p, log(y)) : p;
    for (int i = 0; i < ITERATIONS; ++i) {
        const double e = exp(u), move = (u - p - length * (y - e)) / (1.0 + length * e);
        u -= move;
        if (move < 1e-9) break;
    }
    return (u - p) / length;
}

// The root s of s = -l'(p + length s), where l' is the slope of the loss; for length 0, -l'(p). `largest` bounds the
// slope of the Huber loss and scales the slopes of the pinball loss.
inline double number_slope(const Targets& t, double y, double p, double length, double largest) {
    if (t.counts) return step_of_counts(y, p, length);
    if (t.level > 0.0) {
        const double off = y - p, low = (t.level - 1.0) * largest, high = t.level * largest;
        if (length > 0.0) return clipped(off / length, low, high);
        return off > 0.0 ? high : low;
    }
    return huber_slope(y - p, length, largest);
}

// The largest absolute slope of the loss.
inline double largest_slope(const Targets& t, double spread) {
    if (spread <= 0.0) return t.level > 0.0 ? 1.0 : INFINITY;
    return sqrt(spread) * (t.level > 0.0 ? 1.0 : t.huber);
}

// The loss of the best prediction.
inline double least_loss(const Targets& t, double y, double spread) {
    return t.counts && y > 0.0 ? (y - y * log(y)) / spread : 0.0;
}

// A row with a numeric target, and what its steps need.
struct NumberRow {
    double y, weight, power, spread, largest;
    Bounds range;
};

// Fill the steps of all experts and their losses with the Huber loss, and clip their margins. Unlike `other_steps`,
// this loop has no branches, so the compiler vectorises it.
inline void huber_steps(const Experts& e, const Work& work, const NumberRow& row) {
    double *__restrict margin = work.margin, *__restrict step = work.step, *__restrict chance = work.chance;
    const double *__restrict kappa = work.kappa, *__restrict rate = e.rate.data();
    const double huber = e.targets[0].huber, unit = row.spread > 0.0 ? row.spread : 1.0;
    const Index n = e.experts();
    for (Index k = 0; k < n; ++k) {
        const double a = row.weight * rate[k], p = margin[k];
        step[k] = a * huber_slope(row.y - p, a * kappa[k], row.largest);
        margin[k] = row.range.clip(p);
        chance[k] = huber_loss(row.y - margin[k], unit, huber);
    }
}

// Do the same for the pinball and the Poisson loss.
inline void other_steps(const Experts& e, const Work& work, const NumberRow& row) {
    const Targets& t = e.targets[0];
    double* margin = work.margin;
    for (Index k = 0; k < e.experts(); ++k) {
        const double a = row.weight * e.rate[k];
        if (t.counts) margin[k] = row.range.clip(margin[k]);
        work.step[k] = a * number_slope(t, row.y, margin[k], a * work.kappa[k], row.largest);
        margin[k] = row.range.clip(margin[k]);
        work.chance[k] = row.spread > 0.0 ? number_loss(t, row.y, margin[k], row.spread) : 0.0;
    }
}

// Update the forgetting intercepts and their shares.
inline void follow_number(const Follow& follow, const Targets& t, const NumberRow& row, double p) {
    const double base = p - follow.sum();
    double total = 0.0, least = INFINITY;
    for (Index e = 0; e < FOLLOWERS; ++e)
        least = smaller(least, number_loss(t, row.y, base + follow.intercept[e], row.spread));
    for (Index e = 0; e < FOLLOWERS; ++e) {
        const double at = base + follow.intercept[e];
        follow.share[e] *= exp(row.power * (least - number_loss(t, row.y, at, row.spread)));
        total += follow.share[e];
        double slope = number_slope(t, row.y, at, 0.0, row.largest);
        if (t.counts) slope = clipped(slope / larger(exp(at), 1.0), -1.0, 1.0);
        follow.intercept[e] += SLOWER * FOLLOW[e] * smaller(row.power, 1.0) * slope;
    }
    follow.redistribute(total);
}

// Update the shares after the steps, whose losses are in work.chance.
inline void share_numbers(Experts& e, const Work& work, const NumberRow& row) {
    Targets& t = e.targets[0];
    const Index n = e.experts(), count = e.plain_experts();
    double *chance = work.chance, least = INFINITY;
    for (Index k = 0; k < n; ++k) least = smaller(least, chance[k]);
    for (Index k = 0; k < n; ++k) work.z[k] = static_cast<float>(row.power * (least - chance[k]));
    exp_all(work.z, n);
    for (Index k = 0; k < n; ++k) chance[k] = static_cast<double>(work.z[k]);
    const double p = work.output[0];
    if (n > count) {
        const double plain = row.range.clip(dot(e.plain.data(), work.margin, count) + follow_of(e, 0).sum());
        const double best = least_loss(t, row.y, row.spread);
        t.loss += row.power * (number_loss(t, row.y, p, row.spread) - best);
        t.plain_loss += row.power * (number_loss(t, row.y, plain, row.spread) - best);
        update_shares(e.plain.data(), chance, count, count);
    }
    update_shares(e.share.data(), chance, n, count);
    follow_number(follow_of(e, 0), t, row, p);
}

// Update the spread and the range of the targets; return the curvature of the loss at the prediction p.
inline double record_target(Targets& t, double y, double p) {
    const double spread = t.spread / larger(t.spread_weight, 1e-300);
    double curvature = 1.0, square = 0.0, residual = 0.0;
    if (t.counts) {
        curvature = exp(p);
        square = smaller((y - curvature) * (y - curvature) / curvature, spread > 0.0 ? 64.0 * spread : INFINITY);
        residual = clipped(log(larger(y, FEWEST)) - p, -1.0, 1.0);
    } else {
        const double most = spread > 0.0 ? t.huber * sqrt(spread) : INFINITY;
        residual = clipped(y - p, -most, most);
        square = residual * residual;
    }
    t.spread = FORGET_SPREAD * t.spread + square;
    t.spread_weight = FORGET_SPREAD * t.spread_weight + 1.0;
    t.low = smaller(t.low, p + residual);
    t.high = larger(t.high, p + residual);
    return curvature;
}

// Do the same as `learn_classes` for a numeric target y.
inline double learn_number(Experts& e, const Work& work, double y, double weight, double power) {
    Targets& t = e.targets[0];
    const double spread = t.spread_weight > 0.0 ? t.spread / t.spread_weight : 0.0;
    const double scaled = clipped((y - t.offset) / t.unit, -LARGEST_TARGET, LARGEST_TARGET);
    const NumberRow row{scaled, weight, power, spread, largest_slope(t, spread), bounds(t)};
    if (t.counts || t.level > 0.0)
        other_steps(e, work, row);
    else
        huber_steps(e, work, row);
    if (spread > 0.0) share_numbers(e, work, row);
    return weight * record_target(t, scaled, work.output[0]);
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

// The steps of the experts, and updates of their shares, in regression with squared, Huber, pinball or Poisson loss.
#pragma once

#include "steps.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double FORGET_SPREAD = 0.99;  // decay of squared residuals per row
constexpr double SLOWER = 0.2;          // learning rate of forgetting intercepts, relative to classification
constexpr double LONGEST_STEP = 1e30;   // Poisson: longer steps are as long
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

// The pinball loss of a residual.
inline double pinball_loss(double off, double level) { return larger(level * off, (level - 1.0) * off); }

// A row with a numeric target, and what its steps need; `unit` makes pinball losses relative to the spread.
struct NumberRow {
    double y, weight, power, spread, largest, unit;
    Bounds range;
};

// The loss of a prediction p, in units of the spread. `level` is that of the quantile, or 0.
inline double number_loss(const Targets& t, double level, const NumberRow& row, double p) {
    if (t.counts) return (exp(p) - row.y * p) / row.spread;
    return level > 0.0 ? row.unit * pinball_loss(row.y - p, level) : huber_loss(row.y - p, row.spread, t.huber);
}

// The slope -l'(p) of the Huber loss, which is at most `largest`, or of the Poisson loss, with
// mean = exp(p), in units of the prediction.
inline double number_slope(const Targets& t, double y, double p, double mean, double largest) {
    return t.counts ? clipped((y - mean) / larger(mean, 1.0), -1.0, 1.0) : clipped(y - p, -largest, largest);
}

// The largest absolute slope of the loss.
inline double largest_slope(const Experts& e, double spread) {
    if (spread <= 0.0) return e.has_levels() ? 1.0 : INFINITY;
    return sqrt(spread) * (e.has_levels() ? 1.0 : e.targets[0].huber);
}

// The loss of the best prediction.
inline double least_loss(const Targets& t, double y, double spread) {
    return t.counts && y > 0.0 ? (y - y * log(y)) / spread : 0.0;
}

// Fill the steps of all experts and their losses with the Huber loss, and clip their margins. This loop and that of
// `pinball_steps` have no branches, so the compiler vectorises them.
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

// Do the same for the pinball loss of output c.
inline void pinball_steps(const Experts& e, const Work& work, const NumberRow& row, Index c) {
    const Index n = e.experts();
    double *__restrict margin = work.margin + c * n, *__restrict step = work.step + c * n;
    double* __restrict chance = work.chance;
    const double *__restrict kappa = work.kappa, *__restrict rate = e.rate.data();
    const double level = e.level[c], low = (level - 1.0) * row.largest, high = level * row.largest;
    for (Index k = 0; k < n; ++k) {
        const double a = row.weight * rate[k], p = margin[k];
        step[k] = a * clipped((row.y - p) / larger(a * kappa[k], 1e-300), low, high);
        margin[k] = row.range.clip(p);
        chance[k] = row.unit * pinball_loss(row.y - margin[k], level);
    }
}

// Do the same for the Poisson loss. With u = p + a s and a = length, the root of h(u) = u - p - a (y - exp(u)) is needed.
// Newton's iteration starts near it: v = a exp(u) solves v + log v = q with q = p + a y + log a, so v is about
// q - log q if q > 1, and otherwise about exp(q) / (1 + exp(q)). After three iterations the error of u is about 1e-5.
// It is computed in single precision, for FLOATS experts at a time. The arguments of exponentials are relative to `top`,
// which the root cannot exceed, and a is limited so that nothing overflows.
inline void count_steps(const Experts& e, const Work& work, const NumberRow& row) {
    const Index n = e.experts();
    double* margin = work.margin;
    float *ps = work.z, *lengths = work.length, *means = work.chance32, *steps = work.step32;
    double most = row.range.clip(margin[0]);
    for (Index k = 0; k < n; ++k) {
        margin[k] = row.range.clip(margin[k]);
        most = larger(most, margin[k]);
        lengths[k] = static_cast<float>(smaller(row.weight * e.rate[k] * work.kappa[k], LONGEST_STEP));
    }
    for (Index k = 0; k < n; ++k) ps[k] = static_cast<float>(margin[k] - most);
    const double count = smaller(row.y, LARGEST_TARGET);
    const Floats zero(0.0f), one(1.0f), three(3.0f), shift(static_cast<float>(most)), y(static_cast<float>(count));
    const Floats least(1e-30f), scale(static_cast<float>(exp(most))), log_y(static_cast<float>(log(larger(count, 1e-30))));
    for (Index k = 0; k < n; k += FLOATS) {
        const Floats before = load<FLOATS>(ps + k), p = before + shift, mean = scale * exp_of_negative(before);
        const Floats highest = larger(mean, y), top = larger(p, log_y);
        const Floats a = larger(smaller(load<FLOATS>(lengths + k), Floats(1e30f) / larger(highest, one)), least);
        const Floats log_a = log_below(a), linear = p + a * y, q = linear + log_a;
        const Floats small = exp_of_negative(smaller(q, zero)) * larger(one, smaller(one + q, three));
        Floats u = smaller(choose(q > one, log_below(larger(q, one)) - log_a, linear - small / (one + small)), top);
        for (int i = 0; i < 3; ++i) {
            const Floats there = a * highest * exp_of_negative(u - top);
            u = smaller(u - (u - linear + there) / (one + there), top);
        }
        store(mean, means + k);
        store(choose(a > one, (u - p) / a, y - highest * exp_of_negative(u - top)), steps + k);
    }
    for (Index k = 0; k < n; ++k) {
        work.step[k] = row.weight * e.rate[k] * static_cast<double>(steps[k]);
        work.chance[k] = row.spread > 0.0 ? (static_cast<double>(means[k]) - row.y * margin[k]) / row.spread : 0.0;
    }
}

// Fill the steps of bettors after those of the others: the slope in units of the spread, between -1 and 1. The slopes of
// counts and quantiles have no unit.
inline void bet_on_number(const Experts& e, const Work& work, const NumberRow& row, Index c) {
    const Index n = e.experts(), first = c * n + 2 * e.count();
    const double unit = row.spread > 0.0 ? 1.0 / sqrt(row.spread) : 0.0, level = e.level[c];
    for (Index k = first; k < first + e.bettors(); ++k) {
        const double p = work.margin[k];
        double slope = clipped(unit * (row.y - p), -1.0, 1.0);
        if (e.targets[0].counts) slope = number_slope(e.targets[0], row.y, p, exp(p), 1.0);
        if (level > 0.0) slope = row.y > p ? level : level - 1.0;
        work.step[k] = smaller(row.power, 1.0) * slope;
    }
}

// Update the forgetting intercepts of output c and their shares.
inline void follow_number(const Experts& e, const Work& work, const NumberRow& row, Index c) {
    const Follow follow = follow_of(e, c);
    const double base = work.output[c] - follow.sum(), level = e.level[c], some = SLOWER * smaller(row.power, 1.0);
    double total = 0.0, least = INFINITY, loss[FOLLOWERS], slope[FOLLOWERS];
    if (level > 0.0) {
        for (Index i = 0; i < FOLLOWERS; ++i) {
            const double off = row.y - (base + follow.intercept[i]);
            slope[i] = (off > 0.0 ? level : level - 1.0) * row.largest;
            loss[i] = row.unit * pinball_loss(off, level);
        }
    } else {
        const Targets& t = e.targets[0];
        for (Index i = 0; i < FOLLOWERS; ++i) {
            const double at = base + follow.intercept[i], mean = t.counts ? exp(at) : 0.0;
            slope[i] = number_slope(t, row.y, at, mean, row.largest);
            loss[i] = t.counts ? (mean - row.y * at) / row.spread : huber_loss(row.y - at, row.spread, t.huber);
        }
    }
    for (Index i = 0; i < FOLLOWERS; ++i) least = smaller(least, loss[i]);
    float chance[LONGEST_VECTOR] = {};
    for (Index i = 0; i < FOLLOWERS; ++i) chance[i] = static_cast<float>(row.power * (least - loss[i]));
    exp_all(chance, FOLLOWERS);
    for (Index i = 0; i < FOLLOWERS; ++i) {
        follow.intercept[i] += FOLLOW[i] * some * slope[i];
        total += follow.share[i] *= static_cast<double>(chance[i]);
    }
    follow.redistribute(total);
}

// Update the shares of output c after its steps, whose losses are in work.chance.
inline void share_numbers(Experts& e, const Work& work, const NumberRow& row, Index c) {
    Targets& t = e.targets[0];
    const Index n = e.experts(), count = e.plain_experts();
    double *__restrict chance = work.chance, *plain = e.plain.data() + c * count;
    float* __restrict z = work.z;
    const double least = least_of(chance, n), level = e.level[c], loss = number_loss(t, level, row, work.output[c]);
    const double other = number_loss(t, level, row, mixed(e, work, e.steady.data(), c, row.range));
    compare_shares(t, row.power * (loss - other) / static_cast<double>(e.outputs()));
    for (Index k = 0; k < n; ++k) z[k] = static_cast<float>(row.power * (least - chance[k]));
    exp_all(z, n);
    for (Index k = 0; k < n; ++k) chance[k] = static_cast<double>(z[k]);
    if (n > count) {
        const double plainly = row.range.clip(dot(plain, work.margin + c * n, count) + follow_of(e, c).sum());
        const double best = least_loss(t, row.y, row.spread);
        t.loss += row.power * (loss - best);
        t.plain_loss += row.power * (number_loss(t, level, row, plainly) - best);
        update_shares(e, plain, chance, count);
    }
    update_shares(e, e.share.data() + c * n, chance, n);
    follow_number(e, work, row, c);
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
    const double unit = spread > 0.0 ? 2.0 / sqrt(spread) : 1.0;
    const NumberRow row{scaled, weight, power, spread, largest_slope(e, spread), unit, bounds(t)};
    NumberRow often = row;
    often.power *= static_cast<double>(t.turns);
    for (Index c = 0; c < e.outputs(); ++c) {
        if (e.has_levels())
            pinball_steps(e, work, row, c);
        else if (t.counts)
            count_steps(e, work, row);
        else
            huber_steps(e, work, row);
        if (e.has_line()) bet_on_number(e, work, row, c);
        // To save time, a row updates the shares of only some of several quantiles, and counts more often there.
        if (spread > 0.0 && (c + t.turn) % t.turns == 0) share_numbers(e, work, often, c);
    }
    t.turn = (t.turn + 1) % t.turns;
    return weight * record_target(t, scaled, work.output[e.middle()]);
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

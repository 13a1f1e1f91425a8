// The steps of the experts, and updates of their shares: classification with the logistic or softmax loss, regression
// with squared, Huber, pinball or Poisson loss.
#pragma once

#include "mixture.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

// --------------------------------------------------------------------------------------------- exponentials
//
// Exponentials and logistic functions in single precision, without branches, for eight experts at a time.

using Floats = Lanes<float>;

constexpr float LOG_TWO = 0.69314718055994531f, BITS_OF_E = 1.4426950408889634f;
// The coefficients of the series of 2^f: log(2)^k / k!.
constexpr float C1 = 0.6931471805599453f, C2 = 0.2402265069591007f, C3 = 0.05550410866482158f;
constexpr float C4 = 0.009618129107628477f, C5 = 0.0013333558146428443f;
constexpr std::int32_t POWER = 1 << 23, EXPONENT_OF_ONE = 127;  // of a float
constexpr float LOG_OF_BIT = 0.69314718055994531f / 8388608.0f, LOG_OF_ZERO = 127.0f * 0.69314718055994531f;

// exp(x) for x <= 0; x below -60 and NaN count as -60, x above 0 as 0. With x = (n + f) log 2, |f| <= 1/2, this is 2^f,
// by its series, times 2^n, made from bits. The relative error is below 1e-5.
RFD_INLINE Floats exp_of_negative(const Floats& x) {
    const Floats t = smaller(larger(x, Floats(-60.0f)), Floats(0.0f)) * Floats(BITS_OF_E);
    const Lanes<std::int32_t> n = truncated(t - Floats(0.5f));  // the nearest integer, since t <= 0
    const Floats f = t - as_floats(n);
    const Floats size =
        larger(absolute(f), Floats(1e-8f));  // squares of smaller numbers may be subnormal, which is slow
    const Floats square = size * size, one(1.0f);
    const Floats series = (one + f * Floats(C1)) +
                          square * ((Floats(C2) + f * Floats(C3)) + square * (Floats(C4) + f * Floats(C5)));
    return series * float_of_bits((n + Lanes<std::int32_t>(EXPONENT_OF_ONE)) * Lanes<std::int32_t>(POWER));
}

// Replace x[k] <= 0 by its exponential for all k < n, and some after that up to a multiple of eight.
inline void exp_all(float* x, Index n) {
    for (Index k = 0; k < n; k += LANES) store<float>(exp_of_negative(load(x + k)), x + k);
}

RFD_INLINE Floats sigmoid(const Floats& x) {
    const Floats e = exp_of_negative(-absolute(x)), one(1.0f);
    return choose(Floats(0.0f) > x, e, one) / (one + e);
}

RFD_INLINE double sigmoid(double x) {
    const double e = exp(-fabs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

// A lower bound of log(x) for x >= 0, at most 0.06 too low if x is a normal number: the bits of a number, as an
// integer, are linear in its logarithm between two powers of two.
RFD_INLINE Floats log_below(const Floats& x) {
    return as_floats(bits_of(x)) * Floats(LOG_OF_BIT) - Floats(LOG_OF_ZERO);
}

// Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)). n is a multiple of eight.
//
// With u = z + a s and a = length, the root of h(u) = u - z - a sigmoid(-u) is needed. If h(0) < 0 the root is positive
// and h is concave there, so Newton's iteration from the left does not overshoot. It starts at z, at 0 or, for a long
// step, at a lower bound of Lambert's W. Otherwise h is convex, and the iteration starts on the right. After two
// iterations the error of s is a few percent. This is enough, since other experts take longer and shorter steps anyway.
inline void implicit_steps(const float* z, const float* length, float* chance, float* step, Index n) {
    const Floats zero(0.0f), half(0.5f), one(1.0f), four(4.0f);
    for (Index k = 0; k < n; k += LANES) {
        const Floats y = load(z + k), a = load(length + k);
        store<float>(sigmoid(y), chance + k);
        const Floats far = larger(log_below(a) - Floats(LOG_TWO) - y, one);
        const Floats low = choose(far > one, y + far - four * (root(root(far)) - one), y);
        Floats u = choose(y + half * a > zero, larger(larger(y, zero), low), smaller(y + a, zero));
        Floats s = sigmoid(-u);
        u -= (u - y - a * s) / (one + a * s * (one - s));
        s = sigmoid(-u);
        const Floats move = (u - y - a * s) / (one + a * s * (one - s)), first = s + s * (one - s) * move;
        store<float>(choose(a > Floats(0.01f), smaller((u - move - y) / a, first), first), step + k);
    }
}

// ------------------------------------------------------------------------------------------- classification

constexpr double LEAST_REST = 1e-6;  // lower bound of the probability of all classes except one

inline double logistic_loss(double z) { return log1p(exp(-fabs(z))) - smaller(z, 0.0); }

// log(1 - q) for a probability q; small q, the usual case with many classes, use a series.
inline double log_of_rest(double q) {
    if (q < 0.05) return -q * (1.0 + q * (0.5 + q * (1.0 / 3.0 + 0.25 * q)));
    return log(larger(1.0 - q, LEAST_REST));
}

inline double log_sum_exp(const double* margin, Index n) {
    double top = margin[0], total = 0.0;
    for (Index c = 1; c < n; ++c) top = larger(top, margin[c]);
    for (Index c = 0; c < n; ++c) total += exp(margin[c] - top);
    return top + log(total);
}

// Fill work.softmax with each expert's class probabilities and work.total with the log-sum-exp of its margins.
inline void softmax_of_experts(const Work& work, Index outputs, Index n) {
    double *__restrict top = work.chance, *__restrict total = work.total;
    for (Index k = 0; k < n; ++k) {
        top[k] = work.margin[k];
        total[k] = 0.0;
    }
    for (Index c = 1; c < outputs; ++c) {
        const double* __restrict margin = work.margin + c * n;
        for (Index k = 0; k < n; ++k) top[k] = larger(top[k], margin[k]);
    }
    for (Index c = 0; c < outputs; ++c) {
        const double* __restrict margin = work.margin + c * n;
        float *__restrict chance = work.softmax + c * n, *__restrict below = work.z;  // free until the steps
        for (Index k = 0; k < n; ++k) below[k] = static_cast<float>(margin[k] - top[k]);
        exp_all(below, n);
        for (Index k = 0; k < n; ++k) {
            chance[k] = below[k];
            total[k] += static_cast<double>(below[k]);
        }
    }
    float* __restrict inverse = work.z;
    for (Index k = 0; k < n; ++k) inverse[k] = static_cast<float>(1.0 / total[k]);
    for (Index c = 0; c < outputs; ++c) {
        float* __restrict chance = work.softmax + c * n;
        for (Index k = 0; k < n; ++k) chance[k] *= inverse[k];
    }
    for (Index k = 0; k < n; ++k) total[k] = top[k] + log(total[k]);
}

// The log loss of a row of class y with these margins of one or several outputs.
inline double class_loss(const double* margin, Index outputs, Index y) {
    if (outputs == 1) return logistic_loss(y == 1 ? margin[0] : -margin[0]);
    return log_sum_exp(margin, outputs) - margin[y];
}

// Add the log loss of the row, for all experts and for diagonal ones alone, to the sums that compare Hessians; compare
// the shares with their means likewise.
inline void compare_forms(Experts& e, const Work& work, Index y, double power) {
    const Index outputs = e.outputs(), n = e.experts(), count = e.plain_experts();
    Targets& t = e.targets[0];
    const double loss = class_loss(work.output, outputs, y);
    for (Index c = 0; c < outputs; ++c) work.plain[c] = mixed(e, work, e.steady.data(), c, bounds(t));
    compare_shares(t, power * (loss - class_loss(work.plain, outputs, y)));
    if (n == count) return;  // all experts are diagonal
    for (Index c = 0; c < outputs; ++c)
        work.plain[c] = dot(e.plain.data() + c * count, work.margin + c * n, count) + follow_of(e, c).sum();
    t.loss += power * loss;
    t.plain_loss += power * class_loss(work.plain, outputs, y);
}

// Update the forgetting intercepts and their shares; p is the margin of the class, `others` that of the rest.
inline void follow_class(const Follow& follow, double p, double others, double sign, double power) {
    const double base = p - follow.sum() - others;
    float chance[LANES] = {};
    for (Index e = 0; e < FOLLOWERS; ++e) chance[e] = static_cast<float>(sign * (base + follow.intercept[e]));
    store<float>(sigmoid(load(chance)), chance);
    double total = 0.0;
    for (Index e = 0; e < FOLLOWERS; ++e) {
        const double good = static_cast<double>(chance[e]);
        follow.intercept[e] += FOLLOW[e] * sign * smaller(power, 1.0) * (1.0 - good);
        follow.share[e] *= power == 1.0 ? good : pow(good, power);
        total += follow.share[e];
    }
    follow.redistribute(total);
}

// A row of class y; `power` is the weight of the row relative to the mean weight: the shares change as if the row
// occurred that many times.
struct ClassRow {
    Index y;
    double weight, power;
};

// Fill the steps of output c and update its shares; return the probability of the class. `whole` is the log-sum-exp of
// the predictions with several outputs.
inline double learn_output(Experts& e, const Work& work, const ClassRow& row, Index c, double whole) {
    const Index n = e.experts(), count = e.plain_experts();
    const bool several = e.outputs() > 1;
    const double sign = row.y == (several ? c : 1) ? 1.0 : -1.0, output = work.output[c];
    const double *__restrict margin = work.margin + c * n, *__restrict rate = e.rate.data();
    double *__restrict step = work.step + c * n, *__restrict chance = work.chance;
    float* __restrict z = work.z;
    double others = 0.0, q = 0.0;
    if (several) {
        const float* __restrict softmax = work.softmax + c * n;
        const double* __restrict total = work.total;
        for (Index k = 0; k < n; ++k)
            z[k] = static_cast<float>(sign * (margin[k] - total[k] - log_of_rest(static_cast<double>(softmax[k]))));
        q = exp(output - whole);
        others = whole + log_of_rest(q);
    } else {
        for (Index k = 0; k < n; ++k) z[k] = static_cast<float>(sign * margin[k]);
        q = sigmoid(output);
    }
    implicit_steps(z, work.length, work.chance32, work.step32, padded(n));
    const double times = sign * row.weight;
    for (Index k = 0; k < n; ++k) step[k] = static_cast<double>(work.step32[k]) * times * rate[k];
    const double most = sign * smaller(row.power, 1.0);
    for (Index k = 2 * e.count(); k < 2 * e.count() + e.bettors(); ++k)
        step[k] = most * (1.0 - static_cast<double>(work.chance32[k]));
    follow_class(follow_of(e, c), output, others, sign, row.power);
    const float* given = several ? work.softmax + row.y * n : work.chance32;
    for (Index k = 0; k < n; ++k) chance[k] = static_cast<double>(given[k]);
    if (row.power != 1.0)
        for (Index k = 0; k < n; ++k) chance[k] = pow(chance[k], row.power);
    if (n > count) update_shares(e, e.plain.data() + c * count, chance, count);
    update_shares(e, e.share.data() + c * n, chance, n);
    return q;
}

// Fill the steps of all experts for a row of class y, update their shares, and return the curvature of the row.
//
// With one output, y is 0 or 1 and the output is the margin of class 1. Otherwise there is one margin for each class,
// and the probabilities are their softmax. The probability of class c is then that of a two-class problem with margin
// m_c minus the log-sum-exp of the other margins. The other margins move as well, so kappa counts twice.
inline double learn_classes(Experts& e, const Work& work, double y, double weight, double power) {
    const Index outputs = e.outputs(), n = e.experts();
    const bool several = outputs > 1;
    const double times = several ? 2.0 * weight : weight;
    for (Index k = 0; k < n; ++k) work.length[k] = static_cast<float>(times * e.rate[k] * work.kappa[k]);
    double whole = 0.0, squares = 0.0, total = 0.0;
    if (several) {
        softmax_of_experts(work, outputs, n);
        whole = log_sum_exp(work.output, outputs);
    }
    const ClassRow row{static_cast<Index>(y), weight, power};
    compare_forms(e, work, row.y, power);
    for (Index c = 0; c < outputs; ++c) {
        const double q = learn_output(e, work, row, c, whole), spread = q * (1.0 - q);
        squares += spread * spread;
        total += spread;
    }
    return total > 0.0 ? weight * squares / total : 0.0;
}

// ----------------------------------------------------------------------------------------------- regression

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

// The slope -l'(p) of the Huber loss, which is at most `largest`, or of the Poisson loss in units of the prediction.
inline double number_slope(const Targets& t, double y, double p, double largest) {
    if (t.counts) return clipped((y - exp(p)) / larger(exp(p), 1.0), -1.0, 1.0);
    return clipped(y - p, -largest, largest);
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

// Do the same for the Poisson loss.
inline void count_steps(const Experts& e, const Work& work, const NumberRow& row) {
    for (Index k = 0; k < e.experts(); ++k) {
        const double a = row.weight * e.rate[k], p = work.margin[k] = row.range.clip(work.margin[k]);
        work.step[k] = a * step_of_counts(row.y, p, a * work.kappa[k]);
        work.chance[k] = row.spread > 0.0 ? number_loss(e.targets[0], 0.0, row, p) : 0.0;
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
        if (e.targets[0].counts) slope = number_slope(e.targets[0], row.y, p, 1.0);
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
        for (Index i = 0; i < FOLLOWERS; ++i) {
            const double at = base + follow.intercept[i];
            slope[i] = number_slope(e.targets[0], row.y, at, row.largest);
            loss[i] = number_loss(e.targets[0], level, row, at);
        }
    }
    for (Index i = 0; i < FOLLOWERS; ++i) least = smaller(least, loss[i]);
    float chance[LANES] = {};
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
    NumberRow twice = row;
    twice.power *= 2.0;
    for (Index c = 0; c < e.outputs(); ++c) {
        if (e.has_levels())
            pinball_steps(e, work, row, c);
        else if (t.counts)
            count_steps(e, work, row);
        else
            huber_steps(e, work, row);
        if (e.has_line()) bet_on_number(e, work, row, c);
        // To save time, a row updates the shares of every other of several quantiles, and counts twice there.
        if (spread > 0.0 && (c + t.turn) % 2 == 0) share_numbers(e, work, e.outputs() > 1 ? twice : row, c);
    }
    if (e.outputs() > 1) t.turn = 1 - t.turn;
    return weight * record_target(t, scaled, work.output[e.middle()]);
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

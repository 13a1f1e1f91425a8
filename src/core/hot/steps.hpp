// The steps of the experts, and updates of their shares, in classification with the logistic or softmax loss.
#pragma once

#include "mixture.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

// --------------------------------------------------------------------------------------------- exponentials
//
// Exponentials and logistic functions in single precision, without branches, for FLOATS experts at a time.

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
    const Ints n = truncated(t - Floats(0.5f));  // the nearest integer, since t <= 0
    const Floats f = t - as_floats(n);
    const Floats size =
        larger(absolute(f), Floats(1e-8f));  // squares of smaller numbers may be subnormal, which is slow
    const Floats square = size * size, one(1.0f);
    const Floats series = (one + f * Floats(C1)) +
                          square * ((Floats(C2) + f * Floats(C3)) + square * (Floats(C4) + f * Floats(C5)));
    return series * float_of_bits((n + Ints(EXPONENT_OF_ONE)) * Ints(POWER));
}

// Replace x[k] <= 0 by its exponential for all k < n, and some after that up to a whole vector.
inline void exp_all(float* x, Index n) {
    for (Index k = 0; k < n; k += FLOATS) store(exp_of_negative(load<FLOATS>(x + k)), x + k);
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

// Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)), for k < n and some more up to
// a whole vector.
//
// With u = z + a s and a = length, the root of h(u) = u - z - a sigmoid(-u) is needed. If h(0) < 0 the root is positive
// and h is concave there, so Newton's iteration from the left does not overshoot. It starts at z, at 0 or, for a long
// step, at a lower bound of Lambert's W. Otherwise h is convex, and the iteration starts on the right. After two
// iterations the error of s is a few percent. This is enough, since other experts take longer and shorter steps anyway.
inline void implicit_steps(const float* z, const float* length, float* chance, float* step, Index n) {
    const Floats zero(0.0f), half(0.5f), one(1.0f), four(4.0f);
    for (Index k = 0; k < n; k += FLOATS) {
        const Floats y = load<FLOATS>(z + k), a = load<FLOATS>(length + k);
        store(sigmoid(y), chance + k);
        const Floats far = larger(log_below(a) - Floats(LOG_TWO) - y, one);
        const Floats low = choose(far > one, y + far - four * (root(root(far)) - one), y);
        Floats u = choose(y + half * a > zero, larger(larger(y, zero), low), smaller(y + a, zero));
        Floats s = sigmoid(-u);
        u -= (u - y - a * s) / (one + a * s * (one - s));
        s = sigmoid(-u);
        const Floats move = (u - y - a * s) / (one + a * s * (one - s)), first = s + s * (one - s) * move;
        store(choose(a > Floats(0.01f), smaller((u - move - y) / a, first), first), step + k);
    }
}

// ------------------------------------------------------------------------------------------- classification

constexpr double LEAST_REST = 1e-6;  // lower bound of the probability of all classes except one

inline double logistic_loss(double z) { return log1p(exp(-fabs(z))) - smaller(z, 0.0); }

// The logistic loss of a minus that of b, with one logarithm.
inline double loss_difference(double a, double b) {
    return log((1.0 + exp(-fabs(a))) / (1.0 + exp(-fabs(b)))) + smaller(b, 0.0) - smaller(a, 0.0);
}

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
    for (Index c = 0; c < outputs; ++c) work.plain[c] = mixed(e, work, e.steady.data(), c, bounds(t));
    if (n == count && outputs == 1) {  // the usual case, in less time
        const double sign = y == 1 ? 1.0 : -1.0;
        return compare_shares(t, power * loss_difference(sign * work.output[0], sign * work.plain[0]));
    }
    const double loss = class_loss(work.output, outputs, y);
    compare_shares(t, power * (loss - class_loss(work.plain, outputs, y)));
    if (n == count) return;  // all experts are diagonal
    for (Index c = 0; c < outputs; ++c)
        work.plain[c] = dot(e.plain.data() + c * count, work.margin + c * n, count) + follow_of(e, c).sum();
    t.loss += power * loss;
    t.plain_loss += power * class_loss(work.plain, outputs, y);
}

// Update the forgetting intercepts and their shares by the probabilities that they gave to the label.
inline void follow_class(const Follow& follow, const float* chance, double sign, double power) {
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
    const Follow follow = follow_of(e, c);
    const double base = output - follow.sum() - others;
    for (Index k = 0; k < FOLLOWERS; ++k) z[n + k] = static_cast<float>(sign * (base + follow.intercept[k]));
    const bool apart = (n + FOLLOWERS - 1) / FLOATS > (n - 1) / FLOATS;  // they would need one more vector of steps
    implicit_steps(z, work.length, work.chance32, work.step32, apart ? n : n + FOLLOWERS);
    if (apart) store(sigmoid(load<FLOATS>(z + n)), work.chance32 + n);
    const double times = sign * row.weight;
    for (Index k = 0; k < n; ++k) step[k] = static_cast<double>(work.step32[k]) * times * rate[k];
    const double most = sign * smaller(row.power, 1.0);
    for (Index k = 2 * e.count(); k < 2 * e.count() + e.bettors(); ++k)
        step[k] = most * (1.0 - static_cast<double>(work.chance32[k]));
    follow_class(follow, work.chance32 + n, sign, row.power);
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

}  // namespace

}  // namespace robustfd::RFD_LEVEL

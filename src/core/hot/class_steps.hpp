// Classification: steps of the experts with the logistic or softmax loss, and updates of their shares.
#pragma once

#include "mixture.hpp"
#include "sigmoid.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

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

// Add the log loss of the row, for all experts and for diagonal ones alone, to the sums that compare Hessians.
inline void compare_forms(Experts& e, const Work& work, Index y, double power) {
    const Index outputs = e.outputs(), n = e.experts(), count = e.plain_experts();
    if (n == count) return;  // all experts are diagonal
    Targets& t = e.targets[0];
    for (Index c = 0; c < outputs; ++c)
        work.plain[c] = dot(e.plain.data() + c * count, work.margin + c * n, count) + follow_of(e, c).sum();
    if (outputs == 1) {
        const double sign = y == 1 ? 1.0 : -1.0;
        t.loss += power * logistic_loss(sign * work.output[0]);
        t.plain_loss += power * logistic_loss(sign * work.plain[0]);
    } else {
        t.loss += power * (log_sum_exp(work.output, outputs) - work.output[y]);
        t.plain_loss += power * (log_sum_exp(work.plain, outputs) - work.plain[y]);
    }
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
    follow_class(follow_of(e, c), output, others, sign, row.power);
    const float* given = several ? work.softmax + row.y * n : work.chance32;
    for (Index k = 0; k < n; ++k) chance[k] = static_cast<double>(given[k]);
    if (row.power != 1.0)
        for (Index k = 0; k < n; ++k) chance[k] = pow(chance[k], row.power);
    if (n > count) update_shares(e.plain.data() + c * count, chance, count, count);
    update_shares(e.share.data() + c * n, chance, n, count);
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

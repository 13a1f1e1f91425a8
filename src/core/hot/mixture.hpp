// The mixture of experts: their shares, and how a row changes them.
//
// The prediction is the mean of the experts' margins, weighted by their shares (fixed share, Herbster and Warmuth
// 1998). Each row multiplies the share of an expert by the probability that this expert gave to the label. Then a small
// part of all shares is redistributed. So no expert loses its whole share, and the mixture adapts to drift.
//
// An expert takes the proximal point step w += eta s H^-1 x, where s solves s = -l'(p + s eta kappa), l' is the slope
// of the loss and kappa = x'H^-1 x. Such a step never overshoots.
#pragma once

#include "features.hpp"
#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double SHARED = 1e-4;  // the part of all shares that is redistributed after each row
constexpr double SLACK = 0.1;    // predicted numbers may leave the range of the targets by this fraction of it
constexpr double LEAST_SUM = 1e-300;

// The smallest and the largest number to predict, minus the offset.
struct Bounds {
    double low, high;
    double clip(double p) const { return clipped(p, low, high); }
};

inline Bounds bounds(const Targets& t) {
    if (!t.numbers || t.low > t.high) return {-INFINITY, INFINITY};
    return {t.low - SLACK * (t.high - t.low), t.high + SLACK * (t.high - t.low)};
}

// The forgetting intercepts of an output, and their shares.
struct Follow {
    double *intercept, *share;

    double sum() const {
        double p = 0.0;
        for (Index e = 0; e < FOLLOWERS; ++e) p += share[e] * intercept[e];
        return p;
    }
    // Redistribute a part of the shares, which sum to `total`.
    void redistribute(double total) const {
        for (Index e = 0; e < FOLLOWERS; ++e)
            share[e] = (1.0 - SHARED) * share[e] / larger(total, LEAST_SUM) + SHARED * FOLLOW_SHARE[e];
    }
};

inline Follow follow_of(const Experts& e, Index output) {
    double* both = e.follow.data() + output * 2 * FOLLOWERS;
    return {both, both + FOLLOWERS};
}

// Multiply shares by the probabilities that experts gave to the label, and redistribute a part of them. The first
// `count` experts are diagonal. The others, if any, get the fraction OFFERED of the redistributed part.
inline void update_shares(double* __restrict share, const double* __restrict chance, Index n, Index count) {
    const double scale = (1.0 - SHARED) / larger(dot(share, chance, n), LEAST_SUM);
    const Index better = n - count;
    const double plain = SHARED * (1.0 - (better > 0 ? OFFERED : 0.0)) / static_cast<double>(count);
    for (Index k = 0; k < count; ++k) share[k] = share[k] * chance[k] * scale + plain;
    const double rest = better > 0 ? SHARED * OFFERED / static_cast<double>(better) : 0.0;
    for (Index k = count; k < n; ++k) share[k] = share[k] * chance[k] * scale + rest;
}

// Add the share of forgetting experts to the trace; `row` counts from 0.
inline void record_shares(Experts& e, Index row) {
    Targets& t = e.targets[0];
    double* trace = e.trace.data();
    if (row / t.stride >= WINDOWS) {
        for (Index i = 0; i < WINDOWS / 2; ++i) trace[i] = trace[2 * i] + trace[2 * i + 1];
        for (Index i = WINDOWS / 2; i < WINDOWS; ++i) trace[i] = 0.0;
        t.stride *= 2;
    }
    double total = 0.0;
    const Index outputs = e.outputs(), n = e.experts();
    for (Index c = 0; c < outputs; ++c) total += dot(e.share.data() + c * n, e.fast.data(), n);
    trace[row / t.stride] += total / static_cast<double>(outputs);
}

// Fill work.output with the predictions of the mixture, clipped near the range of the targets in regression.
inline void predict(const Experts& e, const Work& work) {
    const Targets& t = e.targets[0];
    const Index n = e.experts();
    const Bounds range = bounds(t);
    for (Index c = 0; c < e.outputs(); ++c) {
        const double* margin = work.margin + c * n;
        if (t.numbers) {
            for (Index k = 0; k < n; ++k) work.chance[k] = range.clip(margin[k]);
            margin = work.chance;
        }
        work.output[c] = range.clip(dot(e.share.data() + c * n, margin, n) + follow_of(e, c).sum());
    }
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

// A blend of the predictions of several learners: their mean, weighted by shares that follow the losses of recent rows
// (fixed share, Herbster and Warmuth 1998). The learner with the best log loss may have more wrong labels than the first
// one, which is too sure of itself. So the prediction for classes is the mean of the blend and of the first learner,
// weighted by shares that follow wrong labels.
#pragma once

#include <algorithm>
#include <cmath>

#include "array.hpp"
#include "forest.hpp"

namespace robustfd {

constexpr double SWITCH = 1e-3;     // the share that all learners divide anew after each row
constexpr double STEADY = 256.0;    // rows over which shares are averaged for models that are read
constexpr double RECENT = 0.99;     // decay of the typical loss per row
constexpr double WORST = 32.0;      // larger losses, in typical ones, are clipped to this
constexpr double HEAVIEST_ROW = 10.0;  // larger weights, relative to the mean, are clipped to this
constexpr double MISTAKE = 0.25;  // the loss of a wrong label

// Sums over rows: their number and weights, recent losses of the best learner, and losses of the first learner and of
// the blend since the last look at them.
struct Blended {
    double rows, weight, typical, recent, first, blend;
};

// The loss of a prediction: log loss, squared error, pinball loss or half the Poisson deviance.
inline double loss_of(Objective objective, double level, const double* margin, Index outputs, double y) {
    if (objective == Objective::logistic) {
        const double m = y > 0.5 ? margin[0] : -margin[0];
        return std::max(-m, 0.0) + std::log1p(std::exp(-std::abs(m)));
    }
    if (objective == Objective::softmax) {
        const double top = *std::max_element(margin, margin + outputs);
        double total = 0.0;
        for (Index k = 0; k < outputs; ++k) total += std::exp(margin[k] - top);
        return top + std::log(total) - margin[static_cast<Index>(y)];
    }
    const double off = y - margin[0];
    if (objective == Objective::squared) return off * off;
    if (objective == Objective::pinball) return off * (level - (off < 0.0 ? 1.0 : 0.0));
    const double mean = std::max(margin[0], 1e-300);
    return std::max(mean - y + (y > 0.0 ? y * std::log(y / mean) : 0.0), 0.0);
}

inline bool is_of_classes(Objective objective) {
    return objective == Objective::logistic || objective == Objective::softmax;
}

inline bool is_wrong(Objective objective, const double* margin, Index outputs, double y) {
    if (objective == Objective::logistic) return (margin[0] > 0.0) != (y > 0.5);
    return std::max_element(margin, margin + outputs) - margin != static_cast<Index>(y);
}

// The mean of M predictions at stride n K; counts are averaged by their logarithms.
inline void mean_of(Objective objective, Span<const double> share, const double* margins, Index stride, Index outputs,
                    double* out) {
    for (Index k = 0; k < outputs; ++k) {
        double sum = 0.0;
        for (std::size_t m = 0; m < share.size(); ++m) {
            const double margin = margins[static_cast<Index>(m) * stride + k];
            sum += share[m] * (objective == Objective::counts ? std::log(std::max(margin, 1e-300)) : margin);
        }
        out[k] = objective == Objective::counts ? std::exp(sum) : sum;
    }
}

// What a blend of M learners learns: their shares, those of the blend and of the first learner by wrong labels, means
// of the shares of each learner in predictions over recent rows, and sums.
struct Blend {
    Span<double> share, labels, steady;
    Blended& all;
};

// Divide a part of the shares anew.
inline void divide_anew(Span<double> share) {
    double total = 0.0;
    for (const double each : share) total += each;
    for (double& each : share) each = (1.0 - SWITCH) * each / total + SWITCH / static_cast<double>(share.size());
}

// Blend row i of the predictions of M learners, and let the shares follow its target.
inline void blend_row(Objective objective, double level, const double* margins, Index stride, Index outputs, double y,
                      double weight, const Blend& state, Span<double> losses, double* out) {
    auto& [share, labels, steady, all] = state;
    const bool classes = is_of_classes(objective);
    const double first = classes ? labels[1] : 0.0;
    all.rows += 1.0, all.weight += weight;
    const double relative = std::min(weight / (all.weight / all.rows), HEAVIEST_ROW);
    mean_of(objective, share, margins, stride, outputs, out);
    if (classes) {
        labels[0] *= std::exp(-relative * MISTAKE * is_wrong(objective, out, outputs, y));
        labels[1] *= std::exp(-relative * MISTAKE * is_wrong(objective, margins, outputs, y));
        divide_anew(labels);
        for (Index k = 0; k < outputs; ++k) out[k] += first * (margins[k] - out[k]);
    }
    for (std::size_t m = 0; m < share.size(); ++m)
        losses[m] = loss_of(objective, level, margins + static_cast<Index>(m) * stride, outputs, y);
    all.first += relative * losses[0], all.blend += relative * loss_of(objective, level, out, outputs, y);
    const double best = *std::min_element(losses.begin(), losses.end());
    all.typical = RECENT * all.typical + relative * best, all.recent = RECENT * all.recent + relative;
    const double unit = all.typical / all.recent * (objective == Objective::pinball ? 1.0 : 2.0);
    for (std::size_t m = 0; m < share.size(); ++m) {
        double loss = losses[m] - best;
        if (!classes) loss = unit > 0.0 ? std::min(loss / unit, WORST) : (loss > 0.0 ? WORST : 0.0);
        share[m] *= std::exp(-relative * loss);
    }
    divide_anew(share);
    for (std::size_t m = 0; m < share.size(); ++m) {
        const double own = classes ? labels[0] * share[m] + (m == 0 ? labels[1] : 0.0) : share[m];
        steady[m] += (own - steady[m]) / std::min(all.rows, STEADY);
    }
}

}  // namespace robustfd

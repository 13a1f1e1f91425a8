// The settings of the learners of the paper: loss, learning rate, projection and shrink rule.
#pragma once

#include <math.h>

#include "array.hpp"
#include "losses.hpp"

namespace robustfd {

enum class Projection : int { NONE, CURRENT, NEXT };  // onto K_t after the step, or K_{t+1} before predicting

// The matrix that divides the gradient: B'B + alpha I (Newton), its square root (S-AdaGrad), or (B'B)^(1/2) + alpha I
// (Ada-FD). The roots have no update of rank one, so every row is followed by a shrink, and its step by that.
enum class Root : int { NONE, OF_SUM, OF_SKETCH };

struct PaperSettings {
    Loss loss;
    double bound = 1.0;
    Projection projection = Projection::NONE;
    double mu = 0.0;
    double rate = 1.0, power = 0.0;  // the rate at row t is rate / t^power
    double alpha0 = 0.0;
    bool shrink_first = false;  // whether the row that fills a block takes its step after the shrink
    Index shrunk = 0;           // how many of the m largest eigenvalues a shrink reduces
    double added = 0.0;         // a shrink by delta increases alpha by this number times delta
    Root root = Root::NONE;
};

// A slope this small, relative to the label, is rounding error of a margin that equals its label.
constexpr double NO_GRADIENT = 1e-9;

}  // namespace robustfd

namespace robustfd::RFD_LEVEL {

// The slope of the loss at the margin p, or exactly 0 if it is rounding error.
inline double slope_at(const PaperSettings& settings, double p, double y) {
    const double slope = slope_of(settings.loss, p, y), size = fabs(y);
    return fabs(slope) > NO_GRADIENT * (size > 1.0 ? size : 1.0) ? slope : 0.0;
}

// The learning rate at row t, counted from 1.
inline double rate_at(const PaperSettings& settings, Index t) {
    const double time = static_cast<double>(t);
    if (settings.power == 1.0) return settings.rate / time;  // pow takes longer than the rest of a short row
    if (settings.power == 0.5) return settings.rate / sqrt(time);
    return settings.power == 0.0 ? settings.rate : settings.rate / pow(time, settings.power);
}

}  // namespace robustfd::RFD_LEVEL

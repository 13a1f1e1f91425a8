// Losses of a linear model in the margin p = w'x. A loss is a small value, and its functions are compiled with the
// loops that use it.
#pragma once

#include <math.h>

#include "level.hpp"

namespace robustfd {

struct Loss {
    enum Kind : int { SQUARED, LOGISTIC, SQUARED_HINGE, HINGE, ABSOLUTE, HUBER };
    Kind kind = SQUARED;
    double delta = 1.0;  // the threshold of the Huber loss
};

// Within this distance of a kink the slope is 0. A projection often puts a margin exactly on the label or on the edge
// of the hinge. Rounding error must not decide between the slopes on the two sides.
constexpr double KINK = 1e-9;

}  // namespace robustfd

namespace robustfd::RFD_LEVEL {

// l(p) for the label y.
inline double value_of(const Loss& loss, double p, double y) {
    if (loss.kind == Loss::LOGISTIC) {
        const double z = y * p;
        return z > 0.0 ? log1p(exp(-z)) : log1p(exp(z)) - z;
    }
    if (loss.kind == Loss::HINGE || loss.kind == Loss::SQUARED_HINGE) {
        const double margin = 1.0 - y * p, lacking = margin > 0.0 ? margin : 0.0;
        return loss.kind == Loss::HINGE ? lacking : lacking * lacking;
    }
    const double r = fabs(p - y);
    if (loss.kind == Loss::ABSOLUTE) return r;
    if (loss.kind == Loss::HUBER && r > loss.delta) return loss.delta * (2.0 * r - loss.delta);
    return r * r;
}

// l'(p) for the label y; within KINK of a kink (hinge, absolute) the subgradient 0.
inline double slope_of(const Loss& loss, double p, double y) {
    switch (loss.kind) {
        case Loss::LOGISTIC: {
            const double z = y * p;
            // exp is applied to negative numbers only, since it would overflow for large positive ones
            return z > 0.0 ? -y * exp(-z) / (1.0 + exp(-z)) : -y / (1.0 + exp(z));
        }
        case Loss::SQUARED_HINGE: {
            const double margin = 1.0 - y * p;
            return -2.0 * y * (margin > 0.0 ? margin : 0.0);
        }
        case Loss::HINGE: return y * p < 1.0 - KINK ? -y : 0.0;
        case Loss::ABSOLUTE: {
            const double r = p - y, near = KINK * (fabs(y) > 1.0 ? fabs(y) : 1.0);
            return r > near ? 1.0 : (r < -near ? -1.0 : 0.0);
        }
        case Loss::HUBER: {
            const double r = p - y;
            return 2.0 * (r < -loss.delta ? -loss.delta : (r > loss.delta ? loss.delta : r));
        }
        default: return 2.0 * (p - y);
    }
}

}  // namespace robustfd::RFD_LEVEL

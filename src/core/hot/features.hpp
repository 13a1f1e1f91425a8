// Statistics of each feature: how often it occurs, its centre, its scale and its curvature so far.
//
// Feature 0 is the intercept; feature j of the rows is j + 1 here. A feature that is rarely zero in the first rows is
// centred. A missing value, NaN, counts as the mean. The experts learn from scaled values: with z = x - centre for a
// centred feature and z = x otherwise, they see zeta = z / S. With V the moving mean square of z and rho = count / rows
// the density,
//
//     S^2 = V for a centred feature, else g (V/g)^min(1, 2 rho), g the geometric mean of V over all non-zeros
//     prior P = a0 for a centred feature, else a0 sqrt(max(rho, 1/64))
//
// or, for regression, P = 16 a0 if not centred. S and P are updated when a feature has occurred 4, 16, 64, ... times,
// and when V is more than 4 times larger or smaller than at the last update. If S^2 changes more than fourfold, the
// unit of the feature has changed: its weights, which multiply zeta, stay. Otherwise the estimate of S has improved:
// the effect of z stays, so the weights of zeta change. The centre moves to the mean of recent rows when S is updated
// and when that mean is half a standard deviation away; the intercepts of the experts compensate for the move.
#pragma once

#include "experts.hpp"
#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double RAREST = 1.0 / 64.0;  // lower densities count as this
constexpr double SPARSE = 16.0;        // factor of the prior of a feature that is not centred, in regression
constexpr double WINDOW = 1000.0;      // rows over which the moving mean square and the moving mean average
constexpr double MOVE = 0.5;           // the centre moves when the recent mean is this many standard deviations away
constexpr double CUT = 4.0;            // deviations above this many standard deviations are clipped before averaging
constexpr double UNIT = 4.0;           // a larger change of S^2 is a change of unit
constexpr double FIRST_UNIT = 1e30;    // the same for the first four values, so that float weights do not overflow

// S^2 of a feature from its statistics.
inline double scale_square(const Feature& f, const Totals& totals) {
    if (f.number > 0 || totals.log_weight <= 0.0 || f.square <= 0.0) return f.square;
    const double power = 2.0 * f.count / larger(totals.rows, 1.0);
    if (power >= 1.0) return f.square;
    const double g = totals.logarithms / totals.log_weight;
    return exp(power > 0.0 ? g + power * (log(f.square) - g) : g);
}

// P of a feature from its statistics.
inline double prior_of(const Feature& f, const Totals& totals) {
    if (f.number > 0) return totals.prior;
    if (totals.by_density == 0.0) return SPARSE * totals.prior;
    return totals.prior * sqrt(larger(smaller(f.count / larger(totals.rows, 1.0), 1.0), RAREST));
}

// Initialise a feature from the square of its first value, which `totals` do not include yet.
inline void init_feature(Feature& f, const Totals& totals, double square) {
    f.square = f.reference = square;
    f.count = 0.0;
    f.inverse = 1.0 / sqrt(scale_square(f, totals));
    f.prior = prior_of(f, totals);
}

// Whether a count is 4, 16, 64, ...
inline bool is_regular(double count) {
    const auto whole = static_cast<std::uint64_t>(count);
    return (whole & (whole - 1)) == 0 && (whole & 0x5555555555555554u) != 0;
}

// Update the statistics of a known feature with a value x; return whether its scale is due for an update. `mean` is the
// recent mean of a centred feature, else null.
inline bool record_value(Feature& f, double* mean, double x) {
    f.count += 1.0;
    const double square = f.square, part = 1.0 / smaller(f.count, WINDOW);
    double off = x;
    if (mean) {
        off = x - *mean;
        const bool far = off * off > CUT * CUT * square;
        *mean += part * (far ? copysign(CUT * sqrt(square), off) : off);
    }
    f.square = smaller(square + (off * off - square) * part, 2.0 * square);
    return (is_regular(f.count) || f.square > UNIT * f.reference || UNIT * f.square < f.reference) && f.square > 0.0;
}

// Update S and P; return the factor of the feature's weights, which is 1 if its unit has changed.
inline double renew_scale(Feature& f, const Totals& totals) {
    const double old = f.inverse, square = scale_square(f, totals);
    f.reference = f.square;
    f.prior = prior_of(f, totals);
    f.inverse = 1.0 / sqrt(square);
    const double change = square * old * old;
    const double most = f.count > 4.0 ? UNIT : FIRST_UNIT;
    if (change > most || most * change < 1.0) return 1.0;
    f.slow /= change;
    f.fast /= change;
    return sqrt(change);
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

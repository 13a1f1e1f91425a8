// The statistics of features, and the mixture of experts.
#pragma once

#include <bit>

#include "experts.hpp"
#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

// ------------------------------------------------------------------------------------------------- features
//
// How often it occurs, its centre, its scale and its curvature so far.
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
//
// V takes thousands of rows to forget values that were a hundred times as large. So a centred feature has a new unit,
// and its statistics start over, after RUN differences in sequence between its values that are less than 1/SHRUNK of
// the usual ones. Equal values say nothing about the unit.

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

// Whether a whole number is 4, 16, 64, ...: its mantissa is 0, and its exponent is even.
inline bool is_regular(double count) {
    constexpr std::uint64_t EVEN = std::uint64_t{1} << 52;  // the last bit of the biased exponent
    return (std::bit_cast<std::uint64_t>(count) & (2 * EVEN - 1)) == EVEN && count >= 4.0;
}

// V after a value that is `off` from the mean and counts as `part` of all.
template <class V> RFD_INLINE V next_square(const V& square, const V& off, const V& part) {
    return smaller(square + (off * off - square) * part, V(2.0) * square);
}

// Update the statistics of a centred feature, whose recent mean is `mean`, with a value x.
inline void record_centred_value(Feature& f, double& mean, double x) {
    f.count += 1.0;
    const double square = f.square, part = 1.0 / smaller(f.count, WINDOW), off = x - mean;
    const bool far = off * off > CUT * CUT * square;
    mean += part * (far ? copysign(CUT * sqrt(square), off) : off);
    f.square = next_square(square, off, part);
}

// How far V has moved away from its reference: above 0 if the scale of the feature is due for an update.
template <class V> RFD_INLINE V moved(const V& square, const V& reference) {
    return larger(square - V(UNIT) * reference, reference - V(UNIT) * square);
}

// Whether the scale of a feature is due for an update.
inline bool is_due(double count, double square, double moved) {
    return (is_regular(count) || moved > 0.0) && square > 0.0;
}

// Update work.count and work.square of features that are not centred with n values, and replace their references in
// work.moved.
inline void record_values(const Work& work, Index n) {
    using Some = Lanes<double>;
    for (Index i = 0; i < n; i += LANES) {
        const Some x = load(work.raw + i), square = load(work.square + i), count = load(work.count + i) + Some(1.0);
        const Some next = next_square(square, x, Some(1.0) / smaller(count, Some(WINDOW)));
        store(count, work.count + i);
        store(next, work.square + i);
        store(moved(next, load(work.moved + i)), work.moved + i);
    }
}

constexpr double SHRUNK = 30.0, RUN = 32.0, TINIEST = 1e-280;

// Record a value of a centred feature; return whether its unit has become smaller, after which its statistics are new.
// `c` are the numbers of the feature in Experts::centre, each after `many` others.
inline bool unit_shrank(Feature& f, double* c, Index many, double x) {
    double &last = c[2 * many], &step = c[3 * many], &run = c[4 * many], &squares = c[5 * many], &total = c[6 * many];
    const double square = (x - last) * (x - last), most = CUT * CUT * (step > 0.0 ? step : f.square);
    last = x;
    if (square == 0.0) return false;
    const bool small = square * (SHRUNK * SHRUNK) < step && f.count > 4.0 * RUN;
    run = small ? run + 1.0 : 0.0;
    squares = small ? squares + square : 0.0;
    total = small ? total + x : 0.0;
    if (run < RUN) {
        step = step > 0.0 ? step + (smaller(square, most) - step) / smaller(f.count, WINDOW) : smaller(square, most);
        return false;
    }
    const double ratio = squares / (run * step), mean = total / run;
    run = 0.0;
    if (!(ratio * f.square > TINIEST)) return false;
    f.square = f.reference = ratio * f.square;
    f.inverse = 1.0 / sqrt(f.square);
    f.count = RUN;
    step *= ratio;
    c[0] = c[many] = mean;
    return true;
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

// -------------------------------------------------------------------------------------------------- mixture
//
// The prediction is the mean of the experts' margins, weighted by their shares (fixed share, Herbster and Warmuth
// 1998). Each row multiplies the share of an expert by the probability that this expert gave to the label. Then a small
// part of all shares is redistributed. So no expert loses its whole share, and the mixture adapts to drift.
//
// An expert takes the proximal point step w += eta s H^-1 x, where s solves s = -l'(p + s eta kappa), l' is the slope
// of the loss and kappa = x'H^-1 x. Such a step never overshoots.

constexpr double SHARED = 1e-4;  // the part of all shares that is redistributed after each row
constexpr double SLACK = 0.1;    // predicted numbers may leave the range of the targets by this fraction of it
constexpr double LEAST_SUM = 1e-300;
constexpr double RECENT = 1000.0;     // the mean shares forget over this number of rows
constexpr double LATER = 6.0;         // row t of a mean counts as t^(LATER - 1)
constexpr double YOUNG = 500.0;       // before this row, later rows count more, since the experts still improve
constexpr double FORGET_LEAD = 0.98;  // decay per row of the differences of losses, which are clipped at 1
constexpr double BEHIND = 6.0;        // the mean shares start over if their loss is larger by this

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
        const double scale = (1.0 - SHARED) / larger(total, LEAST_SUM);
        for (Index e = 0; e < FOLLOWERS; ++e) share[e] = share[e] * scale + SHARED * FOLLOW_SHARE[e];
    }
};

inline Follow follow_of(const Experts& e, Index output) {
    double* both = e.follow.data() + output * 2 * FOLLOWERS;
    return {both, both + FOLLOWERS};
}

// Multiply the shares of the first n experts by the probabilities that these gave to the label, and redistribute a part
// of them: the fraction OFFERED to experts with a better Hessian, if there are any; of the rest LINE to bettors and
// experts with a flat prior.
inline void update_shares(const Experts& e, double* __restrict share, const double* __restrict chance, Index n) {
    const double scale = (1.0 - SHARED) / larger(dot(share, chance, n), LEAST_SUM);
    const Index ends[3] = {2 * e.count(), e.plain_experts(), n};
    const double plain = SHARED * (n > ends[1] ? 1.0 - OFFERED : 1.0), line = e.has_line() ? LINE * plain : 0.0;
    const double parts[3] = {plain - line, line, SHARED - plain};
    Index k = 0;
    for (int kind = 0; kind < 3; ++kind) {
        if (k == ends[kind]) continue;
        const double deal = parts[kind] / static_cast<double>(ends[kind] - k);
        for (; k < ends[kind]; ++k) share[k] = share[k] * chance[k] * scale + deal;
    }
}

// Add the share of forgetting experts to the trace, and all shares to what experts have earned; `row` counts from 0.
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
    const double part = 1.0 / static_cast<double>(outputs);
    for (Index c = 0; c < outputs; ++c) {
        const double* share = e.share.data() + c * n;
        total += dot(share, e.fast.data(), n);
        if (row % SAMPLED == 0) add_multiple(e.earned.data(), share, part, n);
    }
    trace[row / t.stride] += total * part;
}

// The prediction of output c by these shares (outputs, experts); margins are within `range`.
inline double mixed(const Experts& e, const Work& work, const double* share, Index c, const Bounds& range) {
    const Index n = e.experts();
    return range.clip(dot(share + c * n, work.margin + c * n, n) + follow_of(e, c).sum());
}

// Compare the shares with their recent means: `gain` is the loss by the former minus that by the latter in a row.
inline void compare_shares(Targets& t, double gain) { t.lead += clipped(gain, -1.0, 1.0); }

// Let the mean shares follow the shares. A single row may give nearly the whole share to an expert that is not good
// elsewhere, and the rows that follow correct this. A model that no longer learns cannot, so it predicts with the mean
// shares. After a change of the stream, the shares of old rows are worse than those of the moment; the mean then starts
// over.
inline void follow_shares(Experts& e) {
    Targets& t = e.targets[0];
    if (t.lead < -BEHIND) t.age = t.lead = 0.0;
    t.age = smaller(t.age + 1.0, LATER * RECENT);
    t.lead *= FORGET_LEAD;
    const double rate = smaller(LATER / t.age * larger(YOUNG / t.age, 1.0), 1.0), *__restrict share = e.share.data();
    double* __restrict steady = e.steady.data();
    for (Index k = 0; k < e.share.size(); ++k) steady[k] += rate * (share[k] - steady[k]);
}

// Fill work.output with the predictions of the mixture by these shares, clipped near the range of the targets in
// regression.
inline void predict(const Experts& e, const Work& work, const double* share) {
    const Targets& t = e.targets[0];
    const Index n = e.experts();
    const Bounds range = bounds(t);
    for (Index c = 0; c < e.outputs(); ++c) {
        const double* margin = work.margin + c * n;
        if (t.numbers) {
            for (Index k = 0; k < n; ++k) work.chance[k] = range.clip(margin[k]);
            margin = work.chance;
        }
        work.output[c] = range.clip(dot(share + c * n, margin, n) + follow_of(e, c).sum());
    }
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

// One more cache line a feature: bettors, and experts whose diagonal Hessian has the same prior for all features.
#pragma once

#include "hessians.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

// A bettor k bets on the sign of the next gradient of each feature (Orabona and Pal, 2016). With u = zeta/2, u' = u
// clipped to [-1, 1], u = u' = 1 for the intercept, and N the mean of 1 + the sum of u'^2 over the rows so far,
//
//     b_jk = (alpha_k + wealth_jk) z_jk / (F + g_jk),   margin_k = the sum of u_j b_jk / sqrt(N)
//     wealth_jk += t_k u'_j b_jk,   z_jk += t_k u'_j,   g_jk += |t_k u'_j|
//
// where t is minus the slope of the loss at the margin, |t| <= 1, and F is the flat prior, 1 for a whole model. A
// feature whose bets win has more to bet, so a few good features among many useless ones grow fast. The margin is that
// of a linear expert whose weights are b / (2 sqrt(N) length). H_j = F + slow_j for the experts with a flat prior:
// rare features learn more slowly than with P_j, frequent ones faster.

constexpr float RICHEST = 1e12f;  // the largest wealth, so that floats do not overflow

// What a feature has in `bets`.
struct Line {
    float *z, *g, *wealth, *flat;
};

inline Line line_of(const Experts& e, Index j) {
    const Index lanes = e.bets.shape(2);
    float* first = e.bets.data() + 4 * lanes * j;
    return {first, first + lanes, first + 2 * lanes, first + 3 * lanes};
}

// The bet of a bettor on a feature.
RFD_INLINE float bet_of(float alpha, const Line& line, Index k, float prior) {
    return (alpha + line.wealth[k]) * line.z[k] / (prior + line.g[k]);
}

inline double flat_prior(const Experts& e) {
    return (e.targets[0].numbers ? FLAT_OF_NUMBERS : FLAT) * e.totals[0].prior;
}

// 1 / sqrt(N).
inline double bet_norm(const Totals& totals) {
    return sqrt(larger(totals.bet_rows, 1.0) / larger(totals.bet_squares, 1.0));
}

// Add zeta times bets and flat weights of W experts of a feature to two sums.
template <int W>
RFD_INLINE void add_line(Lanes<float, W>& bet, Lanes<float, W>& flat, const Lanes<float, W>& alpha, const Line& line,
                         Index first, float zeta, float prior) {
    const Lanes<float, W> factor(zeta), rich = alpha + load<W>(line.wealth + first);
    bet += factor * (rich * load<W>(line.z + first) / (Lanes<float, W>(prior) + load<W>(line.g + first)));
    flat += factor * load<W>(line.flat + first);
}

// Update W experts of a feature with u' = u: work.bet are the steps of bettors, `scale` times work.flat those of flat
// weights.
template <int W>
RFD_INLINE void step_line(const Line& line, const Work& work, Index first, float u, float scale, float prior) {
    using Some = Lanes<float, W>;
    const Some z = load<W>(line.z + first), g = load<W>(line.g + first), wealth = load<W>(line.wealth + first);
    const Some gain = load<W>(work.bet + first) * Some(u);
    const Some b = (load<W>(work.alpha + first) + wealth) * z / (Some(prior) + g);
    store(smaller(wealth + gain * b, Some(RICHEST)), line.wealth + first);
    store(z + gain, line.z + first);
    store(g + absolute(gain), line.g + first);
    store(load<W>(line.flat + first) + Some(scale) * load<W>(work.flat + first), line.flat + first);
}

RFD_INLINE void step_line(const Line& line, const Work& work, float u, float scale, float prior, Index lanes) {
    Index k = 0;
    for (; k + 4 <= lanes; k += 4) step_line<4>(line, work, k, u, scale, prior);
    for (; k < lanes; ++k) step_line<1>(line, work, k, u, scale, prior);
}

// Call see(lane, number, expert) for the experts of each output from `first` on, as many as there are bettors.
template <class See> RFD_INLINE void for_line(const Experts& e, Index first, See see) {
    const Index many = e.bettors(), n = e.experts();
    for (Index c = 0; c < e.outputs(); ++c)
        for (Index k = 0; k < many; ++k) see(c * many + k, c * n + first + k, first + k);
}

// Sum W experts over the entries of a row.
template <int W> void sum_line(const Experts& e, const Row& row, const Work& work, Index first) {
    const auto prior = static_cast<float>(flat_prior(e));
    const Lanes<float, W> alpha = load<W>(work.alpha + first);
    Lanes<float, W> bet(0.0f), flat(0.0f);
    for (Index i = 0; i < row.size; ++i)
        add_line<W>(bet, flat, alpha, line_of(e, work.feature[i]), first, static_cast<float>(work.value[i]), prior);
    store(bet, work.bet + first);
    store(flat, work.flat + first);
}

// Fill kappa. Bettors have no Hessian, and theirs is that of slow experts.
inline void line_kappa(const Experts& e, const Row& row, const Work& work, Index first) {
    const double prior = flat_prior(e), many = row.slow + row.unseen, flat = row.flat + row.fresh / prior;
    const double slow = INTERCEPT * INTERCEPT / past_of_intercept(e, 0);
    const double own = INTERCEPT * INTERCEPT / (prior + e.table[0].slow);
    const double norm = row.norm * row.norm, length = row.length * row.length;
    const Index second = first + e.bettors();
    set_kappa(e, work, first, second, norm * many + slow, length * many + slow);
    set_kappa(e, work, second, second + e.bettors(), norm * flat + own, length * flat + own);
}

template <Use use> void line_margins(const Experts& e, const Row& row, const Work& work) {
    const Index first = 2 * e.count(), lanes = e.bets.shape(2);
    const auto prior = static_cast<float>(flat_prior(e));
    const double norm = bet_norm(e.totals[0]), factor = 0.5 * norm * row.length / e.totals[0].length;
    for_line(e, first, [&](Index i, Index, Index expert) { work.alpha[i] = static_cast<float>(e.rate[expert]); });
    Index k = 0;
    for (; k + 4 <= lanes; k += 4) sum_line<4>(e, row, work, k);
    for (; k < lanes; ++k) sum_line<1>(e, row, work, k);
    if constexpr (use != Use::read) line_kappa(e, row, work, first);
    const Line own = line_of(e, 0);
    for_line(e, first, [&](Index i, Index at, Index) {
        const float b = bet_of(work.alpha[i], own, i, prior);
        work.margin[at] = factor * static_cast<double>(work.bet[i]) + norm * static_cast<double>(b);
    });
    for_line(e, first + e.bettors(), [&](Index i, Index at, Index expert) {
        const double factor = row.factor(e.linear[expert] > 0.0);
        work.margin[at] = factor * static_cast<double>(work.flat[i]) + INTERCEPT * static_cast<double>(own.flat[i]);
    });
}

// Take the steps, before the curvature of the row is added.
inline void line_steps(Experts& e, const Row& row, const Work& work) {
    const Index first = 2 * e.count(), lanes = e.bets.shape(2);
    const double prior = flat_prior(e), own = INTERCEPT / (prior + e.table[0].slow);
    for_line(e, first, [&](Index i, Index at, Index) { work.bet[i] = static_cast<float>(work.step[at]); });
    for_line(e, first + e.bettors(),
             [&](Index i, Index at, Index) { work.flat[i] = static_cast<float>(work.step[at]); });
    step_line(line_of(e, 0), work, 1.0f, static_cast<float>(own), static_cast<float>(prior), lanes);
    for_line(e, first + e.bettors(), [&](Index i, Index at, Index expert) {
        work.flat[i] = static_cast<float>(row.factor(e.linear[expert] > 0.0) * work.step[at]);
    });
    double squares = 1.0;
    for (Index i = 0; i < row.size; ++i) {
        if (work.value[i] == 0.0) continue;
        const double u = clipped(0.5 * work.value[i], -1.0, 1.0);
        squares += u * u;
        step_line(line_of(e, work.feature[i]), work, static_cast<float>(u), static_cast<float>(work.step_flat[i]),
                  static_cast<float>(prior), lanes);
    }
    e.totals[0].bet_squares += squares;
    e.totals[0].bet_rows += 1.0;
}

// Feature j gets another unit; bets stay, since they do not depend much on the scale of a feature.
inline void line_rescale(Experts& e, Index j, double change) {
    float* flat = line_of(e, j).flat;
    for (Index k = 0; k < e.bets.shape(2); ++k) flat[k] = static_cast<float>(static_cast<double>(flat[k]) * change);
}

inline void line_move_centre(Experts& e, Index j, double norm, double length) {
    const Line own = line_of(e, 0), mine = line_of(e, j);
    const Index first = 2 * e.count();
    const auto prior = static_cast<float>(flat_prior(e));
    const auto u = static_cast<float>(0.5 * INTERCEPT * length / e.totals[0].length);
    for_line(e, first, [&](Index i, Index, Index expert) {  // the bet on the intercept changes through z, as g allows
        const auto alpha = static_cast<float>(e.rate[expert]);
        const float more = u * bet_of(alpha, mine, i, prior) * (prior + own.g[i]);
        const float z = own.z[i] + more / (alpha + own.wealth[i] > 1e-6f ? alpha + own.wealth[i] : 1e-6f);
        own.z[i] = z > own.g[i] ? own.g[i] : z < -own.g[i] ? -own.g[i] : z;
    });
    for_line(e, first + e.bettors(), [&](Index i, Index, Index expert) {
        const double factor = e.linear[expert] > 0.0 ? length : norm;
        own.flat[i] += static_cast<float>(factor * static_cast<double>(mine.flat[i]));
    });
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

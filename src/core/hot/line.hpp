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

// Add zeta times bets and flat weights of a feature to two sums. FIXED is their number if it is known, else 0.
template <Index FIXED>
RFD_INLINE void add_line(float* __restrict bet, float* __restrict flat, const float* __restrict alpha, const Line& line,
                         float zeta, float prior, Index many) {
    const Index lanes = FIXED > 0 ? FIXED : many;
    const float *__restrict z = line.z, *__restrict g = line.g, *__restrict wealth = line.wealth;
    const float* __restrict w = line.flat;
    for (Index k = 0; k < lanes; ++k) bet[k] += zeta * ((alpha[k] + wealth[k]) * z[k] / (prior + g[k]));
    for (Index k = 0; k < lanes; ++k) flat[k] += zeta * w[k];
}

// Update W experts of a feature with u' = u: t are the steps of bettors, `scale` times `steps` those of flat weights. What
// is loaded to local arrays becomes vectors.
template <Index W>
RFD_INLINE void step_some(const Line& line, Index first, const float* alpha, const float* t, const float* steps, float u,
                          float scale, float prior) {
    float z[W], g[W], wealth[W], w[W];
    memcpy(z, line.z + first, sizeof(z)), memcpy(g, line.g + first, sizeof(g));
    memcpy(wealth, line.wealth + first, sizeof(wealth)), memcpy(w, line.flat + first, sizeof(w));
    for (Index k = 0; k < W; ++k) {
        const float gain = t[first + k] * u, b = (alpha[first + k] + wealth[k]) * z[k] / (prior + g[k]);
        const float rich = wealth[k] + gain * b;
        wealth[k] = rich < RICHEST ? rich : RICHEST;
        z[k] += gain;
        g[k] += fabsf(gain);
        w[k] += scale * steps[first + k];
    }
    memcpy(line.z + first, z, sizeof(z)), memcpy(line.g + first, g, sizeof(g));
    memcpy(line.wealth + first, wealth, sizeof(wealth)), memcpy(line.flat + first, w, sizeof(w));
}

RFD_INLINE void step_line(const Line& line, const Work& work, float u, float scale, float prior, Index lanes) {
    Index k = 0;
    for (; k + 4 <= lanes; k += 4) step_some<4>(line, k, work.alpha, work.bet, work.flat, u, scale, prior);
    for (; k < lanes; ++k) step_some<1>(line, k, work.alpha, work.bet, work.flat, u, scale, prior);
}

// Call see(lane, number, linear) for the experts of each output from `first` on, as many as there are bettors.
template <class See> RFD_INLINE void for_line(const Experts& e, Index first, See see) {
    const Index many = e.bettors(), n = e.experts();
    for (Index c = 0; c < e.outputs(); ++c)
        for (Index k = 0; k < many; ++k) see(c * many + k, c * n + first + k, e.linear[first + k] > 0.0);
}

template <Index FIXED> void sum_line(const Experts& e, const Row& row, const Work& work) {
    const Index lanes = FIXED > 0 ? FIXED : e.bets.shape(2);
    const auto prior = static_cast<float>(flat_prior(e));
    float bets[FIXED > 0 ? FIXED : 1], flats[FIXED > 0 ? FIXED : 1];
    float *bet = FIXED > 0 ? bets : work.bet, *flat = FIXED > 0 ? flats : work.flat;
    for (Index k = 0; k < lanes; ++k) bet[k] = flat[k] = 0.0f;
    for (Index i = 0; i < row.size; ++i)
        add_line<FIXED>(bet, flat, work.alpha, line_of(e, work.feature[i]), static_cast<float>(work.value[i]), prior,
                        lanes);
    for (Index k = 0; k < lanes; ++k) work.bet[k] = bet[k], work.flat[k] = flat[k];
}

// Fill kappa. Bettors have no Hessian, and theirs is that of slow experts.
inline void line_kappa(const Experts& e, const Row& row, const Work& work, Index first) {
    const double prior = flat_prior(e), many = row.slow + row.unseen;
    double flat = row.fresh / prior;
    for (Index i = 0; i < row.size; ++i) {
        work.step_flat[i] = work.value[i] / (prior + e.table[work.feature[i]].slow);
        flat += work.value[i] * work.step_flat[i];
    }
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
    for_line(e, first, [&](Index i, Index, bool) {
        work.alpha[i] = static_cast<float>(e.rate[first + i % e.bettors()]);
    });
    lanes == 4 ? sum_line<4>(e, row, work) : sum_line<0>(e, row, work);
    if constexpr (use != Use::read) line_kappa(e, row, work, first);
    const Line own = line_of(e, 0);
    for_line(e, first, [&](Index i, Index at, bool) {
        const float b = bet_of(work.alpha[i], own, i, prior);
        work.margin[at] = factor * static_cast<double>(work.bet[i]) + norm * static_cast<double>(b);
    });
    for_line(e, first + e.bettors(), [&](Index i, Index at, bool linear) {
        work.margin[at] =
            row.factor(linear) * static_cast<double>(work.flat[i]) + INTERCEPT * static_cast<double>(own.flat[i]);
    });
}

// Take the steps, before the curvature of the row is added.
inline void line_steps(Experts& e, const Row& row, const Work& work) {
    const Index first = 2 * e.count(), lanes = e.bets.shape(2);
    const double prior = flat_prior(e), own = INTERCEPT / (prior + e.table[0].slow);
    for_line(e, first, [&](Index i, Index at, bool) { work.bet[i] = static_cast<float>(work.step[at]); });
    for_line(e, first + e.bettors(),
             [&](Index i, Index at, bool) { work.flat[i] = static_cast<float>(work.step[at]); });
    step_line(line_of(e, 0), work, 1.0f, static_cast<float>(own), static_cast<float>(prior), lanes);
    for_line(e, first + e.bettors(), [&](Index i, Index at, bool linear) {
        work.flat[i] = static_cast<float>(row.factor(linear) * work.step[at]);
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
    for_line(e, first, [&](Index i, Index, bool) {  // the bet on the intercept changes through z, as far as g allows
        const auto alpha = static_cast<float>(e.rate[first + i % e.bettors()]);
        const float more = u * bet_of(alpha, mine, i, prior) * (prior + own.g[i]);
        const float z = own.z[i] + more / (alpha + own.wealth[i] > 1e-6f ? alpha + own.wealth[i] : 1e-6f);
        own.z[i] = z > own.g[i] ? own.g[i] : z < -own.g[i] ? -own.g[i] : z;
    });
    for_line(e, first + e.bettors(), [&](Index i, Index, bool linear) {
        own.flat[i] += static_cast<float>((linear ? length : norm) * static_cast<double>(mine.flat[i]));
    });
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

// Recalibrated probabilities of two classes: a mixture of maps from the margin m to the probability
//
//     e/2 + (1 - e) sigmoid(t m)
//
// weighted by their log losses so far (fixed share). The first map, t = 1 and e = 0, is the model's own probability. It
// starts with nearly the whole share, so the others count only once they have lowered the loss by several nats, and the
// mixture is never worse by more than -log of its first share. Every map is 1/2 at m = 0, so labels stay the same.
#pragma once

#include <cmath>

#include "array.hpp"

namespace robustfd {

constexpr Index MAPS = 6;
constexpr double STEEPNESS[MAPS] = {1.0, 0.75, 1.0, 1.25, 1.25, 1.5};  // t; multiples of 1/4
constexpr double NOISE[MAPS] = {0.0, 0.0, 0.01, 0.02, 0.05, 0.1};      // e
constexpr double FIRST_SHARE[MAPS] = {0.999, 0.0002, 0.0002, 0.0002, 0.0002, 0.0002};
constexpr double MOVED = 1e-4;  // the part of all shares that is redistributed after each row

// Return the probability of the class of a row, which has this margin, and update the shares (MAPS,); the row counts
// `weight` times.
inline double recalibrate(double* share, double margin, double weight) {
    const double q = std::exp(-0.25 * std::abs(margin)), q3 = q * q * q, q4 = q3 * q;
    const double power[MAPS] = {q4, q3, q4, q4 * q, q4 * q, q3 * q3};  // exp(-t |m|)
    double chance[MAPS], total = 0.0, best = 0.0;
    for (Index k = 0; k < MAPS; ++k) {
        chance[k] = 0.5 * NOISE[k] + (1.0 - NOISE[k]) * (margin > 0.0 ? 1.0 : power[k]) / (1.0 + power[k]);
        total += share[k] * chance[k];
        best = chance[k] > best ? chance[k] : best;
    }
    const double found = total;
    if (weight != 1.0) {
        total = 0.0;
        for (Index k = 0; k < MAPS; ++k) total += share[k] * (chance[k] = std::pow(chance[k] / best, weight));
    }
    const double scale = (1.0 - MOVED) / total;
    for (Index k = 0; k < MAPS; ++k) share[k] = share[k] * chance[k] * scale + MOVED * FIRST_SHARE[k];
    return found;
}

}  // namespace robustfd

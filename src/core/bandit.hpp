// Which arm of a bandit to pull: RandUCB (Vaswani et al., AISTATS 2020) over margins of the arms and their variances.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "array.hpp"

namespace robustfd {

constexpr Index LEVELS = 20;
// Quantiles of |N(0, 1)| at (i + 1/2) / LEVELS.
constexpr double LEVEL[LEVELS] = {
    0.031337982021426479, 0.094137414323536395, 0.1573106846101707, 0.22111871299757055, 0.28584087488116572,
    0.35178434493515609, 0.41929575304139599, 0.48877641111466952, 0.5607030318750833, 0.63565701369758276,
    0.71436744028018728, 0.79777684612523814, 0.88714655901887596, 0.98423496044632497, 1.0916203674341685,
    1.2133396224885171, 1.3563117453352471, 1.5341205443525463, 1.7804643416920256, 2.2414027276049469};

// Fill the probability of each arm. For every level z the arm with the largest margin + z sqrt(variance) is best; arms
// that are equally good share the level. A part `epsilon` of the probability is divided equally among all arms.
inline void choose_probabilities(const double* margin, const double* variance, Index arms, double epsilon,
                                 double* probability) {
    std::vector<double> width(variance, variance + arms);
    for (double& each : width) each = std::sqrt(each);
    const double* w = width.data();
    for (Index a = 0; a < arms; ++a) probability[a] = 0.0;
    for (double z : LEVEL) {
        double best = -INFINITY, ties = 0.0;
        for (Index a = 0; a < arms; ++a) {
            const double score = margin[a] + z * w[a];
            ties = score > best ? 1.0 : ties + (score == best ? 1.0 : 0.0);
            best = score > best ? score : best;
        }
        for (Index a = 0; a < arms; ++a)
            if (margin[a] + z * w[a] == best) probability[a] += 1.0 / ties;
    }
    const double levels = static_cast<double>(LEVELS), count = static_cast<double>(arms);
    for (Index a = 0; a < arms; ++a)
        probability[a] = std::min((1.0 - epsilon) * (probability[a] / levels) + epsilon / count, 1.0);
}

// Draw number `number` of a seed, uniform in [0, 1): splitmix64 (Steele et al. 2014) of a counter.
inline double draw(std::uint64_t seed, std::uint64_t number) {
    std::uint64_t x = seed + 0x9E3779B97F4A7C15u * (number + 1);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// The arm at which the sum of probabilities passes a draw.
inline Index drawn_arm(const double* probability, Index arms, double drawn) {
    Index last = 0;
    for (Index a = 0; a < arms; ++a) {
        if (probability[a] <= 0.0) continue;
        last = a;
        if ((drawn -= probability[a]) < 0.0) break;
    }
    return last;
}

}  // namespace robustfd

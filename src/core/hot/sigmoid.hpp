// Exponentials and logistic functions in single precision, without branches, so that loops over experts vectorise.
#pragma once

#include <math.h>

#include <bit>

#include "array.hpp"
#include "level.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr float LOG_TWO = 0.69314718055994531f, BITS_OF_E = 1.4426950408889634f;
// The coefficients of the series of 2^f: log(2)^k / k!.
constexpr float C1 = 0.6931471805599453f, C2 = 0.2402265069591007f, C3 = 0.05550410866482158f;
constexpr float C4 = 0.009618129107628477f, C5 = 0.0013333558146428443f;
constexpr int EXPONENT_PLACE = 23, EXPONENT_OF_ONE = 127;  // of a float
constexpr float LOG_OF_BIT = 0.69314718055994531f / 8388608.0f, LOG_OF_ZERO = 127.0f * 0.69314718055994531f;

// exp(x) for x <= 0; x below -60 counts as -60. With x = (n + f) log 2, |f| <= 1/2, this is 2^f, by its series, times 2^n,
// made from bits. The relative error is below 1e-5.
inline float exp_of_negative(float x) {
    const float t = (x > -60.0f ? x : -60.0f) * BITS_OF_E;
    const auto n = static_cast<std::int32_t>(t - 0.5f);  // the nearest integer, since t <= 0
    const float f = t - static_cast<float>(n), size = fabsf(f);
    const float safe = size > 1e-8f ? size : 1e-8f;  // the square of a smaller number may be subnormal, which is slow
    const float square = safe * safe;
    const float series = (1.0f + f * C1) + square * ((C2 + f * C3) + square * (C4 + f * C5));
    return series * std::bit_cast<float>((n + EXPONENT_OF_ONE) << EXPONENT_PLACE);
}

inline float sigmoid32(float x) {
    const float e = exp_of_negative(-fabsf(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

inline double sigmoid(double x) {
    const double e = exp(-fabs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

// A lower bound of log(x) for x >= 0, at most 0.06 too low if x is a normal number: the bits of a number, as an integer,
// are linear in its logarithm between two powers of two.
inline float log_below(float x) { return static_cast<float>(std::bit_cast<std::int32_t>(x)) * LOG_OF_BIT - LOG_OF_ZERO; }

// Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)).
//
// With u = z + a s and a = length, the root of h(u) = u - z - a sigmoid(-u) is needed. If h(0) < 0 the root is positive and
// h is concave there, so Newton's iteration from the left does not overshoot. It starts at z, at 0 or, for a long step, at
// a lower bound of Lambert's W. Otherwise h is convex, and the iteration starts on the right. After two iterations the
// error of s is a few percent. This is enough, since other experts take longer and shorter steps anyway.
inline void implicit_steps(const float* __restrict z, const float* __restrict length, float* __restrict chance,
                           float* __restrict step, Index n) {
    for (Index k = 0; k < n; ++k) {
        const float y = z[k], a = length[k];
        chance[k] = sigmoid32(y);
        const float distance = log_below(a) - LOG_TWO - y, far = distance > 1.0f ? distance : 1.0f;
        const float low = far > 1.0f ? y + far - 4.0f * (sqrtf(sqrtf(far)) - 1.0f) : y;
        const float positive = y > 0.0f ? y : 0.0f, left = positive > low ? positive : low;
        const float right = y + a < 0.0f ? y + a : 0.0f;
        float u = y + 0.5f * a > 0.0f ? left : right;
        float s = sigmoid32(-u);
        u -= (u - y - a * s) / (1.0f + a * s * (1.0f - s));
        s = sigmoid32(-u);
        const float move = (u - y - a * s) / (1.0f + a * s * (1.0f - s));
        const float first = s + s * (1.0f - s) * move, moved = (u - move - y) / a;
        step[k] = a > 0.01f && moved < first ? moved : first;
    }
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

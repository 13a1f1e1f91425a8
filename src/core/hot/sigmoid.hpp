// Exponentials and logistic functions in single precision, without branches, for eight experts at a time.
#pragma once

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

using Floats = Lanes<float>;

constexpr float LOG_TWO = 0.69314718055994531f, BITS_OF_E = 1.4426950408889634f;
// The coefficients of the series of 2^f: log(2)^k / k!.
constexpr float C1 = 0.6931471805599453f, C2 = 0.2402265069591007f, C3 = 0.05550410866482158f;
constexpr float C4 = 0.009618129107628477f, C5 = 0.0013333558146428443f;
constexpr std::int32_t POWER = 1 << 23, EXPONENT_OF_ONE = 127;  // of a float
constexpr float LOG_OF_BIT = 0.69314718055994531f / 8388608.0f, LOG_OF_ZERO = 127.0f * 0.69314718055994531f;

// exp(x) for x <= 0; x below -60 and NaN count as -60, x above 0 as 0. With x = (n + f) log 2, |f| <= 1/2, this is 2^f,
// by its series, times 2^n, made from bits. The relative error is below 1e-5.
RFD_INLINE Floats exp_of_negative(const Floats& x) {
    const Floats t = smaller(larger(x, Floats(-60.0f)), Floats(0.0f)) * Floats(BITS_OF_E);
    const Lanes<std::int32_t> n = truncated(t - Floats(0.5f));  // the nearest integer, since t <= 0
    const Floats f = t - as_floats(n);
    const Floats size =
        larger(absolute(f), Floats(1e-8f));  // squares of smaller numbers may be subnormal, which is slow
    const Floats square = size * size, one(1.0f);
    const Floats series = (one + f * Floats(C1)) +
                          square * ((Floats(C2) + f * Floats(C3)) + square * (Floats(C4) + f * Floats(C5)));
    return series * float_of_bits((n + Lanes<std::int32_t>(EXPONENT_OF_ONE)) * Lanes<std::int32_t>(POWER));
}

// Replace x[k] <= 0 by its exponential for all k < n, and some after that up to a multiple of eight.
inline void exp_all(float* x, Index n) {
    for (Index k = 0; k < n; k += LANES) store<float>(exp_of_negative(load(x + k)), x + k);
}

RFD_INLINE Floats sigmoid(const Floats& x) {
    const Floats e = exp_of_negative(-absolute(x)), one(1.0f);
    return choose(Floats(0.0f) > x, e, one) / (one + e);
}

RFD_INLINE double sigmoid(double x) {
    const double e = exp(-fabs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

// A lower bound of log(x) for x >= 0, at most 0.06 too low if x is a normal number: the bits of a number, as an
// integer, are linear in its logarithm between two powers of two.
RFD_INLINE Floats log_below(const Floats& x) {
    return as_floats(bits_of(x)) * Floats(LOG_OF_BIT) - Floats(LOG_OF_ZERO);
}

// Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)). n is a multiple of eight.
//
// With u = z + a s and a = length, the root of h(u) = u - z - a sigmoid(-u) is needed. If h(0) < 0 the root is positive
// and h is concave there, so Newton's iteration from the left does not overshoot. It starts at z, at 0 or, for a long
// step, at a lower bound of Lambert's W. Otherwise h is convex, and the iteration starts on the right. After two
// iterations the error of s is a few percent. This is enough, since other experts take longer and shorter steps anyway.
inline void implicit_steps(const float* z, const float* length, float* chance, float* step, Index n) {
    const Floats zero(0.0f), half(0.5f), one(1.0f), four(4.0f);
    for (Index k = 0; k < n; k += LANES) {
        const Floats y = load(z + k), a = load(length + k);
        store<float>(sigmoid(y), chance + k);
        const Floats far = larger(log_below(a) - Floats(LOG_TWO) - y, one);
        const Floats low = choose(far > one, y + far - four * (root(root(far)) - one), y);
        Floats u = choose(y + half * a > zero, larger(larger(y, zero), low), smaller(y + a, zero));
        Floats s = sigmoid(-u);
        u -= (u - y - a * s) / (one + a * s * (one - s));
        s = sigmoid(-u);
        const Floats move = (u - y - a * s) / (one + a * s * (one - s)), first = s + s * (one - s) * move;
        store<float>(choose(a > Floats(0.01f), smaller((u - move - y) / a, first), first), step + k);
    }
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

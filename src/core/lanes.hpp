// Vectors of eight numbers, and the loops over short arrays that are made of them. Only files that are compiled for a
// level include this header (level.hpp). Sums run in a fixed order, so all levels give the same bits.
#pragma once

#include "array.hpp"
#include "level.hpp"

#if __has_include(<experimental/simd>) && !defined(RFD_PLAIN_LANES)
#include <experimental/simd>
#if defined(__cpp_lib_experimental_parallel_simd)
#define RFD_STD_SIMD
#endif
#endif

#if defined(_MSC_VER)
#define RFD_INLINE __forceinline
#else
#define RFD_INLINE inline __attribute__((always_inline))
#endif

namespace robustfd::RFD_LEVEL {

constexpr Index LANES = 8;  // numbers in a vector

constexpr Index padded(Index n) { return (n + LANES - 1) / LANES * LANES; }

#ifdef RFD_STD_SIMD
template <class T> using Lanes = std::experimental::fixed_size_simd<T, 8>;
template <class T> RFD_INLINE Lanes<T> load(const T* from) { return {from, std::experimental::element_aligned}; }
template <class T> RFD_INLINE void store(const Lanes<T>& x, T* to) { x.copy_to(to, std::experimental::element_aligned); }
#else
template <class T> struct Lanes {
    T v[8];
    Lanes() = default;
    Lanes(T x) {
        for (T& each : v) each = x;
    }
    T operator[](int k) const { return v[k]; }
    Lanes& operator+=(const Lanes& y) {
        for (int k = 0; k < 8; ++k) v[k] += y.v[k];
        return *this;
    }
    friend Lanes operator+(Lanes x, const Lanes& y) { return x += y; }
    friend Lanes operator*(Lanes x, const Lanes& y) {
        for (int k = 0; k < 8; ++k) x.v[k] *= y.v[k];
        return x;
    }
};
template <class T> RFD_INLINE Lanes<T> load(const T* from) {
    Lanes<T> x;
    for (int k = 0; k < 8; ++k) x.v[k] = from[k];
    return x;
}
template <class T> RFD_INLINE void store(const Lanes<T>& x, T* to) {
    for (int k = 0; k < 8; ++k) to[k] = x.v[k];
}
#endif

// The sum of the eight numbers, added in halves.
template <class T> RFD_INLINE T sum(const Lanes<T>& x) {
    const T a = x[0] + x[4], b = x[1] + x[5], c = x[2] + x[6], d = x[3] + x[7];
    return (a + c) + (b + d);
}

// The sum of x[k] y[k] over k < n.
RFD_INLINE double dot(const double* x, const double* y, Index n) {
    Lanes<double> total(0.0);
    Index k = 0;
    for (; k + LANES <= n; k += LANES) total += load(x + k) * load(y + k);
    double result = sum(total);
    for (; k < n; ++k) result += x[k] * y[k];
    return result;
}

// y[k] += scale x[k] for k < n.
template <class T> RFD_INLINE void add_multiple(T* y, const T* x, T scale, Index n) {
    const Lanes<T> factor(scale);
    Index k = 0;
    for (; k + LANES <= n; k += LANES) store<T>(load(y + k) + factor * load(x + k), y + k);
    for (; k < n; ++k) y[k] += scale * x[k];
}

}  // namespace robustfd::RFD_LEVEL

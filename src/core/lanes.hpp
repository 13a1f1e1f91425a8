// Vectors of eight numbers, some of floats longer, and the loops over short arrays that are made of them. Only files that
// are compiled for a level include this header (level.hpp). Sums run in a fixed order, so all levels give the same bits.
#pragma once

#include <math.h>
#include <string.h>

#include "array.hpp"
#include "level.hpp"

#if defined(__AVX__)
#include <immintrin.h>
#endif

#if __has_include(<experimental/simd>) && !defined(RFD_PLAIN_LANES)
#include <experimental/simd>
#if defined(__cpp_lib_experimental_parallel_simd)
#define RFD_STD_SIMD
#endif
#endif

#if defined(_MSC_VER)
#define RFD_INLINE __forceinline
#define RFD_APART __declspec(noinline)
#define RFD_RARE RFD_APART
#else
#define RFD_INLINE inline __attribute__((always_inline))
#define RFD_APART __attribute__((noinline))
#define RFD_RARE __attribute__((noinline, cold))
#endif

namespace robustfd::RFD_LEVEL {

#ifdef RFD_STD_SIMD
namespace simd = std::experimental;
template <class T, int N = LANES> using Lanes = simd::simd<T, simd::simd_abi::deduce_t<T, N>>;
template <int N = LANES, class T> RFD_INLINE Lanes<T, N> load(const T* from) { return {from, simd::element_aligned}; }
template <class V, class T> RFD_INLINE void store(const V& x, T* to) { x.copy_to(to, simd::element_aligned); }
template <class M, class V> RFD_INLINE V choose(const M& mask, const V& yes, V no) {
    where(mask, no) = yes;
    return no;
}
template <class V> RFD_INLINE V absolute(const V& x) { return simd::abs(x); }
template <class V> RFD_INLINE V root(const V& x) { return simd::sqrt(x); }
template <class V> RFD_INLINE Lanes<std::int32_t, V::size()> truncated(const V& x) {
    return simd::static_simd_cast<Lanes<std::int32_t, V::size()>>(x);
}
template <class V> RFD_INLINE Lanes<float, V::size()> as_floats(const V& x) {
    return simd::static_simd_cast<Lanes<float, V::size()>>(x);
}
#else
template <class T, int N = LANES> struct Lanes {
    using value_type = T;
    static constexpr int size() { return N; }
    T v[N];
    Lanes() = default;
    Lanes(T x) {
        for (T& each : v) each = x;
    }
    T operator[](int k) const { return v[k]; }
    Lanes& operator+=(const Lanes& y) { return *this = *this + y; }
    Lanes& operator-=(const Lanes& y) { return *this = *this - y; }
};
// A function of each lane; the compiler may turn the loop into vector instructions.
template <class R, class F> RFD_INLINE R by_lane(F f) {
    R result;
    for (int k = 0; k < R::size(); ++k) result.v[k] = f(k);
    return result;
}
#define RFD_OPERATOR(R, op)                                                                     \
    template <class T, int N> Lanes<R, N> operator op(const Lanes<T, N>& x, const Lanes<T, N>& y) { \
        return by_lane<Lanes<R, N>>([&](int k) { return x.v[k] op y.v[k]; });                   \
    }
RFD_OPERATOR(T, +)
RFD_OPERATOR(T, -)
RFD_OPERATOR(T, *)
RFD_OPERATOR(T, /)
RFD_OPERATOR(bool, >)
#undef RFD_OPERATOR
template <class T, int N> Lanes<T, N> operator-(const Lanes<T, N>& x) {
    return by_lane<Lanes<T, N>>([&](int k) { return -x.v[k]; });
}
template <int N = LANES, class T> RFD_INLINE Lanes<T, N> load(const T* from) {
    return by_lane<Lanes<T, N>>([&](int k) { return from[k]; });
}
template <class V, class T> RFD_INLINE void store(const V& x, T* to) {
    for (int k = 0; k < V::size(); ++k) to[k] = x.v[k];
}
template <class M, class V> RFD_INLINE V choose(const M& mask, const V& yes, const V& no) {
    return by_lane<V>([&](int k) { return mask.v[k] ? yes.v[k] : no.v[k]; });
}
template <class V> RFD_INLINE V absolute(const V& x) {
    return by_lane<V>([&](int k) { return fabsf(x.v[k]); });
}
template <class V> RFD_INLINE V root(const V& x) {
    return by_lane<V>([&](int k) { return sqrtf(x.v[k]); });
}
template <class V> RFD_INLINE Lanes<std::int32_t, V::size()> truncated(const V& x) {
    return by_lane<Lanes<std::int32_t, V::size()>>([&](int k) { return static_cast<std::int32_t>(x.v[k]); });
}
template <class V> RFD_INLINE Lanes<float, V::size()> as_floats(const V& x) {
    return by_lane<Lanes<float, V::size()>>([&](int k) { return static_cast<float>(x.v[k]); });
}
#endif

// The floats of a long vector, which fills a register of 512 bits where there are any.
#if defined(RFD_STD_SIMD) && defined(__AVX512F__)
constexpr Index FLOATS = 16;
#else
constexpr Index FLOATS = LANES;
#endif
using Floats = Lanes<float, FLOATS>;
using Ints = Lanes<std::int32_t, FLOATS>;
static_assert(LONGEST_VECTOR % FLOATS == 0);

// The same bits as numbers of the other type.
template <class To, class V> RFD_INLINE Lanes<To, V::size()> same_bits(const V& x) {
    typename V::value_type from[V::size()];
    To to[V::size()];
    store(x, from);
    memcpy(to, from, sizeof(to));
    return load<V::size()>(to);
}
template <class V> RFD_INLINE Lanes<float, V::size()> float_of_bits(const V& x) { return same_bits<float>(x); }
template <class V> RFD_INLINE Lanes<std::int32_t, V::size()> bits_of(const V& x) { return same_bits<std::int32_t>(x); }

// The larger and the smaller of two numbers in each lane; y if one of them is NaN. The compiler does not see that one
// instruction does this.
template <class V> RFD_INLINE V larger(const V& x, const V& y) { return choose(x > y, x, y); }
template <class V> RFD_INLINE V smaller(const V& x, const V& y) { return choose(y > x, x, y); }
#if defined(RFD_STD_SIMD) && defined(__AVX512F__)
template <> RFD_INLINE Floats larger(const Floats& x, const Floats& y) {
    return Floats(_mm512_max_ps(static_cast<__m512>(x), static_cast<__m512>(y)));
}
template <> RFD_INLINE Floats smaller(const Floats& x, const Floats& y) {
    return Floats(_mm512_min_ps(static_cast<__m512>(x), static_cast<__m512>(y)));
}
#elif defined(RFD_STD_SIMD) && defined(__AVX__)
template <> RFD_INLINE Floats larger(const Floats& x, const Floats& y) {
    return Floats(_mm256_max_ps(static_cast<__m256>(x), static_cast<__m256>(y)));
}
template <> RFD_INLINE Floats smaller(const Floats& x, const Floats& y) {
    return Floats(_mm256_min_ps(static_cast<__m256>(x), static_cast<__m256>(y)));
}
#endif
RFD_INLINE double larger(double x, double y) { return x > y ? x : y; }
RFD_INLINE double smaller(double x, double y) { return x < y ? x : y; }
RFD_INLINE double clipped(double x, double low, double high) { return smaller(larger(x, low), high); }

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

// The smallest x[k] for k < n.
RFD_INLINE double least_of(const double* x, Index n) {
    double least = x[0];
    Index k = 0;
    if (n >= LANES) {
        Lanes<double> all = load(x);
        for (k = LANES; k + LANES <= n; k += LANES) all = smaller(all, load(x + k));
        double low[LANES];
        store(all, low);
        const double a = smaller(low[0], low[4]), b = smaller(low[1], low[5]);
        const double c = smaller(low[2], low[6]), d = smaller(low[3], low[7]);
        least = smaller(smaller(a, c), smaller(b, d));
    }
    for (; k < n; ++k) least = smaller(least, x[k]);
    return least;
}

// y[k] += scale x[k] for k < n.
template <class T> RFD_INLINE void add_multiple(T* y, const T* x, T scale, Index n) {
    const Lanes<T> factor(scale);
    Index k = 0;
    for (; k + LANES <= n; k += LANES) store(load(y + k) + factor * load(x + k), y + k);
    for (; k < n; ++k) y[k] += scale * x[k];
}

}  // namespace robustfd::RFD_LEVEL

// Shrink rules: how a shrink step reduces the squared singular values of a buffer to at most m - 1 positive ones
// (linalg/rules.py), and the thresholds of rounding error.
#pragma once

#include <algorithm>

#include "tridiagonal.hpp"

namespace robustfd {

constexpr Index LEAST_ROWS = 4;  // smaller stacks have no smaller rounding errors: their rows come from earlier shrinks

// The threshold below which eigenvalues of the Gram matrix of `size` rows are rounding error.
inline double gram_noise(Index size, double largest) {
    return 4.0 * EPS * static_cast<double>(std::max(size, LEAST_ROWS)) * largest;
}

// Fill `kept` (m - 1) with the reduced values, descending, and return delta. Of the m largest values of `lam`, the last
// j are reduced by delta = lam[m - 1]. A delta up to `noise` is rounding error and is set to exactly zero: added to
// alpha, it would make a singular Hessian look invertible. Values up to `least` are set to zero.
inline double shrink_values(Span<const double> lam, Index m, Index j, double noise, double least, double* kept) {
    const Index n = static_cast<Index>(lam.size());
    double delta = n >= m ? lam[m - 1] : 0.0;
    if (delta <= noise) delta = 0.0;
    for (Index i = 0; i < m - 1; ++i) {
        double value = 0.0;
        // Floored at 0: the difference of equal numbers can be slightly negative, and square roots follow.
        if (i < n && lam[i] > least) value = i >= m - j ? std::max(lam[i] - delta, 0.0) : lam[i];
        kept[i] = value;
    }
    return delta;
}

}  // namespace robustfd

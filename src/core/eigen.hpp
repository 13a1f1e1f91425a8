// The largest eigenpairs of a small positive semi-definite matrix, which dominate the cost of a shrink step.
//
// A shrink step needs fewer than half of the eigenvectors of a matrix with ten to two hundred rows. LAPACK's fastest
// driver (dsyevd) computes all of them, and its drivers for a subset (dsyevr, dsyevx) are slower at this size. The four
// steps here:
//
// 1. Householder reduction to tridiagonal form T, 2 n^3 flops (4/3 n^3 by dsytrd for larger matrices).
// 2. The k + 1 largest eigenvalues of T, O(n k) flops per sweep.
// 3. The k eigenvectors of T by one step of inverse iteration with a twisted factorisation (Dhillon and Parlett 2004),
//    O(n k) flops.
// 4. Back-transformation by the reflectors, 2 n^2 k flops.
//
// Inverse iteration does not guarantee orthogonal vectors when eigenvalues nearly coincide. So the residuals (at most n
// eps) and the orthogonality defect are checked, a small defect is removed by Newton-Schulz iteration, and LAPACK's
// divide and conquer is used whenever a check fails. The result is as accurate as LAPACK's in every case.
//
// For a matrix of ten to a hundred rows LAPACK spends most of its time in calls to very short vector operations and in
// chains of dependent divisions. Here every inner loop runs over a whole row or over all wanted eigenvalues, so the
// compiler vectorises it.
#pragma once

#include <algorithm>

#include "array.hpp"
#include "level.hpp"

namespace robustfd {

constexpr double EPS = 2.220446049250313e-16;
constexpr double INDEPENDENT = 1e-11;  // a row is independent if more of its squared length is outside the others' span

// Fill the first k + 1 of `values` (n), descending and nonnegative, and k eigenvectors as rows of `vectors` (k, n).
// Return false if a number is not finite or LAPACK fails. Only the lower triangle of `a` is read.
bool largest_eigenpairs(Matrix<const double> a, Index k, double* values, Matrix<double> vectors);

// Do the same to high relative accuracy, for a Gram matrix of rows of very different lengths. Return the rank, at most
// `most`, or -1 on failure. `a` is symmetric and overwritten. All of `values` (n) is filled, with 0 after the rank.
Index graded_eigenpairs(Matrix<double> a, Index k, Index most, double* values, Matrix<double> vectors);

// The steps for a matrix with n rows.
struct Tridiagonal {
    // Reduce the symmetric matrix `a` to tridiagonal form by Householder reflections I - tau v v'. The vectors v are
    // stored in the rows of `a`, to the right of the diagonal. Both triangles are read and overwritten. `form` (6, n)
    // receives the diagonal, the off-diagonal and tau; its other rows are scratch. The rows of `a` and `form` must end
    // with zeros up to a multiple of LANES.
    void (*reduce)(Matrix<double> a, Matrix<double> form);

    // Fill `values` (count) with the largest eigenvalues of T, descending; return whether all were isolated and
    // converged. `scratch` holds n + 9 (count + LANES) numbers.
    bool (*largest_values)(Matrix<const double> form, double* values, Index count, double* scratch);

    // Fill the columns of z with unit eigenvectors of T for the given eigenvalues; return the largest residual.
    // `scratch` holds (3 n + 4) k numbers.
    double (*vectors)(Matrix<const double> form, const double* values, Matrix<double> z, double* scratch);

    // Map the columns of z from eigenvectors of T to eigenvectors of the matrix, in place. Rows of z have space for a
    // multiple of LANES.
    void (*back_transform)(Matrix<const double> a, Matrix<const double> form, Matrix<double> z);
};

RFD_LEVELS(Tridiagonal, tridiagonal)

// ---------------------------------------------------------------------------------------------- shrink rules
//
// How a shrink step reduces the squared singular values of a buffer to at most m - 1 positive ones, and the thresholds
// of rounding error.

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

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
#pragma once

#include "array.hpp"

namespace robustfd {

constexpr double INDEPENDENT = 1e-11;  // a row is independent if more of its squared length is outside the others' span

// Fill the first k + 1 of `values` (n), descending and nonnegative, and k eigenvectors as rows of `vectors` (k, n).
// Return false if a number is not finite or LAPACK fails. Only the lower triangle of `a` is read.
bool largest_eigenpairs(Matrix<const double> a, Index k, double* values, Matrix<double> vectors);

// Do the same to high relative accuracy, for a Gram matrix of rows of very different lengths. Return the rank, at most
// `most`, or -1 on failure. `a` is symmetric and overwritten. All of `values` (n) is filled, with 0 after the rank.
Index graded_eigenpairs(Matrix<double> a, Index k, Index most, double* values, Matrix<double> vectors);

}  // namespace robustfd

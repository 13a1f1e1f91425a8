// Steps of a small symmetric eigenproblem: tridiagonal reduction, eigenpairs, back-transformation.
//
// For a matrix of ten to a hundred rows LAPACK spends most of its time in calls to very short vector operations and in
// chains of dependent divisions. Here every inner loop runs over a whole row or over all wanted eigenvalues, so the
// compiler vectorises it.
#pragma once

#include "array.hpp"
#include "level.hpp"

namespace robustfd {

constexpr double EPS = 2.220446049250313e-16;
constexpr Index VALUE_LANES = 8;  // the number of eigenvalues is rounded up to a multiple of this

struct Tridiagonal {
    // Reduce the symmetric matrix `a` to tridiagonal form by Householder reflections I - tau v v'. The vectors v are
    // stored in the rows of `a`, to the right of the diagonal. Both triangles are read and overwritten. `form` (6, n)
    // receives the diagonal, the off-diagonal and tau; its other rows are scratch. The rows of `a` and `form` must end
    // with zeros up to a multiple of VALUE_LANES.
    void (*reduce)(Matrix<double> a, Matrix<double> form);

    // Fill `values` (count) with the largest eigenvalues of T, descending; return whether all were isolated and
    // converged. `scratch` holds n + 9 (count + VALUE_LANES) numbers.
    bool (*largest_values)(Matrix<const double> form, double* values, Index count, double* scratch);

    // Fill the columns of z with unit eigenvectors of T for the given eigenvalues; return the largest residual.
    // `scratch` holds (3 n + 4) k numbers.
    double (*vectors)(Matrix<const double> form, const double* values, Matrix<double> z, double* scratch);

    // Map the columns of z from eigenvectors of T to eigenvectors of the matrix, in place. Rows of z have space for a
    // multiple of VALUE_LANES.
    void (*back_transform)(Matrix<const double> a, Matrix<const double> form, Matrix<double> z);
};

RFD_LEVELS(Tridiagonal, tridiagonal)

}  // namespace robustfd

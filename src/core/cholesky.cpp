#include "cholesky.hpp"

#include <cmath>

#include "blas.hpp"

namespace robustfd {

namespace {

constexpr Index MOST_ROWS = 80;  // above this size LAPACK is faster, and it needs scipy, whose import takes longer

// a = L L' by rows, then L^-1 in place, then L^-1' L^-1.
bool invert_small(Matrix<double> a) {
    const Index n = a.rows;
    for (Index j = 0; j < n; ++j) {
        double pivot = a(j, j);
        for (Index k = 0; k < j; ++k) pivot -= a(j, k) * a(j, k);
        if (!(pivot > 0.0)) return false;
        const double root = std::sqrt(pivot), inverse = 1.0 / root;
        a(j, j) = root;
        for (Index i = j + 1; i < n; ++i) {
            double sum = a(i, j);
            for (Index k = 0; k < j; ++k) sum -= a(i, k) * a(j, k);
            a(i, j) = sum * inverse;
        }
    }
    for (Index i = 0; i < n; ++i) {  // row i of L^-1 from the rows before it
        double* row = a[i];
        const double inverse = 1.0 / row[i];
        for (Index j = 0; j < n; ++j)
            if (j > i) row[j] = 0.0;
        // row[j] holds L_ij for j < i; accumulate into the upper part of row i, which is free.
        for (Index j = 0; j < i; ++j) {
            double sum = 0.0;
            for (Index k = j; k < i; ++k) sum += row[k] * a(k, j);
            a(j, i) = -sum * inverse;
        }
        for (Index j = 0; j < i; ++j) row[j] = a(j, i);
        row[i] = inverse;
    }
    for (Index i = 0; i < n; ++i)
        for (Index j = i + 1; j < n; ++j) a(i, j) = 0.0;
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j <= i; ++j) {
            double sum = 0.0;
            for (Index k = i; k < n; ++k) sum += a(k, i) * a(k, j);
            a(j, i) = sum;  // entries of L^-1 above row i are not needed any more
        }
    return true;
}

}  // namespace

bool needs_lapack(Index rows) { return rows > MOST_ROWS; }

bool invert(Matrix<double> a) {
    if (!needs_lapack(a.rows)) {
        if (!invert_small(a)) return false;
        for (Index i = 0; i < a.rows; ++i)
            for (Index j = 0; j < i; ++j) a(i, j) = a(j, i);
        return true;
    }
    const int n = static_cast<int>(a.rows), stride = static_cast<int>(a.stride);
    int info = 0;
    // Fortran sees the transpose, so the lower triangle is its upper one.
    blas().dpotrf("U", &n, a.data, &stride, &info);
    if (info != 0) return false;
    blas().dpotri("U", &n, a.data, &stride, &info);
    for (Index i = 0; i < a.rows; ++i)
        for (Index j = 0; j < i; ++j) a(j, i) = a(i, j);
    return info == 0;
}

}  // namespace robustfd

#include "cholesky.hpp"

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

// Replace the lower triangle of a by L, with a = L L'. All sums run along rows.
bool factor(Matrix<double> a) {
    for (Index i = 0; i < a.rows; ++i) {
        double* row = a[i];
        for (Index j = 0; j < i; ++j) row[j] = (row[j] - dot(row, a[j], j)) / a(j, j);
        const double pivot = row[i] - dot(row, row, i);
        if (!(pivot > 0.0)) return false;  // also for NaN
        row[i] = sqrt(pivot);
    }
    return true;
}

// Fill the lower triangle of `inverse`, which is 0, with L^-1, from the rows before.
void invert_factor(Matrix<const double> l, Matrix<double> inverse) {
    for (Index i = 0; i < l.rows; ++i) {
        double* row = inverse[i];
        for (Index k = 0; k < i; ++k) add_multiple(row, inverse[k], -l(i, k), k + 1);
        const double pivot = 1.0 / l(i, i);
        for (Index j = 0; j < i; ++j) row[j] *= pivot;
        row[i] = pivot;
    }
}

bool invert(Matrix<double> a, double* scratch) {
    const Index n = a.rows;
    const Matrix<double> inverse(scratch, n, n);
    if (!factor(a)) return false;
    for (Index i = 0; i < n * n; ++i) scratch[i] = 0.0;
    invert_factor(a, inverse);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j <= i; ++j) a(i, j) = 0.0;
    for (Index k = 0; k < n; ++k)  // L^-1' L^-1, from the outer products of the rows of L^-1
        for (Index i = 0; i <= k; ++i) add_multiple(a[i], inverse[k], inverse(k, i), i + 1);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < i; ++j) a(j, i) = a(i, j);
    return true;
}

}  // namespace

extern const Cholesky cholesky{invert};

}  // namespace robustfd::RFD_LEVEL

#include "matrices.hpp"

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

void add_gram(const Columns& x, Matrix<double> out) {
    for (Index column = 0; column < static_cast<Index>(x.stops.size()); ++column) {
        const Index start = x.starts[column];
        for (Index a = start; a < x.stops[column]; ++a) {
            const double value = x.data[a];
            double* target = out[x.rows[a]];
            for (Index b = start; b <= a; ++b) target[x.rows[b]] += value * x.data[b];
        }
    }
}

void add_product(const Columns& x, Matrix<const double> y, Matrix<double> out) {
    for (Index column = 0; column < static_cast<Index>(x.stops.size()); ++column)
        for (Index a = x.starts[column]; a < x.stops[column]; ++a)
            add_multiple(out[x.rows[a]], y[column], x.data[a], out.cols);
}

void add_transposed(const Columns& x, Matrix<const double> c, Matrix<double> out) {
    for (Index column = 0; column < static_cast<Index>(x.stops.size()); ++column)
        for (Index a = x.starts[column]; a < x.stops[column]; ++a)
            add_multiple(out[column], c[x.rows[a]], x.data[a], out.cols);
}

void centre(const RowCentring& c, const double* mean_products, Matrix<double> y, double* sums) {
    for (Index i = 0; i < y.rows; ++i) {
        double* row = y[i];
        const double a = c.scale[i], s = c.share[i], of_rows = c.rows_coef[i], of_mean = c.mean_coef[i];
        for (Index j = 0; j < y.cols; ++j) {
            const double value = row[j];
            row[j] = a * value - of_rows * sums[j] + of_mean * mean_products[j];
            sums[j] += s * value;
        }
    }
}

// sums[j] is the sum of share_s gram[s, j] over the rows s before i. For s < j these entries are above the diagonal, so
// they are read from row j instead.
void centre_gram(const RowCentring& c, const double* row_products, const double* mean_products, Matrix<double> gram,
                 double* sums) {
    for (Index i = 0; i < gram.rows; ++i) {
        double *row = gram[i], before = 0.0, left = 0.0;
        const double a = c.scale[i], s = c.share[i], of_rows = c.rows_coef[i], of_mean = c.mean_coef[i];
        for (Index j = 0; j < i; ++j) {
            const double value = row[j];
            const double half = a * value - of_rows * sums[j] + of_mean * row_products[j];  // centred on the left
            row[j] = c.scale[j] * half - c.rows_coef[j] * left + c.mean_coef[j] * mean_products[i];
            sums[j] += s * value;
            before += c.share[j] * value;
            left += c.share[j] * half;
        }
        const double half = a * row[i] - of_rows * before + of_mean * row_products[i];
        sums[i] = before + s * row[i];
        row[i] = a * half - of_rows * left + of_mean * mean_products[i];
    }
}

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

extern const MatrixLoops matrix_loops{add_gram, add_product, add_transposed, centre, centre_gram, invert};

}  // namespace robustfd::RFD_LEVEL

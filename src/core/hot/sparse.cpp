#include "sparse.hpp"

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

void add_gram(const Columns& x, Matrix<double> out) {
    for (Index column = 0; column < x.count; ++column) {
        const Index start = x.starts[column];
        for (Index a = start; a < x.stops[column]; ++a) {
            const double value = x.data[a];
            double* target = out[x.rows[a]];
            for (Index b = start; b <= a; ++b) target[x.rows[b]] += value * x.data[b];
        }
    }
}

void add_product(const Columns& x, Matrix<const double> y, Matrix<double> out) {
    for (Index column = 0; column < x.count; ++column)
        for (Index a = x.starts[column]; a < x.stops[column]; ++a)
            add_multiple(out[x.rows[a]], y[column], x.data[a], out.cols);
}

void add_transposed(const Columns& x, Matrix<const double> c, Matrix<double> out) {
    for (Index column = 0; column < x.count; ++column)
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

}  // namespace

extern const SparseProducts sparse_products{add_gram, add_product, add_transposed, centre, centre_gram};

}  // namespace robustfd::RFD_LEVEL

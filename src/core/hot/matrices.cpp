#include "matrices.hpp"

#include <type_traits>

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

// The inverse of a matrix, by its factor L. Four rows at a time share what is loaded, and the sums of each entry run in
// the order that they would have one row at a time.

constexpr Index TOGETHER = 4;

// The products of R rows, which are `width` numbers apart, with x: the sums over k < n.
template <Index R> RFD_INLINE void dots(const double* rows, Index width, const double* x, Index n, double* result) {
    Lanes<double> total[R];
    for (Lanes<double>& each : total) each = Lanes<double>(0.0);
    Index k = 0;
    for (; k + LANES <= n; k += LANES) {
        const Lanes<double> some = load(x + k);
        for (Index r = 0; r < R; ++r) total[r] += load(rows + r * width + k) * some;
    }
    for (Index r = 0; r < R; ++r) result[r] = sum(total[r]);
    for (; k < n; ++k)
        for (Index r = 0; r < R; ++r) result[r] += rows[r * width + k] * x[k];
}

// Replace rows first to first + R - 1 of the lower triangle of a by those of L, from the rows before.
template <Index R> bool factor_rows(Matrix<double> a, Index first) {
    double products[R];
    for (Index j = 0; j < first; ++j) {
        dots<R>(a[first], a.stride, a[j], j, products);
        for (Index r = 0; r < R; ++r) a(first + r, j) = (a(first + r, j) - products[r]) / a(j, j);
    }
    for (Index i = first; i < first + R; ++i) {
        double* row = a[i];
        for (Index j = first; j < i; ++j) row[j] = (row[j] - dot(row, a[j], j)) / a(j, j);
        const double pivot = row[i] - dot(row, row, i);
        if (!(pivot > 0.0)) return false;  // also for NaN
        row[i] = sqrt(pivot);
    }
    return true;
}

// Scalars s(r, k) of several rows, which are `row` and `step` apart.
struct Scalars {
    const double* data;
    Index row, step;
    double operator()(Index r, Index k) const { return data[r * row + k * step]; }
};

// Set y[r, j], for r < R and j < n, to SIGN times the sum of s(r, k) x[k, j] over k from `first` or j, whichever is
// larger, to `last`.
template <Index R, int SIGN>
RFD_INLINE void sum_products(double* y, Index width, const Scalars& s, Matrix<const double> x, Index first, Index last,
                             Index n) {
    Index j = 0;
    for (; j + LANES <= n; j += LANES) {
        Lanes<double> total[R];
        for (Lanes<double>& each : total) each = Lanes<double>(0.0);
        for (Index k = first > j ? first : j; k <= last; ++k) {
            const Lanes<double> some = load(x[k] + j);
            for (Index r = 0; r < R; ++r) total[r] += some * Lanes<double>(s(r, k));
        }
        for (Index r = 0; r < R; ++r) store(SIGN < 0 ? -total[r] : total[r], y + r * width + j);
    }
    for (; j < n; ++j)
        for (Index r = 0; r < R; ++r) {
            double total = 0.0;
            for (Index k = first > j ? first : j; k <= last; ++k) total += x(k, j) * s(r, k);
            y[r * width + j] = SIGN * total;
        }
}

// Fill rows first to first + R - 1 of the lower triangle of `inverse`, which is 0, with those of L^-1.
template <Index R> void invert_rows(Matrix<const double> l, Matrix<double> inverse, Index first) {
    sum_products<R, -1>(inverse[first], inverse.stride, {l[first], l.stride, 1}, inverse, 0, first - 1, first);
    for (Index i = first; i < first + R; ++i) {
        double* row = inverse[i];
        for (Index k = first; k < i; ++k) add_multiple(row, inverse[k], -l(i, k), k + 1);
        const double pivot = 1.0 / l(i, i);
        for (Index j = 0; j < i; ++j) row[j] *= pivot;
        row[i] = pivot;
    }
}

// Call each(first, count) for blocks of rows: TOGETHER where there are as many, and else 1; stop if it returns false.
template <class Each> bool in_blocks(Index n, Each each) {
    constexpr std::integral_constant<Index, TOGETHER> several;
    constexpr std::integral_constant<Index, 1> one;
    Index i = 0;
    for (; i + TOGETHER <= n; i += TOGETHER)
        if (!each(i, several)) return false;
    for (; i < n; ++i)
        if (!each(i, one)) return false;
    return true;
}

bool invert(Matrix<double> a, double* scratch) {
    const Index n = a.rows;
    const Matrix<double> inverse(scratch, n, n);
    if (!in_blocks(n, [&](Index i, auto count) { return factor_rows<count()>(a, i); })) return false;
    for (Index i = 0; i < n * n; ++i) scratch[i] = 0.0;
    in_blocks(n, [&](Index i, auto count) { return invert_rows<count()>(a, inverse, i), true; });
    in_blocks(n, [&](Index i, auto count) {  // L^-1' L^-1, the lower triangle and a little more
        const Scalars columns{scratch + i, 1, n};
        sum_products<count(), 1>(a[i], a.stride, columns, inverse, i, n - 1, i + count());
        return true;
    });
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < i; ++j) a(j, i) = a(i, j);
    return true;
}

}  // namespace

extern const MatrixLoops matrix_loops{add_gram, add_product, add_transposed, centre, centre_gram, invert};

}  // namespace robustfd::RFD_LEVEL

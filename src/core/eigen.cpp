#include "eigen.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "blas.hpp"

namespace robustfd {

namespace {

constexpr Index MIN_ROWS_FOR_SYTRD = 128;     // from this size LAPACK's blocked reduction is faster than the loop here
constexpr double MAX_SHARE_OF_VECTORS = 0.7;  // if more of the eigenvectors are wanted, it is faster to compute all
constexpr double LARGEST_DEFECT = 1e-5;       // of orthogonality, that Newton-Schulz iteration may remove
constexpr int REFINEMENTS = 3;
constexpr Index BLOCK = 32;  // of LAPACK's reduction and back-transformation

// Orthonormalise the columns of z by Newton-Schulz iteration, of which each step squares the defect (Higham 2008, ch.
// 8). Return false if the defect is too large.
bool orthonormalise(Array<double>& z, Index n, Index k, Index stride) {
    std::vector<double> overlap(k * k);
    const Matrix<double> gram(overlap.data(), k, k);
    for (int step = 0; step < REFINEMENTS; ++step) {
        const Matrix<double> columns(z.data(), n, k, stride);
        gemm(true, false, 1.0, columns, columns, 0.0, gram);
        double defect = 0.0;
        for (Index p = 0; p < k; ++p) {
            gram(p, p) -= 1.0;
            for (Index q = 0; q < k; ++q) {
                const double size = std::abs(gram(p, q));
                defect = size <= defect ? defect : size;  // keeps NaN
            }
        }
        if (!(defect <= LARGEST_DEFECT)) return false;
        Array<double> refined(z);
        gemm(false, false, -0.5, columns, gram, 1.0, {refined.data(), n, k, stride});
        z = std::move(refined);
        if (static_cast<double>(k) * defect * defect <= EPS) break;
    }
    return true;
}

// Compute the eigenpairs of a matrix of norm about 1 by the four steps above; return whether they are accurate.
bool by_inverse_iteration(Matrix<double> a, Index k, double* values, Matrix<double> vectors) {
    const Index n = a.rows, most = std::min(k + 1, n);
    const bool by_lapack = n >= MIN_ROWS_FOR_SYTRD;
    const Index numbers = std::max({(3 * n + 4) * k, n + 9 * (most + LANES), by_lapack ? BLOCK * n : 0});
    const auto memory = std::make_unique_for_overwrite<double[]>(numbers);
    double* scratch = memory.get();
    const Index line = padded(n), stride = padded(k);
    Array<double> form_data(6 * line), z(n * stride);
    const Matrix<double> form(form_data.data(), 6, n, line), columns(z.data(), n, k, stride);
    const int size = static_cast<int>(n), width = static_cast<int>(k), length = static_cast<int>(BLOCK * n);
    const int lda = static_cast<int>(a.stride);
    int info = 0;
    if (by_lapack)
        blas().dsytrd("L", &size, a.data, &lda, form[0], form[1], form[2], scratch, &length, &info);
    else
        tridiagonal().reduce(a, form);
    if (!tridiagonal().largest_values(form, values, most, scratch)) return false;
    const double residual = tridiagonal().vectors(form, values, columns, scratch);
    if (!(residual <= static_cast<double>(n) * EPS) || !orthonormalise(z, n, k, stride)) return false;
    const Matrix<double> refined(z.data(), n, k, stride);
    if (!by_lapack) tridiagonal().back_transform(a, form, refined);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < k; ++j) vectors(j, i) = refined(i, j);
    if (by_lapack)  // Fortran reads the k rows of n numbers as the columns of an n x k matrix
        blas().dormtr("L", "L", "N", &size, &width, a.data, &lda, form[2], vectors.data, &size, scratch,
                      &length, &info);
    return true;
}

// Compute all eigenvalues and the first k eigenvectors with LAPACK. `a` is overwritten.
bool by_divide_and_conquer(Matrix<double> a, Index k, double* values, Matrix<double> vectors) {
    const int n = static_cast<int>(a.rows), length = 1 + 6 * n + 2 * n * n, integers_length = 3 + 5 * n;
    const int lda = static_cast<int>(a.stride);
    std::vector<double> work(length);
    std::vector<int> integers(integers_length);
    int info = 0;
    blas().dsyevd("V", "U", &n, a.data, &lda, values, work.data(), &length, integers.data(), &integers_length, &info);
    for (Index j = 0; j < k; ++j) std::copy_n(a[n - 1 - j], n, vectors[j]);
    std::reverse(values, values + n);
    return info == 0;
}

void copy_scaled(Matrix<const double> a, double scale, Matrix<double> out) {
    for (Index i = 0; i < a.rows; ++i)
        for (Index j = 0; j <= i; ++j) out(i, j) = out(j, i) = scale * a(i, j);
}

}  // namespace

Blas& blas() {
    static Blas table;
    return table;
}

void gemm(bool transpose_a, bool transpose_b, double scale, Matrix<const double> a, Matrix<const double> b, double keep,
          Matrix<double> c) {
    const int rows = static_cast<int>(c.rows), cols = static_cast<int>(c.cols);
    if (rows == 0 || cols == 0) return;
    const int inner = static_cast<int>(transpose_a ? a.rows : a.cols);
    const int lda = static_cast<int>(a.stride), ldb = static_cast<int>(b.stride), ldc = static_cast<int>(c.stride);
    // Fortran reads row-major matrices as transposes, so this computes c' = op(b)' op(a)'.
    blas().dgemm(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &cols, &rows, &inner, &scale, b.data, &ldb, a.data,
                 &lda, &keep, c.data, &ldc);
}

void gram_of_columns(const double* a, Index rows, Index cols, Matrix<double> out) {
    const int n = static_cast<int>(rows), k = static_cast<int>(cols), ldc = static_cast<int>(out.stride);
    const double one = 1.0, zero = 0.0;
    blas().dsyrk("U", "N", &n, &k, &one, a, &n, &zero, out.data, &ldc);  // upper in Fortran order is lower here
}

bool largest_eigenpairs(Matrix<const double> a, Index k, double* values, Matrix<double> vectors) {
    const Index n = a.rows;
    double scale = 0.0;
    for (Index i = 0; i < n; ++i) scale = a(i, i) <= scale ? scale : a(i, i);  // keeps NaN
    if (!(scale > 0.0 && scale < std::numeric_limits<double>::infinity())) {
        std::fill_n(values, n, 0.0);
        for (Index j = 0; j < k; ++j)
            for (Index i = 0; i < n; ++i) vectors(j, i) = i == j ? 1.0 : 0.0;
        return scale == 0.0;
    }
    scale = std::max(scale, std::numeric_limits<double>::min());  // 1 / scale of a subnormal number would overflow
    const Array<double> data(n * padded(n));
    const Matrix<double> scaled(data.data(), n, n, padded(n));
    copy_scaled(a, 1.0 / scale, scaled);
    std::fill_n(values, n, 0.0);
    bool found = n >= 3 && static_cast<double>(k) < MAX_SHARE_OF_VECTORS * static_cast<double>(n) &&
                 by_inverse_iteration(scaled, k, values, vectors);
    if (!found) {
        copy_scaled(a, 1.0 / scale, scaled);
        found = by_divide_and_conquer(scaled, k, values, vectors);
    }
    for (Index i = 0; i < n; ++i) values[i] = std::max(0.0, scale * values[i]);
    return found;
}

// Write a = D S D, where S has a unit diagonal. Pivoted Cholesky of S (dpstrf) gives the rank. One-sided Jacobi
// (dgejsv) then computes the singular values of D times that factor with a relative error of about eps cond(S),
// independent of D (Demmel and Veselic 1992; Drmac and Veselic 2008).
Index graded_eigenpairs(Matrix<double> a, Index k, Index most, double* values, Matrix<double> vectors) {
    const Index n = a.rows;
    std::vector<double> length(n);
    for (Index i = 0; i < n; ++i) {
        length[i] = std::sqrt(a(i, i));
        if (!(length[i] < std::numeric_limits<double>::infinity())) return -1;
    }
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
            const double divisor = length[i] * length[j];
            a(i, j) = divisor > 0.0 ? a(i, j) / divisor : 0.0;
        }
    const int size = static_cast<int>(n);
    int count = 0, info = 0;
    std::vector<int> pivots(n), integers(4 * n + 8);
    std::vector<double> work(2 * n);
    blas().dpstrf("U", &size, a.data, &size, pivots.data(), &count, &INDEPENDENT, work.data(), &info);
    const Index rank = std::min<Index>(count, most);
    std::fill_n(values, n, 0.0);
    if (rank == 0) return 0;
    // Fortran stores the upper factor of S[piv, piv] = U'U by columns. In C order that is the lower triangle of `a`.
    std::vector<double> factor(rank * n), left(n * n), right(rank * rank), sva(n);
    for (Index i = 0; i < n; ++i) {
        const Index p = pivots[i] - 1;
        for (Index j = 0; j < std::min(i + 1, rank); ++j) factor[j * n + p] = length[p] * a(i, j);
    }
    const int r = static_cast<int>(rank);
    const int work_size = std::max({2 * size + r, 6 * r + 2 * r * r, 4 * r + r * r}) + 7 + size;
    work.resize(work_size);
    blas().dgejsv("F", "U", "N", "N", "N", "N", &size, &r, factor.data(), &size, sva.data(), left.data(), &size,
                  right.data(), &r, work.data(), &work_size, integers.data(), &info);
    if (info != 0) return -1;
    for (Index j = 0; j < rank; ++j) {
        const double sigma = sva[j] * (work[0] / work[1]);
        values[j] = sigma * sigma;
        if (j < k) std::copy_n(left.data() + j * n, n, vectors[j]);
    }
    return rank;
}

}  // namespace robustfd

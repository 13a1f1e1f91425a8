#include "blas.hpp"

namespace robustfd {

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

}  // namespace robustfd

// Loops over matrices: products of sparse matrices, for which a library would allocate a dense temporary array, running
// means, and the inverse of a small positive definite matrix.
#pragma once

#include "array.hpp"
#include "level.hpp"

namespace robustfd {

// A sparse matrix by columns: column j has the entries starts[j] to stops[j] - 1 of `rows`, ascending, and of `data`.
//
// The loops read and write whole rows of dense matrices. In this order each row of the matrix with one row per column
// of x is needed once, so it is read from memory once.
struct Columns {
    const Index* starts;
    Span<const Index> stops;
    const Index* rows;
    const double* data;
};

// The coefficients by which `Centring` of sketch/ subtracts running means from rows.
struct RowCentring {
    const double *scale, *share, *rows_coef, *mean_coef;
};

struct MatrixLoops {
    void (*add_gram)(const Columns& x, Matrix<double> out);                                // lower triangle of x x'
    void (*add_product)(const Columns& x, Matrix<const double> y, Matrix<double> out);     // x y
    void (*add_transposed)(const Columns& x, Matrix<const double> c, Matrix<double> out);  // x' c
    // Centre the rows y in place; `sums` is scratch with one number for each column, all 0.
    void (*centre)(const RowCentring& c, const double* mean_products, Matrix<double> y, double* sums);
    // Centre both sides of x x' in place; only the lower triangle is read and written. `sums` is scratch as above.
    void (*centre_gram)(const RowCentring& c, const double* row_products, const double* mean_products,
                        Matrix<double> gram, double* sums);
    // Replace the symmetric matrix `a` by its inverse; return false if it is not positive definite. Only the lower
    // triangle is read, and both are written. `scratch` holds as many numbers as `a`. LAPACK needs scipy. With AVX-512
    // its inverse is no faster up to five hundred rows, and with AVX2 it takes three quarters of the time.
    bool (*invert)(Matrix<double> a, double* scratch);
};

RFD_LEVELS(MatrixLoops, matrix_loops)

}  // namespace robustfd

// Products of a sparse matrix, stored by columns, for which a library would allocate a dense temporary array.
#pragma once

#include "array.hpp"
#include "level.hpp"

namespace robustfd {

// A sparse matrix by columns: column j has the entries starts[j] to stops[j] - 1 of `rows`, ascending, and of `data`.
//
// The loops read and write whole rows of dense matrices. In this order each row of the matrix with one row per column
// of x is needed once, so it is read from memory once.
struct Columns {
    const Index *starts, *stops, *rows;
    const double* data;
    Index count;
};

// The coefficients by which `Centring` (sketch/_centring.py) subtracts running means from rows.
struct RowCentring {
    const double *scale, *share, *rows_coef, *mean_coef;
};

struct SparseProducts {
    void (*add_gram)(const Columns& x, Matrix<double> out);                                // lower triangle of x x'
    void (*add_product)(const Columns& x, Matrix<const double> y, Matrix<double> out);     // x y
    void (*add_transposed)(const Columns& x, Matrix<const double> c, Matrix<double> out);  // x' c
    // Centre the rows y in place; `sums` is scratch with one number for each column, all 0.
    void (*centre)(const RowCentring& c, const double* mean_products, Matrix<double> y, double* sums);
    // Centre both sides of x x' in place; only the lower triangle is read and written. `sums` is scratch as above.
    void (*centre_gram)(const RowCentring& c, const double* row_products, const double* mean_products,
                        Matrix<double> gram, double* sums);
};

RFD_LEVELS(SparseProducts, sparse_products)

}  // namespace robustfd

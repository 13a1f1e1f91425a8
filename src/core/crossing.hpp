// Products of the features of rows, as additional columns.
#pragma once

#include "csr.hpp"

namespace robustfd {

// Features of rows in CSR form: row i has the entries starts[i] to starts[i + 1] - 1.
struct Factors {
    const std::int32_t *starts, *columns;
    const double* values;
};

// The products of every feature of one group with every one of another, or of each pair of one group if they are the
// same.
//
// Their columns are from `first` on. With `many` > 0, features of the ranks a and b have the column a many + b.
// Otherwise the columns of the features are hashed into 2^bits columns.
struct Products {
    Factors left, right;
    bool same;
    const std::int32_t *left_ranks, *right_ranks;  // by column
    Index many, first;
    int bits;
};

// The rows of x with products as further entries.
CsrMatrix cross(const Factors& x, Index rows, Span<const Products> pairs);

}  // namespace robustfd

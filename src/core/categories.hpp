// Text in tables: values as hashed columns, and rows of numbers and values.
#pragma once

#include "csr.hpp"
#include "hash.hpp"

namespace robustfd {

// Fill the columns, below 2^bits, and the signs of the names prefix + text[ends[k] .. ends[k + 1] - 1].
void hash_values(Span<const Letter> prefix, const Letter* text, Span<const Index> ends, int bits, Index* columns,
                 double* signs);

// The values of text columns. Row i has the value with number codes(t, i) in column t, or none if that is -1. This
// value stands for the column columns[bases[t] + codes(t, i)] of the rows, and for the sign at the same place.
struct Categories {
    Matrix<const Index> codes;
    const Index *bases, *columns;
    const double* signs;
};

// Rows with the numbers other than 0 in the first columns, and the signs of their values.
CsrMatrix table_rows(Matrix<const double> numbers, const Categories& values);

}  // namespace robustfd

// Rows of a batch, dense or sparse, with their labels, weights and margins.
#pragma once

#include <cstdint>

#include "array.hpp"

namespace robustfd {

struct DenseRow {
    const double* values;
    Index size;
    Index column(Index k) const { return k; }
};

struct SparseRow {
    const double* values;
    Index size;
    const std::int32_t* columns;
    Index column(Index k) const { return columns[k]; }
};

// Dense rows one after the other (then `indptr` is null), or rows in CSR format: row i has the entries indptr[i] to
// indptr[i + 1] - 1 of `data` and of `indices`.
struct Rows {
    const double* data;
    const std::int32_t* indices;
    const Index* indptr;
    Index count, d;

    bool sparse() const { return indptr != nullptr; }
    Index entries(Index first, Index last) const { return indptr ? indptr[last] - indptr[first] : (last - first) * d; }
};

// The two forms of rows as types, for loops that are compiled once for each.
struct DenseRows {
    Rows rows;
    DenseRow operator[](Index i) const { return {rows.data + i * rows.d, rows.d}; }
};
struct SparseRows {
    Rows rows;
    SparseRow operator[](Index i) const {
        const Index first = rows.indptr[i];
        return {rows.data + first, rows.indptr[i + 1] - first, rows.indices + first};
    }
};

// One of the running totals of progress.hpp.
struct Totals {
    double weight, loss, errors, rows;
};

// Labels and sample weights of rows. The loops fill in the margins, and count the rows in `progress` unless it is null.
struct Batch {
    const double *y, *weight;
    double* margins;
    Totals* progress;

    Batch from(Index i) const { return {y + i, weight + i, margins + i, progress}; }
};

}  // namespace robustfd

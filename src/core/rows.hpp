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

// Rows to learn or to read: dense with `width` numbers each, or in CSR format if `indptr` is not null. Row i then has
// the entries indptr[i] to indptr[i + 1] - 1 of `data` and of `indices`.
struct Rows {
    const double* data = nullptr;
    const std::int32_t* indices = nullptr;
    const Index* indptr = nullptr;
    Index count = 0, width = 0;

    bool sparse() const { return indptr != nullptr; }
    Index entries(Index first, Index last) const {
        return indptr ? indptr[last] - indptr[first] : (last - first) * width;
    }
    Index longest(Index first, Index last) const;  // the largest number of entries of rows first to last - 1
    // Throw std::invalid_argument unless the indices of rows first to last - 1 are in range.
    void check(Index features, Index first, Index last) const;
};

// The two forms of rows as types, for loops that are compiled once for each.
struct DenseRows {
    Rows rows;
    DenseRow operator[](Index i) const { return {rows.data + i * rows.width, rows.width}; }
};
struct SparseRows {
    Rows rows;
    SparseRow operator[](Index i) const {
        const Index first = rows.indptr[i];
        return {rows.data + first, rows.indptr[i + 1] - first, rows.indices + first};
    }
};

// The running totals of progress.hpp.
struct Progress {
    double weight, loss, errors, rows;
};

// Labels and sample weights of rows. The loops fill in the margins, and count the rows in `progress` unless it is null.
struct Batch {
    const double *y, *weight;
    double* margins;
    Progress* progress;

    Batch from(Index i) const { return {y + i, weight + i, margins + i, progress}; }
};

}  // namespace robustfd

// Rows of a batch, dense or sparse, with their labels, weights and margins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>

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
    // The largest number of entries of rows first to last - 1.
    Index longest(Index first, Index last) const {
        if (!indptr) return width;
        Index most = 0;
        for (Index i = first; i < last; ++i) most = std::max(most, indptr[i + 1] - indptr[i]);
        return most;
    }
    // Throw std::invalid_argument unless the indices of rows first to last - 1 are in range.
    void check(Index features, Index first, Index last) const {
        const auto require = [](bool holds, const char* message) {
            if (!holds) throw std::invalid_argument(message);
        };
        if (!indptr) return require(width <= features, "the rows have more features than the model");
        Index descents = 0;
        for (Index i = first; i < last; ++i) descents |= indptr[i + 1] - indptr[i];
        require(descents >= 0, "indptr does not ascend");
        const std::int32_t most = static_cast<std::int32_t>(std::min<Index>(features, INT32_MAX) - 1);
        std::int32_t outside = 0;  // negative if an index is negative or above `most`
        for (Index k = indptr[first]; k < indptr[last]; ++k) outside |= indices[k] | (most - (indices[k] & INT32_MAX));
        require(outside >= 0, "an index is out of range");
    }
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

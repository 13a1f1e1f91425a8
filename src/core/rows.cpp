#include "rows.hpp"

#include <algorithm>
#include <stdexcept>

namespace robustfd {

namespace {

void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

}  // namespace

Index Rows::longest(Index first, Index last) const {
    if (!indptr) return width;
    Index most = 0;
    for (Index i = first; i < last; ++i) most = std::max(most, indptr[i + 1] - indptr[i]);
    return most;
}

void Rows::check(Index features, Index first, Index last) const {
    if (!indptr) return require(width <= features, "the rows have more features than the model");
    Index descents = 0;
    for (Index i = first; i < last; ++i) descents |= indptr[i + 1] - indptr[i];
    require(descents >= 0, "indptr does not ascend");
    const std::int32_t most = static_cast<std::int32_t>(std::min<Index>(features, INT32_MAX) - 1);
    std::int32_t outside = 0;  // negative if an index is negative or above `most`
    for (Index k = indptr[first]; k < indptr[last]; ++k) outside |= indices[k] | (most - (indices[k] & INT32_MAX));
    require(outside >= 0, "an index is out of range");
}

}  // namespace robustfd

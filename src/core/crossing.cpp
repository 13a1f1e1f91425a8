#include "crossing.hpp"

namespace robustfd {

namespace {

constexpr std::uint64_t PRIME = 16777619;  // of the FNV hash, with which Vowpal Wabbit combines two columns

Index size_of(const Factors& x, Index row) { return x.starts[row + 1] - x.starts[row]; }

// The number of entries of all rows, as a double because it may be beyond all integers.
double count_entries(const Factors& x, Index rows, Span<const Products> pairs) {
    double total = 0.0;
    for (Index row = 0; row < rows; ++row) {
        total += static_cast<double>(size_of(x, row));
        for (const Products& pair : pairs) {
            const auto a = static_cast<double>(size_of(pair.left, row));
            const auto b = static_cast<double>(size_of(pair.right, row));
            total += pair.same ? a * (a + 1.0) / 2.0 : a * b;
        }
    }
    return total;
}

Index column_of(const Products& pair, std::int32_t left, std::int32_t right) {
    if (pair.many > 0) return pair.first + pair.left_ranks[left] * pair.many + pair.right_ranks[right];
    const std::uint64_t hash = static_cast<std::uint64_t>(left) * PRIME ^ static_cast<std::uint64_t>(right);
    return pair.first + static_cast<Index>(hash & ((std::uint64_t{1} << pair.bits) - 1));
}

void add_products(const Products& pair, Index row, CsrMatrix& out) {
    const Factors &left = pair.left, &right = pair.right;
    for (std::int32_t i = left.starts[row]; i < left.starts[row + 1]; ++i)
        for (std::int32_t j = pair.same ? i : right.starts[row]; j < right.starts[row + 1]; ++j)
            out.add(column_of(pair, left.columns[i], right.columns[j]), left.values[i] * right.values[j]);
}

}  // namespace

CsrMatrix cross(const Factors& x, Index rows, Span<const Products> pairs) {
    const double entries = count_entries(x, rows, pairs);
    if (entries > static_cast<double>(MOST_ENTRIES)) throw std::bad_alloc();
    CsrMatrix out(static_cast<std::size_t>(entries));
    for (Index row = 0; row < rows; ++row) {
        for (std::int32_t k = x.starts[row]; k < x.starts[row + 1]; ++k) out.add(x.columns[k], x.values[k]);
        for (const Products& pair : pairs) add_products(pair, row, out);
        out.settle();
        out.end_row();
    }
    return out;
}

}  // namespace robustfd

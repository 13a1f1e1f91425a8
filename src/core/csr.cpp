#include "csr.hpp"

#include <algorithm>
#include <cmath>

namespace robustfd {

namespace {

constexpr std::size_t FEW = 24;  // entries that are sorted faster by insertion

void sort_few(std::int32_t* columns, double* values, std::size_t n) {
    for (std::size_t k = 1; k < n; ++k) {
        const std::int32_t column = columns[k];
        const double value = values[k];
        std::size_t at = k;
        for (; at > 0 && columns[at - 1] > column; --at) {
            columns[at] = columns[at - 1];
            values[at] = values[at - 1];
        }
        columns[at] = column;
        values[at] = value;
    }
}

// Sort pairs of column and position as single numbers, so that entries of one column stay in the order of the text.
void sort_many(std::int32_t* columns, double* values, std::size_t n) {
    std::vector<std::uint64_t> keys(n);
    const std::vector<double> before(values, values + n);
    for (std::size_t k = 0; k < n; ++k) keys[k] = static_cast<std::uint64_t>(columns[k]) << 32 | k;
    std::sort(keys.begin(), keys.end());
    for (std::size_t k = 0; k < n; ++k) {
        columns[k] = static_cast<std::int32_t>(keys[k] >> 32);
        values[k] = before[keys[k] & 0xFFFFFFFF];
    }
}

// Sort entries by column.
void sort_row(std::int32_t* columns, double* values, std::size_t n) {
    std::int32_t *const end = columns + n, *const sorted = std::is_sorted_until(columns, end);
    if (sorted == end) return;
    // Entries that are at most as large as all that are out of order stay where they are.
    const std::int32_t least = *std::min_element(sorted, end);
    const auto first = static_cast<std::size_t>(std::upper_bound(columns, sorted, least) - columns);
    (n - first <= FEW ? sort_few : sort_many)(columns + first, values + first, n - first);
}

}  // namespace

bool CsrMatrix::settle() {
    if (sorted_) return true;
    std::int32_t* column = columns_ + start();
    double* value = values_ + start();
    const std::size_t n = entries_ - start();
    sort_row(column, value, n);
    std::size_t last = 0;
    bool finite = true;
    for (std::size_t k = 1; k < n; ++k) {
        if (column[k] == column[last]) {
            value[last] += value[k];
            finite &= std::isfinite(value[last]);
        } else {
            column[++last] = column[k];
            value[last] = value[k];
        }
    }
    entries_ = start() + last + 1;
    return finite;
}

void CsrMatrix::end_row() {
    starts.push_back(static_cast<std::int32_t>(entries_));
    last_ = -1;
    sorted_ = true;
}

void CsrMatrix::drop_row() {
    entries_ = start();
    last_ = -1;
    sorted_ = true;
}

void CsrMatrix::make_room(std::size_t room) {
    std::unique_ptr<void, Give> memory(take_memory(room * (sizeof(double) + sizeof(std::int32_t))));
    double* values = static_cast<double*>(memory.get());
    std::int32_t* columns = reinterpret_cast<std::int32_t*>(values + room);
    std::copy_n(values_, entries_, values);
    std::copy_n(columns_, entries_, columns);
    memory_ = std::move(memory);
    values_ = values;
    columns_ = columns;
    room_ = room;
}

void CsrMatrix::grow() {
    if (room_ == MOST_ENTRIES) throw std::bad_alloc();
    make_room(std::min(2 * room_ + 16, MOST_ENTRIES));
}

}  // namespace robustfd

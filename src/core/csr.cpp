#include "csr.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace robustfd {

namespace {

// ---------------------------------------------------------------------------------------------------- memory

constexpr std::size_t SMALLEST = std::size_t{1} << 17, LARGEST = std::size_t{1} << 23;  // bytes of pieces that are kept
constexpr std::size_t LOOSEST = 4;  // a piece is used for at least its size divided by this

// What precedes a piece of memory.
struct alignas(std::max_align_t) Piece {
    std::size_t bytes;
};

struct Pool {
    std::mutex lock;
    std::array<Piece*, 4> pieces{};
};

Pool& pool() {
    static Pool& only = *new Pool;  // never destroyed, because arrays may be freed after all other objects
    return only;
}

bool is_kept(std::size_t bytes) { return SMALLEST <= bytes && bytes <= LARGEST; }

std::size_t size_of(const Piece* piece) { return piece ? piece->bytes : 0; }

// Both functions do without the pool when another thread is in it, so a process that is forked at this moment cannot
// wait for ever.
Piece* take_piece(std::size_t bytes) {
    const std::unique_lock held(pool().lock, std::try_to_lock);
    if (!held) return nullptr;
    for (Piece*& each : pool().pieces)
        if (size_of(each) >= bytes && size_of(each) / LOOSEST <= bytes) return std::exchange(each, nullptr);
    return nullptr;
}

// Keep a piece; return what is to be freed instead. Larger pieces are of use more often, so the smallest makes way.
Piece* keep_piece(Piece* piece) {
    const std::unique_lock held(pool().lock, std::try_to_lock);
    if (!held) return piece;
    Piece*& least = *std::ranges::min_element(pool().pieces, {}, size_of);
    return size_of(least) < piece->bytes ? std::exchange(least, piece) : piece;
}

// --------------------------------------------------------------------------------------------------- sorting

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

// -------------------------------------------------------------------------------------------------- products

constexpr std::uint64_t PRIME = 16777619;  // of the FNV hash, with which Vowpal Wabbit combines two columns

// The number of entries of all rows, as a double because it may be beyond all integers.
double count_entries(const Factors& x, Index rows, Span<const Products> pairs) {
    double total = 0.0;
    for (Index row = 0; row < rows; ++row) {
        total += static_cast<double>(x.size(row));
        for (const Products& pair : pairs) {
            const auto a = static_cast<double>(pair.left.size(row)), b = static_cast<double>(pair.right.size(row));
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

void* take_memory(std::size_t bytes) {
    if (is_kept(bytes))
        if (Piece* piece = take_piece(bytes)) return piece + 1;
    void* memory = bytes <= SIZE_MAX - sizeof(Piece) ? std::malloc(bytes + sizeof(Piece)) : nullptr;
    if (!memory) throw std::bad_alloc();
    return new (memory) Piece{bytes} + 1;
}

void give_memory(void* memory) noexcept {
    if (!memory) return;
    Piece* piece = static_cast<Piece*>(memory) - 1;
    std::free(is_kept(piece->bytes) ? keep_piece(piece) : piece);
}

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
    return sorted_ = true, finite;
}

void CsrMatrix::end_row() {
    settle();
    starts.push_back(static_cast<std::int32_t>(entries_));
    last_ = -1;
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

CsrMatrix table_rows(Matrix<const double> numbers, const Categories& values) {
    const Index n = numbers.rows, width = numbers.cols;
    CsrMatrix rows(static_cast<std::size_t>(n) * static_cast<std::size_t>(width + values.codes.rows));
    for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < width; ++j)
            if (numbers(i, j) != 0.0) rows.add(j, numbers(i, j));
        for (Index t = 0; t < values.codes.rows; ++t) {
            const Index code = values.codes(t, i);
            if (code < 0) continue;
            for (Index k = values.starts[code]; k < values.starts[code + 1]; ++k)
                rows.add(values.columns[k], values.numbers[k]);
        }
        rows.end_row();
    }
    return rows;
}

CsrMatrix cross(const Factors& x, Index rows, Span<const Products> pairs) {
    const double entries = count_entries(x, rows, pairs);
    if (entries > static_cast<double>(MOST_ENTRIES)) throw std::bad_alloc();
    CsrMatrix out(static_cast<std::size_t>(entries));
    for (Index row = 0; row < rows; ++row) {
        for (std::int32_t k = x.starts[row]; k < x.starts[row + 1]; ++k) out.add(x.columns[k], x.values[k]);
        for (const Products& pair : pairs) add_products(pair, row, out);
        out.end_row();
    }
    return out;
}

}  // namespace robustfd

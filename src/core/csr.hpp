// Sparse matrices that are written row by row, and the rows of tables and of products of features.
#pragma once

#include <memory>
#include <vector>

#include "array.hpp"

namespace robustfd {

constexpr std::size_t MOST_ENTRIES = (std::size_t{1} << 31) - 1;  // what 32-bit row pointers can address

// Memory of blocks of rows, which is used again for later blocks.
//
// A stream makes blocks of a few megabytes, one after the other. Allocators return pieces of this size to the system
// and get new ones, of which every page is cleared at its first use. That takes as long as parsing.
void* take_memory(std::size_t bytes);     // its content is undefined; throws std::bad_alloc
void give_memory(void* memory) noexcept;  // what take_memory returned, or nullptr

// A matrix in CSR form, whose rows have ascending columns. Entries of the next row may be added in any order, and
// several for one column.
class CsrMatrix {
  public:
    explicit CsrMatrix(std::size_t room) { make_room(room < MOST_ENTRIES ? room : MOST_ENTRIES); }

    void add(Index column, double value) {
        if (entries_ == room_) grow();
        columns_[entries_] = static_cast<std::int32_t>(column);
        values_[entries_++] = value;
        sorted_ &= column > last_;
        last_ = column;
    }
    // Sort the entries of the row by column and add up those of one column; return whether all sums are finite. Values
    // that are alone in their column are not checked.
    bool settle();
    void end_row();   // settles the row first
    void drop_row();  // forget the entries since the last end_row
    void keep_rows(std::size_t count) {  // forget the rows after these
        starts.resize(count + 1);
        drop_row();
    }

    std::size_t entries() const { return entries_; }
    double* values() const { return values_; }
    std::int32_t* columns() const { return columns_; }
    void* release() { return memory_.release(); }  // what values and columns are part of, for give_memory

    std::vector<std::int32_t> starts{0};  // of the rows, and the end of the last one

  private:
    void make_room(std::size_t room);
    void grow();
    std::size_t start() const { return static_cast<std::size_t>(starts.back()); }

    struct Give {
        void operator()(void* memory) const { give_memory(memory); }
    };
    std::unique_ptr<void, Give> memory_;  // not filled with zeros first, as that of a vector would be
    double* values_ = nullptr;
    std::int32_t* columns_ = nullptr;
    std::size_t entries_ = 0, room_ = 0;
    Index last_ = -1;
    bool sorted_ = true;  // so far, columns of the row are ascending
};

// The values of text columns. Row i has the value with number codes(t, i) in column t, or none if that is -1. The value
// k stands for the entries starts[k] to starts[k + 1] - 1, each a column of the rows and a number.
struct Categories {
    Matrix<const Index> codes;
    const Index *starts, *columns;
    const double* numbers;
};

// Rows with the numbers other than 0 in the first columns, and the entries of their values.
CsrMatrix table_rows(Matrix<const double> numbers, const Categories& values);

// Features of rows in CSR form: row i has the entries starts[i] to starts[i + 1] - 1.
struct Factors {
    const std::int32_t *starts, *columns;
    const double* values;

    Index size(Index row) const { return starts[row + 1] - starts[row]; }
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

// Sparse matrices that are written row by row.
#pragma once

#include <memory>
#include <vector>

#include "array.hpp"
#include "recycled.hpp"

namespace robustfd {

constexpr std::size_t MOST_ENTRIES = (std::size_t{1} << 31) - 1;  // what 32-bit row pointers can address

// A matrix in CSR form, whose rows have ascending columns. Entries of the next row may be added in any order, and
// several for one column. settle() puts them in order.
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
    void end_row();
    void drop_row();  // forget the entries since the last end_row

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

}  // namespace robustfd

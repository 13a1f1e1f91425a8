// What the bindings of learners share: rows as arguments, arrays of a state as results.
#pragma once

#include <limits>

#include "convert.hpp"
#include "learner.hpp"

namespace robustfd {

// Rows as an argument: a C-contiguous array (n, d) of float64, or a tuple (data, indices, indptr) of float64, int32 and
// int64 in CSR format. Every index is checked.
class RowsArgument {
  public:
    RowsArgument(nb::handle x, Index d);
    const Rows& rows() const { return rows_; }

  private:
    void read_csr(nb::handle x, Index d);
    In2<double> dense_;
    In1<double> data_;
    In1<std::int32_t> indices_;
    In1<Index> indptr_;
    Rows rows_{};
};

// The table of progress of an array (64, 4).
Totals* table_of(const Out2<double>& progress);

// A dict of the arrays of a state, as views that keep `owner` alive.
nb::dict views_of(const std::vector<Part>& parts, nb::handle owner);

void bind_newton(nb::module_& m);

}  // namespace robustfd

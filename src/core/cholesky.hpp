// The inverse of a small positive definite matrix.
#pragma once

#include "array.hpp"

namespace robustfd {

// Replace the symmetric matrix `a` by its inverse; return false if it is not positive definite. Only the lower triangle is
// read, and both are written.
bool invert(Matrix<double> a);

// Whether `invert` calls LAPACK (blas.hpp) for this number of rows.
bool needs_lapack(Index rows);

}  // namespace robustfd

// The inverse of a small positive definite matrix. LAPACK's is no faster up to a hundred rows, and needs scipy.
#pragma once

#include "array.hpp"
#include "level.hpp"

namespace robustfd {

struct Cholesky {
    // Replace the symmetric matrix `a` by its inverse; return false if it is not positive definite. Only the lower
    // triangle is read, and both are written. `scratch` holds as many numbers as `a`.
    bool (*invert)(Matrix<double> a, double* scratch);
};

RFD_LEVELS(Cholesky, cholesky)

}  // namespace robustfd

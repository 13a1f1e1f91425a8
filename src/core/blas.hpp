// BLAS and LAPACK. The core links to neither: the caller passes the routines once, before anything that needs them.
#pragma once

#include "array.hpp"

namespace robustfd {

// Fortran routines with 32-bit integers, named as in LAPACK.
struct Blas {
    void (*dgemm)(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
                  const int*, const double*, const int*, const double*, double*, const int*) = nullptr;
    void (*dsyrk)(const char*, const char*, const int*, const int*, const double*, const double*, const int*,
                  const double*, double*, const int*) = nullptr;
    void (*dsytrd)(const char*, const int*, double*, const int*, double*, double*, double*, double*, const int*,
                   int*) = nullptr;
    void (*dormtr)(const char*, const char*, const char*, const int*, const int*, const double*, const int*,
                   const double*, double*, const int*, double*, const int*, int*) = nullptr;
    void (*dsyevd)(const char*, const char*, const int*, double*, const int*, double*, double*, const int*, int*,
                   const int*, int*) = nullptr;
    void (*dpstrf)(const char*, const int*, double*, const int*, int*, int*, const double*, double*, int*) = nullptr;
    void (*dgejsv)(const char*, const char*, const char*, const char*, const char*, const char*, const int*, const int*,
                   double*, const int*, double*, double*, const int*, double*, const int*, double*, const int*, int*,
                   int*) = nullptr;
};

Blas& blas();  // the table of routines, empty until the caller fills it

// c = scale op(a) op(b) + keep c for row-major matrices; the flags select transposes. With keep = 0, c is not read.
void gemm(bool transpose_a, bool transpose_b, double scale, Matrix<const double> a, Matrix<const double> b, double keep,
          Matrix<double> c);

// The lower triangle of a a', for a matrix of which column j begins at a + j rows. `out` is row-major.
void gram_of_columns(const double* a, Index rows, Index cols, Matrix<double> out);

}  // namespace robustfd

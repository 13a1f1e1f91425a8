// The loops of the methods of the paper without blocks, which learn one row at a time.
//
// ADAGRAD: S_i += g_i^2, h_i = sqrt(alpha0 + S_i), w_i -= g_i / h_i (Duchi et al. 2011, as run by Luo et al. 2019),
// then the projection onto the slab in the norm of diag(h).
//
// Gradient descent: w -= rate_t g, then the Euclidean projection (Zinkevich 2003).
//
// RP-SON and Oja-SON (Luo et al. 2016): H = B'B + alpha0 I where each row of the data changes every row of B. B is
// m x d, and the weights are stored as w = v + B'c (for Oja-SON, Y takes the place of B). When B changes by q a', a
// change of v by -(q'c) a keeps w the same. H^-1 x is a combination of x and the rows of B, so a step changes only c
// and the entries of v at the non-zeros of x. A row costs O(m nnz + m^3), and no operation has length d. With alpha0 =
// 0 the steps use the pseudo-inverse of H. Moving w along x_0, the part of a row outside the row space of B, then costs
// nothing in the projection.
//
//   RP-SON   B += r a'/sqrt(m), where a = sqrt(mu + eta_t) g and r are m standard normal numbers.
//   Oja-SON  V = orth(V + (1/t)(V a) a'), Lambda = (1 - 1/t) Lambda + (1/t) (V a)^2, B = sqrt(t Lambda) V. orth
//            orthonormalizes the rows in order. The implementation stores V = F Y with F lower triangular. With h =
//            V a, the Gram matrix of V + h a'/t is I + gamma h h'. So orth multiplies F by the inverse of the Cholesky
//            factor of this matrix, and Y only changes by F^-1 h a'/t.
//
// A slope that is only rounding error counts as 0 (paper_settings.hpp). After a projection, the margin of the row is
// +-bound.
#pragma once

#include "paper_settings.hpp"
#include "rows.hpp"

namespace robustfd {

enum class Method : int { ADAGRAD, DESCENT, PROJECTION, OJA };

class RowModel;

// The arrays of a model, as far as its method has them.
struct RowArrays {
    Method method;
    const PaperSettings& settings;
    Index& seen;
    RowModel& owner;        // asked to store all features before all of them change
    double* v;              // (d): w of the first-order methods
    double* sums;           // (d): S of ADAGRAD; (m): t Lambda of Oja-SON
    Matrix<double> basis;   // (d, m): B' of RP-SON, initially zero; Y' of Oja-SON, initially with orthonormal columns
    double* c;              // (m)
    Matrix<double> square;  // (m, m): BB' of RP-SON; F of Oja-SON, initially I
    double* scratch;        // (2 m + 8) m numbers
};

// The number of rows learned before an overflow, and whether any of them had extreme numbers.
struct Learned {
    Index rows;
    bool extreme;
};

// H^-1 x = coef_x x + B' coef_b and x_0 = x - B' outside_b, for a row x.
struct Direction {
    double coef_x;
    double* coef_b;
    double kappa;  // x'H^-1 x
    double* outside_b;
    double n0;  // x_0'x_0, or 0 if x_0 counts as zero
};

struct RowLoops {
    // `normal` are the random numbers of RP-SON, m for each row.
    Learned (*learn)(const RowArrays& model, const Rows& rows, const Batch& batch, const double* normal);
    // The direction of RP-SON for a row with B x = b and x'x = square, from the Gram matrix BB'. The result lies in
    // `scratch`, which is as in RowArrays.
    Direction (*solve_projection)(double alpha, Matrix<const double> gram, const double* b, double square,
                                  double* scratch);
};

RFD_LEVELS(RowLoops, row_loops)

void store_all(RowModel& model);  // before a change of all features

}  // namespace robustfd

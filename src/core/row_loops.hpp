// The loops of the methods of the paper without blocks, which learn one row at a time.
//
// A slope that is only rounding error counts as 0 (paper_settings.hpp). After a projection, the margin of the row is
// +-bound.
#pragma once

#include "paper_settings.hpp"
#include "rows.hpp"

namespace robustfd {

class RowModel;

constexpr double OUTSIDE = 1e-11;  // a row is outside a span if more than this fraction of its squared length is
constexpr Index REFRESH = 1024;    // updated sums are recomputed after this many rows, or after d rows if that is more
constexpr double HUGE_NUMBER = 1e50;  // numbers below this, and above its inverse, are far from overflow and underflow

// The number of rows learned before an overflow, and whether any of them had extreme numbers.
struct Learned {
    Index rows;
    bool extreme;
};

struct FirstOrder {
    Learned (*adagrad)(const PaperSettings& settings, const Rows& rows, const Batch& batch, double* w, double* squares);
    Learned (*gradient_descent)(const PaperSettings& settings, const Rows& rows, const Batch& batch,
                                Span<double> v, double* scalars, Index* seen);
};

RFD_LEVELS(FirstOrder, first_order)

// The arrays of RP-SON: w = v + B'c and the Gram matrix BB', all initially zero.
struct ProjectionModel {
    const PaperSettings& settings;
    Index& seen;
    RowModel& owner;  // asked to store all features before all of them change
    double* v;
    Matrix<double> bt;  // (d, m): B'
    double* c;
    Matrix<double> gram;  // (m, m)
    double* scratch;      // (2 m + 8) m numbers
};

// The arrays of Oja-SON: w = v + Y'c, with V = F Y orthonormal and the energy along each of its rows.
struct OjaModel {
    const PaperSettings& settings;
    Index& seen;
    RowModel& owner;
    double* v;
    Matrix<double> yt;  // (d, m): Y', initially with orthonormal columns
    double* c;
    double* energy;    // (m): t Lambda
    Matrix<double> f;  // (m, m): F, initially I
    double* scratch;   // (m + 8) m numbers
};

// H^-1 x = coef_x x + B' coef_b and x_0 = x - B' outside_b, for a row x.
struct Direction {
    double coef_x;
    double* coef_b;
    double kappa;  // x'H^-1 x
    double* outside_b;
    double n0;  // x_0'x_0, or 0 if x_0 counts as zero
};

struct RandomBasis {
    Learned (*projection)(const ProjectionModel& model, const Rows& rows, const Batch& batch, const double* normal);
    Learned (*oja)(const OjaModel& model, const Rows& rows, const Batch& batch);
    // The direction of RP-SON for a row with B x = b and x'x = square, from the Gram matrix BB'. The result lies in
    // `scratch`, which is as in ProjectionModel.
    Direction (*solve_projection)(double alpha, Matrix<const double> gram, const double* b, double square,
                                  double* scratch);
};

RFD_LEVELS(RandomBasis, random_basis)

void store_all(RowModel& model);  // before a change of all features

}  // namespace robustfd

namespace robustfd::RFD_LEVEL {

inline bool is_finite(double x) { return fabs(x) < HUGE_VAL; }

// Whether the margin, slope, weight and squared length of a row are far from causing an overflow.
inline bool is_safe(double p, double slope, double weight, double square) {
    const bool small =
        fabs(p) < HUGE_NUMBER && fabs(slope) < HUGE_NUMBER && weight < HUGE_NUMBER && square < HUGE_NUMBER;
    return small && (square == 0.0 || square > 1.0 / HUGE_NUMBER);
}

}  // namespace robustfd::RFD_LEVEL

// ADAGRAD and gradient descent, as steps of the loop of row_loops.cpp, and what all steps share.
//
// The steps of a method have three functions of a row: `predict` fills its margin and squared length, `project_next`
// projects w onto the slab of the row before the prediction and changes its margin, and `take_step` returns whether it
// succeeded.
#pragma once

#include "lanes.hpp"
#include "row_loops.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double OUTSIDE = 1e-11;  // a row is outside a span if more than this fraction of its squared length is

bool is_finite(double x) { return fabs(x) < HUGE_VAL; }

// The row that is learned: its place in the batch, weight, squared length, margin before the step, and slope.
struct RowNow {
    Index number;
    double weight, square = 0.0, p = 0.0, slope = 0.0;
};

template <class Row> void predict_with(const double* w, const Row& row, RowNow& now) {
    for (Index k = 0; k < row.size; ++k) {
        now.p += w[row.column(k)] * row.values[k];
        now.square += row.values[k] * row.values[k];
    }
}

struct AdaGradSteps {
    const RowArrays& model;
    double* w = model.v;

    double h(Index j) const { return sqrt(model.settings.alpha0 + model.sums[j]); }
    template <class Row> void predict(const Row& row, RowNow& now) { predict_with(w, row, now); }
    template <class Row> void project_next(const Row& row, RowNow& now) { now.p = clip(row, now.p); }

    template <class Row> bool take_step(const Row& row, const RowNow& now) {
        const double g = now.weight * now.slope;
        double p = now.p;
        if (g != 0.0) {
            p = 0.0;
            for (Index k = 0; k < row.size; ++k) {
                const Index j = row.column(k);
                const double x = row.values[k];
                model.sums[j] += (g * x) * (g * x);
                const double scale = h(j);
                if (scale > 0.0) w[j] -= g * x / scale;
                p += w[j] * x;
            }
        }
        if (model.settings.projection == Projection::CURRENT) clip(row, p);
        return true;
    }

    // Project w onto |w'x| <= bound in the norm of diag(h), given p = w'x; return the margin after the projection. With
    // alpha0 = 0, a feature that never had a gradient has h = 0, so that moving it costs nothing.
    template <class Row> double clip(const Row& row, double p) {
        const double bound = model.settings.bound;
        if (!(fabs(p) > bound)) return p;
        double along = 0.0, free = 0.0, square = 0.0;
        for (Index k = 0; k < row.size; ++k) {
            const double scale = h(row.column(k)), x = row.values[k];
            square += x * x;
            if (scale > 0.0)
                along += x * x / scale;
            else
                free += x * x;
        }
        const bool moves_free = free > OUTSIDE * square;
        if (!moves_free && along == 0.0) return p;
        const double clipped = copysign(bound, p), step = (p - clipped) / (moves_free ? free : along);
        for (Index k = 0; k < row.size; ++k) {
            const Index j = row.column(k);
            const double scale = h(j);
            if (moves_free)
                w[j] -= scale == 0.0 ? step * row.values[k] : 0.0;
            else if (scale > 0.0)
                w[j] -= step * row.values[k] / scale;
        }
        return clipped;
    }
};

struct DescentSteps {
    const RowArrays& model;
    double move = 0.0;  // w moves by this number times -x

    template <class Row> void predict(const Row& row, RowNow& now) {
        move = 0.0;
        predict_with(model.v, row, now);
    }
    template <class Row> void project_next(const Row&, RowNow& now) {
        if (!(now.square > 0.0)) return;
        const double clipped = copysign(model.settings.bound, now.p);
        move = (now.p - clipped) / now.square;
        now.p = clipped;
    }
    template <class Row> bool take_step(const Row& row, const RowNow& now) {
        const PaperSettings& settings = model.settings;
        model.seen += 1;
        double step = rate_at(settings, model.seen) * now.weight * now.slope;
        const double after = now.p - step * now.square, bound = settings.bound;
        if (settings.projection == Projection::CURRENT && fabs(after) > bound && now.square > 0.0)
            step += (after - copysign(bound, after)) / now.square;
        move += step;
        if (move != 0.0)
            for (Index k = 0; k < row.size; ++k) model.v[row.column(k)] -= move * row.values[k];
        return true;
    }
};

}  // namespace

}  // namespace robustfd::RFD_LEVEL

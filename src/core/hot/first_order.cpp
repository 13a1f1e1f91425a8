#include "lanes.hpp"
#include "progress.hpp"
#include "row_loops.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double SMALLEST_SCALE = 1e-8;

// ------------------------------------------------------------------------------------------------- ADAGRAD

struct AdaGradModel {
    const PaperSettings& settings;
    double *w, *squares;
    double h(Index j) const { return sqrt(settings.alpha0 + squares[j]); }
};

// Project w onto |w'x| <= bound in the norm of diag(h), given p = w'x; return the margin after the projection. With
// alpha0 = 0, a feature that never had a gradient has h = 0, so that moving it costs nothing.
template <class Row> double clip(const AdaGradModel& model, const Row& row, double p) {
    const double bound = model.settings.bound;
    if (!(fabs(p) > bound)) return p;
    double along = 0.0, free = 0.0, square = 0.0;
    for (Index k = 0; k < row.size; ++k) {
        const double h = model.h(row.column(k)), x = row.values[k];
        square += x * x;
        if (h > 0.0)
            along += x * x / h;
        else
            free += x * x;
    }
    const bool moves_free = free > OUTSIDE * square;
    if (!moves_free && along == 0.0) return p;
    const double clipped = copysign(bound, p), step = (p - clipped) / (moves_free ? free : along);
    for (Index k = 0; k < row.size; ++k) {
        const Index j = row.column(k);
        const double h = model.h(j);
        if (moves_free)
            model.w[j] -= h == 0.0 ? step * row.values[k] : 0.0;
        else if (h > 0.0)
            model.w[j] -= step * row.values[k] / h;
    }
    return clipped;
}

// Take the step of a row with gradient g x; return the margin after it.
template <class Row> double take_step(const AdaGradModel& model, const Row& row, double g) {
    double p = 0.0;
    for (Index k = 0; k < row.size; ++k) {
        const Index j = row.column(k);
        const double x = row.values[k];
        model.squares[j] += (g * x) * (g * x);
        const double h = model.h(j);
        if (h > 0.0) model.w[j] -= g * x / h;
        p += model.w[j] * x;
    }
    return p;
}

template <class TheRows> Learned adagrad_loop(const AdaGradModel& model, const TheRows& all, const Batch& batch) {
    const PaperSettings& settings = model.settings;
    bool extreme = false;
    for (Index i = 0; i < all.rows.count; ++i) {
        const auto row = all[i];
        const double y = batch.y[i], weight = batch.weight[i];
        double p = 0.0, square = 0.0;
        for (Index k = 0; k < row.size; ++k) {
            p += model.w[row.column(k)] * row.values[k];
            square += row.values[k] * row.values[k];
        }
        extreme = extreme || !is_safe(p, slope_at(settings, p, y), weight, square);
        if (settings.projects(Projection::NEXT)) p = clip(model, row, p);
        batch.margins[i] = p;
        if (!is_finite(p)) return {i, true};
        tally(batch.progress, settings.loss, p, y, weight);
        const double g = weight * slope_at(settings, p, y);
        if (g != 0.0) p = take_step(model, row, g);
        if (settings.projects(Projection::CURRENT)) clip(model, row, p);
    }
    return {all.rows.count, extreme};
}

Learned adagrad(const PaperSettings& settings, const Rows& rows, const Batch& batch, double* w, double* squares) {
    const AdaGradModel model{settings, w, squares};
    return rows.sparse() ? adagrad_loop(model, SparseRows{rows}, batch) : adagrad_loop(model, DenseRows{rows}, batch);
}

// ------------------------------------------------------------------------------------------------- gradient descent

struct DescentModel {
    const PaperSettings& settings;
    double* v;
    Index d;
    double &scale, &squared;  // w = scale v, and its squared length
    Index& seen;
};

// Multiply v by its scale, reset the scale to 1, and recompute the squared length.
void unscale(const DescentModel& model) {
    double total = 0.0;
    for (Index j = 0; j < model.d; ++j) {
        model.v[j] *= model.scale;
        total += model.v[j] * model.v[j];
    }
    model.scale = 1.0;
    model.squared = total;
}

// Project onto the ball after a move by -move x of a row with margin p and this squared length.
void project_onto_ball(const DescentModel& model, double p, double move, double square) {
    const double most = model.settings.bound * model.settings.bound;
    double squared = model.squared - move * (2.0 * p - move * square);
    if (!(squared > 0.0)) squared = 0.0;
    if (squared > most) {
        model.scale *= model.settings.bound / sqrt(squared);
        squared = most;
    }
    model.squared = squared;
    if (model.scale < SMALLEST_SCALE || model.seen % (model.d > REFRESH ? model.d : REFRESH) == 0) unscale(model);
}

template <class TheRows> Learned descent_loop(const DescentModel& model, const TheRows& all, const Batch& batch) {
    const PaperSettings& settings = model.settings;
    const double bound = settings.bound;
    bool extreme = false;
    for (Index i = 0; i < all.rows.count; ++i) {
        const auto row = all[i];
        const double y = batch.y[i], weight = batch.weight[i];
        double p = 0.0, square = 0.0, move = 0.0;
        for (Index k = 0; k < row.size; ++k) {
            p += model.v[row.column(k)] * row.values[k];
            square += row.values[k] * row.values[k];
        }
        p *= model.scale;
        extreme = extreme || !is_safe(p, slope_at(settings, p, y), weight, square);
        if (settings.projects(Projection::NEXT) && fabs(p) > bound && square > 0.0) {
            move = (p - copysign(bound, p)) / square;
            p = copysign(bound, p);
        }
        batch.margins[i] = p;
        if (!is_finite(p)) return {i, true};
        tally(batch.progress, settings.loss, p, y, weight);
        model.seen += 1;
        double step = rate_at(settings, model.seen) * weight * slope_at(settings, p, y);
        const double after = p - step * square;
        if (settings.projects(Projection::CURRENT) && fabs(after) > bound && square > 0.0)
            step += (after - copysign(bound, after)) / square;
        move += step;
        if (move != 0.0) {
            const double factor = move / model.scale;
            for (Index k = 0; k < row.size; ++k) model.v[row.column(k)] -= factor * row.values[k];
        }
        if (settings.domain == Domain::BALL) project_onto_ball(model, p, move, square);
    }
    return {all.rows.count, extreme};
}

Learned gradient_descent(const PaperSettings& settings, const Rows& rows, const Batch& batch, Span<double> v,
                         double* scalars, Index* seen) {
    const DescentModel model{settings, v.data(), static_cast<Index>(v.size()), scalars[0], scalars[1], *seen};
    return rows.sparse() ? descent_loop(model, SparseRows{rows}, batch) : descent_loop(model, DenseRows{rows}, batch);
}

}  // namespace

extern const FirstOrder first_order{adagrad, gradient_descent};

}  // namespace robustfd::RFD_LEVEL

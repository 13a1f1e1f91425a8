#include "row_loops.hpp"

#include "first_order.hpp"
#include "progress.hpp"
#include "random_basis.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double HUGE_NUMBER = 1e50;  // numbers below this, and above its inverse, are far from overflow and underflow

// Whether the margin, slope, weight and squared length of a row are far from causing an overflow.
bool is_safe(const RowNow& now) {
    const bool small = fabs(now.p) < HUGE_NUMBER && fabs(now.slope) < HUGE_NUMBER && now.weight < HUGE_NUMBER &&
                       now.square < HUGE_NUMBER;
    return small && (now.square == 0.0 || now.square > 1.0 / HUGE_NUMBER);
}

template <class Steps, class TheRows>
Learned learn_with(Steps steps, const PaperSettings& settings, const TheRows& all, const Batch& batch) {
    bool extreme = false;
    for (Index i = 0; i < all.rows.count; ++i) {
        const auto row = all[i];
        const double y = batch.y[i];
        RowNow now{i, batch.weight[i]};
        steps.predict(row, now);
        now.slope = slope_at(settings, now.p, y);
        extreme = extreme || !is_safe(now);
        if (settings.projection == Projection::NEXT && fabs(now.p) > settings.bound) {
            steps.project_next(row, now);
            now.slope = slope_at(settings, now.p, y);
        }
        batch.margins[i] = now.p;
        if (!is_finite(now.p)) return {i, true};
        tally(batch.progress, settings.loss, now.p, y, now.weight);
        if (!steps.take_step(row, now)) return {i, true};
    }
    return {all.rows.count, extreme};
}

template <class Steps>
Learned learn_with(const Steps& steps, const RowArrays& model, const Rows& rows, const Batch& batch) {
    return rows.sparse() ? learn_with(steps, model.settings, SparseRows{rows}, batch)
                         : learn_with(steps, model.settings, DenseRows{rows}, batch);
}

Learned learn(const RowArrays& model, const Rows& rows, const Batch& batch, const double* normal) {
    switch (model.method) {
        case Method::ADAGRAD: return learn_with(AdaGradSteps{model}, model, rows, batch);
        case Method::DESCENT: return learn_with(DescentSteps{model}, model, rows, batch);
        case Method::PROJECTION: return learn_with(ProjectionSteps{model, normal}, model, rows, batch);
        default: return learn_with(OjaSteps{model}, model, rows, batch);
    }
}

}  // namespace

extern const RowLoops row_loops{learn, solve_projection};

}  // namespace robustfd::RFD_LEVEL

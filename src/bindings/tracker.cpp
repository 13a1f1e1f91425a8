// Bindings of the thresholds of intervals and sets.
#include "tracker.hpp"

#include <nanobind/stl/vector.h>

#include "learning.hpp"

namespace robustfd {

using namespace nb::literals;

Tracker tracker_of(Matrix<double> thresholds, Index sides, Span<double> totals, Matrix<double> trace) {
    require(thresholds.rows == sides && thresholds.cols == GRID, "thresholds has another shape");
    require(totals.size_bytes() == sizeof(Tracked), "totals has another length");
    require(trace.rows == TRACE && static_cast<std::size_t>(trace.cols) * sizeof(double) == sizeof(Window),
            "trace has another shape");
    auto& all = *reinterpret_cast<Tracked*>(totals.data());
    require(all.stride >= 1.0 && all.rows >= 0.0 && all.rows <= TRACE * all.stride, "the stride is too small");
    return {thresholds, all, reinterpret_cast<Window*>(trace.data)};
}

void bind_tracker(nb::module_& m) {
    m.attr("GRID_LEVELS") = nb::cast(std::vector<double>(GRID_LEVELS, GRID_LEVELS + GRID));
    m.attr("JUDGED_PLACES") = nb::cast(std::vector<Index>(JUDGED_PLACES, JUDGED_PLACES + JUDGED));
    m.attr("TRACE") = TRACE;
    m.attr("NEAR") = NEAR;
    m.def(
        "track_numbers",
        [](Span<const double> y, Span<const double> predicted, Span<const double> sizes, Span<const double> weight,
           double floor, Matrix<double> thresholds, Span<double> totals, Matrix<double> trace) {
            require(y.size() == predicted.size() && y.size() == sizes.size() && y.size() == weight.size(),
                    "the lengths differ");
            const Tracker tracker = tracker_of(thresholds, 2, totals, trace);
            for (std::size_t i = 0; i < y.size(); ++i) tracker.number(y[i], predicted[i], sizes[i], weight[i], floor);
        },
        "y"_a, "predicted"_a, "sizes"_a, "weight"_a, "floor"_a, "thresholds"_a, "totals"_a, "trace"_a, Unlocked(),
        "Track the residuals of rows, relative to their predicted sizes.");
    m.def(
        "track_labels",
        [](Span<const Index> labels, Matrix<const double> chances, Span<const double> weight, Matrix<double> thresholds,
           Span<double> totals, Matrix<double> trace) {
            require(length(labels) == chances.rows && labels.size() == weight.size(), "the lengths differ");
            for (const Index label : labels) require(0 <= label && label < chances.cols, "a label is out of range");
            const Tracker tracker = tracker_of(thresholds, 1, totals, trace);
            for (std::size_t i = 0; i < labels.size(); ++i)
                tracker.label(labels[i], chances[static_cast<Index>(i)], chances.cols, weight[i]);
        },
        "labels"_a, "chances"_a, "weight"_a, "thresholds"_a, "totals"_a, "trace"_a, Unlocked(),
        "Track the probabilities of the labels of rows.");
    m.def(
        "scales",
        [](Span<const double> sizes, Span<const double> totals, Span<double> out) {
            require(sizes.size() == out.size() && totals.size_bytes() == sizeof(Tracked), "the lengths differ");
            const auto& all = *reinterpret_cast<const Tracked*>(totals.data());
            for (std::size_t i = 0; i < sizes.size(); ++i) out[i] = scale_of(all, sizes[i]);
        },
        "sizes"_a, "totals"_a, "out"_a, "Fill the scales of rows from predicted sizes of residuals.");
}

}  // namespace robustfd

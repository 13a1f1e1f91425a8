// Bindings of the thresholds of intervals and sets.
#include "tracker.hpp"

#include <nanobind/stl/vector.h>

#include "learning.hpp"

namespace robustfd {

using namespace nb::literals;

Tracker tracker_of(const nb::tuple& arrays, bool numbers) {
    require(arrays.size() == 4, "a tracker has four arrays");
    const auto thresholds = nb::cast<Matrix<double>>(arrays[0]), leans = nb::cast<Matrix<double>>(arrays[1]);
    const auto totals = nb::cast<Span<double>>(arrays[2]);
    const auto trace = nb::cast<Matrix<double>>(arrays[3]);
    require(thresholds.rows == (numbers ? 2 : 1) && thresholds.cols == GRID, "thresholds has another shape");
    require(leans.rows == (numbers ? 2 * PAIRS : 0) && leans.cols * sizeof(double) == sizeof(Lean),
            "leans has another shape");
    require(totals.size_bytes() == sizeof(Tracked), "totals has another length");
    require(trace.rows == TRACE && trace.cols * sizeof(double) == sizeof(Window), "trace has another shape");
    auto& all = *reinterpret_cast<Tracked*>(totals.data());
    require(all.stride >= 1.0 && all.rows >= 0.0 && all.rows <= TRACE * all.stride, "the stride is too small");
    return {{thresholds, reinterpret_cast<Lean*>(leans.data)}, all, reinterpret_cast<Window*>(trace.data)};
}

void bind_tracker(nb::module_& m) {
    m.attr("GRID_LEVELS") = nb::cast(std::vector<double>(GRID_LEVELS, GRID_LEVELS + GRID));
    m.attr("JUDGED_PLACES") = nb::cast(std::vector<Index>(JUDGED_PLACES, JUDGED_PLACES + JUDGED));
    m.attr("QUANTILES") = nb::cast(std::vector<double>(QUANTILES, QUANTILES + 2 * PAIRS));
    m.attr("TRACE") = TRACE;
    m.attr("FARTHEST") = FARTHEST;
    m.def(
        "track_numbers",
        [](Span<const double> y, Span<const double> predicted, Span<const double> sizes,
           Matrix<const double> quantiles, Span<const double> weight, double floor, const nb::tuple& arrays) {
            require(y.size() == predicted.size() && y.size() == sizes.size() && y.size() == weight.size() &&
                        length(y) == quantiles.rows && quantiles.cols == 2 * PAIRS,
                    "the lengths differ");
            const Tracker tracker = tracker_of(arrays, true);
            const nb::gil_scoped_release unlocked;
            for (std::size_t i = 0; i < y.size(); ++i)
                tracker.number(y[i], predicted[i], sizes[i], quantiles[static_cast<Index>(i)], weight[i], floor);
        },
        "y"_a, "predicted"_a, "sizes"_a, "quantiles"_a, "weight"_a, "floor"_a, "arrays"_a,
        "Track the residuals of rows, given what the models of their sizes and of quantiles predicted.");
    m.def(
        "interval_ends",
        [](Span<const double> predicted, Span<const double> sizes, Matrix<const double> quantiles,
           Span<const double> levels, double floor, const nb::tuple& arrays, Span<double> out) {
            require(predicted.size() == sizes.size() && length(sizes) == quantiles.rows &&
                        quantiles.cols == 2 * PAIRS && out.size() == 2 * sizes.size() * levels.size(),
                    "the lengths differ");
            for (const double level : levels) require(0.0 < level && level < 1.0, "a level is outside (0, 1)");
            const Tracker tracker = tracker_of(arrays, true);
            const nb::gil_scoped_release unlocked;
            double* end = out.data();
            for (std::size_t i = 0; i < sizes.size(); ++i)
                end = tracker.fill_ends(predicted[i], sizes[i], quantiles[static_cast<Index>(i)], levels, floor, end);
        },
        "predicted"_a, "sizes"_a, "quantiles"_a, "levels"_a, "floor"_a, "arrays"_a, "out"_a,
        "Fill the low and then the high ends of each row at these levels.");
    m.def(
        "track_labels",
        [](Span<const Index> labels, Matrix<const double> chances, Span<const double> weight, const nb::tuple& arrays) {
            require(length(labels) == chances.rows && labels.size() == weight.size(), "the lengths differ");
            for (const Index label : labels) require(0 <= label && label < chances.cols, "a label is out of range");
            const Tracker tracker = tracker_of(arrays, false);
            for (std::size_t i = 0; i < labels.size(); ++i)
                tracker.label(labels[i], chances[static_cast<Index>(i)], chances.cols, weight[i]);
        },
        "labels"_a, "chances"_a, "weight"_a, "arrays"_a, "Track the probabilities of the labels of rows.");
}

}  // namespace robustfd

// Bindings of boosted trees, and of blends of predictions.
#include "forest.hpp"

#include "blend.hpp"
#include "learning.hpp"

namespace robustfd {

using namespace nb::literals;

namespace {

// The trees of arrays, and the sum to which each belongs.
struct Forest {
    Trees trees;
    Span<const std::int32_t> column;
};

using Places = Matrix<std::int32_t>;
using Limits = Matrix<std::uint8_t>;

Trees trees_of(Matrix<const double> cuts, Places place, Limits limit, Matrix<double> value) {
    const Index n = place.rows;
    require(limit.rows == n && value.rows == n, "the numbers of trees differ");
    require(place.cols == INNER && limit.cols == INNER && value.cols == NODES, "the trees have another depth");
    require(cuts.cols == BINS, "the numbers of cuts differ");
    return {cuts, place, limit, value, {}};
}

// Trees that are read: their arrays may be read-only.
Forest forest_of(Matrix<const double> cuts, Places place, Limits limit, Matrix<double> value,
                 Span<const std::int32_t> column, Index columns, Index sums) {
    const Trees trees = trees_of(cuts, place, limit, value);
    require(length(column) == place.rows, "the numbers of trees differ");
    require(cuts.rows <= columns, "a tree has no column: the rows have fewer than the trees");
    std::int32_t least = 0, most = 0, last = 0;  // of places and of sums; a loop without branches
    for (Index i = 0; i < place.rows * INNER; ++i)
        least = std::min(least, place.data[i]), most = std::max(most, place.data[i]);
    for (const std::int32_t sum : column) least = std::min(least, sum), last = std::max(last, sum);
    require(least >= 0 && most < std::max<Index>(2 * cuts.rows, 1) && last < std::max<Index>(sums, 1),
            "a node has no column, or a tree belongs to no sum");
    return {trees, column};
}

void bind_growing(nb::module_& m) {
    m.def(
        "bin_column",
        [](Matrix<const double> cells, Index column, Matrix<double> cuts, Matrix<std::uint8_t> bins) {
            require(0 <= column && column < cells.cols && cuts.rows == cells.cols && cuts.cols == BINS &&
                        bins.rows == cells.rows && bins.cols == 2 * cells.cols,
                    "the shapes differ");
            bin_column(cells, column, cuts, bins);
        },
        "cells"_a, "column"_a, "cuts"_a, "bins"_a, Unlocked(), "Fill the cuts of a column and the bins of its values.");
    m.def(
        "grow_trees",
        [](Matrix<const std::uint8_t> bins, Matrix<const double> cuts, Span<const std::int32_t> owner,
           Span<const double> y, Span<const double> weight, Matrix<double> margin, Matrix<double> gradient,
           std::uint64_t seed, Objective objective, double level, Places place, Limits limit, Matrix<double> value,
           Matrix<float> gain, Index first, Index last) {
            const Index n = bins.rows, outputs = margin.cols;
            require(cuts.rows >= 1 && 2 * cuts.rows == bins.cols && length(owner) == cuts.rows,
                    "the numbers of columns differ");
            require(n >= 1 && length(y) == n && length(weight) == n && margin.rows == n, "the numbers of rows differ");
            require(outputs >= 1 && (outputs == 1 || objective != Objective::logistic) && gradient.rows == outputs &&
                        gradient.cols == 2 * n,
                    "the gradients have another shape");
            require(has_valid_bins(bins, cuts), "a bin is out of range");
            if (objective == Objective::softmax)
                for (const double label : y) require(0.0 <= label && label < double(outputs), "a label is out of range");
            Trees trees = trees_of(cuts, place, limit, value);
            require(gain.rows == place.rows && gain.cols == INNER, "the gains have another shape");
            require(0 <= first && first <= last && last <= place.rows, "there are fewer trees");
            trees.gain = gain;
            grow({bins, owner, y, weight, margin, gradient, seed}, objective, level, trees, first, last);
        },
        "bins"_a, "cuts"_a, "owner"_a, "y"_a, "weight"_a, "margin"_a, "gradient"_a, "seed"_a, "objective"_a, "level"_a,
        "place"_a, "limit"_a, "value"_a, "gain"_a, "first"_a, "last"_a, Unlocked(),
        "Grow trees first to last - 1, which reduce the losses of rows.");
}

void bind_reading(nb::module_& m) {
    m.def(
        "add_values",
        [](Matrix<const double> cuts, Places place, Limits limit, Matrix<double> value,
           Span<const std::int32_t> column, Matrix<const double> cells, Matrix<double> sums,
           Matrix<std::int32_t> leaves) {
            require(cells.rows == sums.rows && cells.rows == leaves.rows && leaves.cols == place.rows,
                    "the shapes differ");
            const Forest forest = forest_of(cuts, place, limit, value, column, cells.cols, sums.cols);
            add_values(forest.trees, forest.column, cells, sums, leaves);
        },
        "cuts"_a, "place"_a, "limit"_a, "value"_a, "column"_a, "cells"_a, "sums"_a, "leaves"_a, Unlocked(),
        "Add the leaf values of trees to sums, for rows of cells, and fill in their leaves.");
    m.def(
        "add_paths",
        [](Matrix<const double> cuts, Places place, Limits limit, Matrix<double> value,
           Span<const std::int32_t> column, Matrix<const double> cells, Matrix<const double> factor,
           Matrix<double> parts) {
            require(cells.rows == factor.rows && cells.rows == parts.rows && cells.cols == parts.cols,
                    "the shapes differ");
            const Forest forest = forest_of(cuts, place, limit, value, column, cells.cols, factor.cols);
            add_paths(forest.trees, forest.column, cells, factor, parts);
        },
        "cuts"_a, "place"_a, "limit"_a, "value"_a, "column"_a, "cells"_a, "factor"_a, "parts"_a, Unlocked(),
        "Add what the columns of rows change along the paths of trees.");
    m.def(
        "divide_amounts",
        [](Matrix<const double> cuts, Places place, Limits limit, Matrix<double> value,
           Span<const std::int32_t> column, Matrix<const double> cells, Matrix<const double> amounts,
           Matrix<double> parts) {
            require(cells.rows == amounts.rows && cells.rows == parts.rows && cells.cols == parts.cols &&
                        amounts.cols == place.rows,
                    "the shapes differ");
            const Forest forest = forest_of(cuts, place, limit, value, column, cells.cols, INT32_MAX);
            divide_amounts(forest.trees, cells, amounts, parts);
        },
        "cuts"_a, "place"_a, "limit"_a, "value"_a, "column"_a, "cells"_a, "amounts"_a, "parts"_a, Unlocked(),
        "Divide an amount of each tree among the columns of the path of a row.");
}

void bind_blend(nb::module_& m) {
    m.def(
        "blend",
        [](Objective objective, double level, Matrix<const double> margins, Matrix<const double> readings,
           Span<const double> y, Span<const double> weight, Span<double> share, Span<double> labels,
           Span<double> steady, Span<double> totals, Matrix<double> out, Matrix<double> read) {
            const Index n = length(y), outputs = out.cols;
            require(readings.cols == outputs && read.cols == outputs && readings.rows == read.rows * length(share) &&
                        (read.rows == 0 || read.rows == n),
                    "the shapes of readings differ");
            require(out.rows == n && length(weight) == n && margins.cols == outputs &&
                        margins.rows == n * length(share) && share.size() >= 1 && steady.size() == share.size(),
                    "the shapes differ");
            require(totals.size_bytes() == sizeof(Blended), "totals has another length");
            require(labels.size() == 2, "labels has another length");
            if (objective == Objective::softmax)
                for (const double label : y) require(0.0 <= label && label < double(outputs), "a label is out of range");
            const Blend state{share, labels, steady, *reinterpret_cast<Blended*>(totals.data())};
            std::vector<double> losses(share.size());
            for (Index i = 0; i < n; ++i) {
                if (read.rows) mean_of(objective, steady, readings[i], n * outputs, outputs, read[i]);
                blend_row(objective, level, margins[i], n * outputs, outputs, y[static_cast<std::size_t>(i)],
                          weight[static_cast<std::size_t>(i)], state, losses, out[i]);
            }
        },
        "objective"_a, "level"_a, "margins"_a, "readings"_a, "y"_a, "weight"_a, "share"_a, "labels"_a, "steady"_a,
        "totals"_a, "out"_a, "read"_a, Unlocked(),
        "Blend the margins (learners n, outputs) of rows, and let the shares follow their targets. Before that, blend "
        "readings of the same shape as models that are read do; both may have no rows.");
    m.def(
        "blended",
        [](Objective objective, Matrix<const double> margins, Span<const double> share, Matrix<double> out) {
            require(margins.cols == out.cols && margins.rows == out.rows * length(share), "the shapes differ");
            for (Index i = 0; i < out.rows; ++i)
                mean_of(objective, share, margins[i], out.rows * out.cols, out.cols, out[i]);
        },
        "objective"_a, "margins"_a, "share"_a, "out"_a, Unlocked(), "Blend the margins (learners n, outputs) of rows.");
}

}  // namespace

void bind_forest(nb::module_& m) {
    m.attr("INNER") = INNER, m.attr("NODES") = NODES, m.attr("BINS") = BINS, m.attr("UNSPLIT") = UNSPLIT;
    m.attr("BLENDED") = sizeof(Blended) / sizeof(double);
    nb::enum_<Objective>(m, "Objective", "The loss that trees reduce.")
        .value("logistic", Objective::logistic)
        .value("softmax", Objective::softmax)
        .value("squared", Objective::squared)
        .value("pinball", Objective::pinball)
        .value("counts", Objective::counts);
    bind_growing(m);
    bind_reading(m);
    bind_blend(m);
}

}  // namespace robustfd

#include "forest.hpp"

#include <bit>

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

Index best_cut(const double* histogram, Index cuts, const double* start, const double* all, double least,
               double* best) {
    // The sums of the bins up to each cut, from the beginning of its block: blocks do not wait for each other.
    double g[BINS], h[BINS], score[BINS];
    for (Index first = 0; first < cuts; first += LANES) {
        Lanes<double, 2> pair(0.0);
        const Index last = first + LANES < cuts ? first + LANES : cuts;
        for (Index b = first; b < last; ++b) {
            pair += load<2>(histogram + 2 * b);
            g[b] = pair[0], h[b] = pair[1];
        }
    }
    const Index end = padded(cuts);
    double sum_g = start[0], sum_h = start[1];  // of the blocks before
    const Lanes<double> total_g(all[0]), total_h(all[1]), lambda(LAMBDA), low(least * (1.0 - TIE) + LAMBDA), none(0.0);
    Lanes<double> top(0.0);
    for (Index b = 0; b < end; b += LANES) {
        for (Index k = cuts; k < b + LANES; ++k) g[k] = h[k] = INFINITY;  // no cut: never the best
        const Lanes<double> gl = load(g + b) + Lanes<double>(sum_g), gr = total_g - gl;
        const Lanes<double> below = load(h + b) + Lanes<double>(sum_h), hl = below + lambda;
        const Lanes<double> hr = total_h - below + lambda;
        const Lanes<double> both = (gl * gl * hr + gr * gr * hl) / (hl * hr);
        const Lanes<double> allowed = choose(hl > low, choose(hr > low, both, none), none);
        store(allowed, score + b);
        top = larger(allowed, top);
        sum_g += g[b + LANES - 1], sum_h += h[b + LANES - 1];
    }
    double found = 0.0;
    for (int k = 0; k < LANES; ++k) found = larger(found, top[k]);
    if (!(found > *best * (1.0 + TIE))) return -1;
    *best = found;
    Index at = 0;
    while (score[at] < found * (1.0 - TIE)) ++at;
    return at;
}

void subtract(double* x, const double* y, Index n) {
    for (Index k = 0; k < n; ++k) x[k] -= y[k];
}

void bin_rows(Matrix<const double> cells, Matrix<const double> cuts, Matrix<std::uint8_t> bins) {
    for (Index i = 0; i < cells.rows; ++i)
        for (Index j = 0; j < cells.cols; ++j) {
            const double x = cells(i, j), *cut = cuts[j];
            Index bin = x == x ? 1 : 0;
            for (Index k = 0; k < BINS; ++k) bin += static_cast<Index>(x > cut[k]);
            bins(i, 2 * j) = static_cast<std::uint8_t>(bin), bins(i, 2 * j + 1) = static_cast<std::uint8_t>(bin - 1);
        }
}

void add_tree(const Trees& trees, Index t, Matrix<const std::uint8_t> bins, Matrix<double> sums,
              Matrix<std::int32_t> leaves) {
    const std::int32_t* place = trees.place[t];
    const std::uint8_t* limit = trees.limit[t];
    const double* value = trees.value[t];
    for_leaves(place, limit, bins.rows, [&](Index i) { return bins[i]; }, [&](Index i, Index leaf) {
        sums(i, 0) += value[leaf];
        leaves(i, 0) = static_cast<std::int32_t>(leaf - INNER);
    });
}

// exp(x) with a relative error of about 1e-15, in a form that compilers turn into vectors. With x = n log 2 + r, it is the
// series of exp(r) times 2^n. Adding NEAREST rounds n and leaves it in the last bits.
inline double fast_exp(double x) {
    constexpr double BITS = 1.4426950408889634, NEAREST = 6755399441055744.0;  // 1.5 * 2^52
    constexpr double HIGH = 6.93145751953125e-1, LOW = 1.42860682030941723212e-6;  // of log 2; n HIGH is exact
    constexpr double ONE_OVER[] = {1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 5, 1.0 / 6, 1.0 / 7, 1.0 / 8,
                                   1.0 / 9, 1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13};
    const double inside = clipped(x, -700.0, 700.0), shifted = inside * BITS + NEAREST, n = shifted - NEAREST;
    const double r = (inside - n * HIGH) - n * LOW;
    double sum = 1.0;
    for (int k = 11; k >= 0; --k) sum = 1.0 + r * ONE_OVER[k] * sum;
    sum = 1.0 + r * sum;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) + (std::bit_cast<std::uint64_t>(shifted) << 52));
}

void logistic(const double* margin, const double* y, const double* weight, Index n, Sum* out) {
    for (Index i = 0; i < n; ++i) {
        const double p = 1.0 / (1.0 + fast_exp(-margin[i]));
        out[i] = {weight[i] * (p - y[i]), weight[i] * (p * (1.0 - p))};
    }
}

}  // namespace

extern const ForestLoops forest_loops{best_cut, subtract, bin_rows, add_tree, logistic};

}  // namespace robustfd::RFD_LEVEL

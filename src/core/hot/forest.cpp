#include "forest.hpp"

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr Index RUNS = 4;  // of bins whose sums do not wait for each other

Index best_cut(const double* histogram, Index cuts, const double* start, const double* all, double least,
               double* best) {
    double g[BINS], h[BINS], score[BINS];
    double sum_g[RUNS] = {start[0]}, sum_h[RUNS] = {start[1]};
    const Index run = (cuts + RUNS - 1) / RUNS;
    for (Index i = 0; i < run; ++i)
        for (Index r = 0; r < RUNS; ++r) {
            const Index b = r * run + i;
            if (b < cuts) g[b] = sum_g[r] += histogram[2 * b], h[b] = sum_h[r] += histogram[2 * b + 1];
        }
    for (Index r = 1; r < RUNS; ++r) {
        sum_g[r] += sum_g[r - 1], sum_h[r] += sum_h[r - 1];
        for (Index b = r * run; b < (r + 1) * run && b < cuts; ++b) g[b] += sum_g[r - 1], h[b] += sum_h[r - 1];
    }
    const Index end = padded(cuts);
    for (Index b = cuts; b < end; ++b) g[b] = all[0], h[b] = all[1];  // no row on the right: never the best
    const Lanes<double> total_g(all[0]), total_h(all[1]), lambda(LAMBDA), low(least * (1.0 - TIE) + LAMBDA), none(0.0);
    Lanes<double> top(0.0);
    for (Index b = 0; b < end; b += LANES) {
        const Lanes<double> gl = load(g + b), gr = total_g - gl, hl = load(h + b) + lambda;
        const Lanes<double> hr = total_h - load(h + b) + lambda;
        const Lanes<double> both = (gl * gl * hr + gr * gr * hl) / (hl * hr);
        const Lanes<double> allowed = choose(hl > low, choose(hr > low, both, none), none);
        store(allowed, score + b);
        top = larger(allowed, top);
    }
    double found = 0.0;
    for (int k = 0; k < LANES; ++k) found = larger(found, top[k]);
    if (!(found > *best * (1.0 + TIE))) return -1;
    *best = found;
    Index at = 0;
    while (score[at] < found * (1.0 - TIE)) ++at;
    return at;
}

void add_values(const Trees& trees, const std::int32_t* column, const double* rows, Index width, Matrix<double> sums,
                Matrix<std::int32_t> leaves) {
    for (Index t = 0; t < trees.place.rows; ++t) {
        const std::int32_t* place = trees.place[t];
        const double *cut = trees.cut[t], *value = trees.value[t];
        for (Index i = 0; i < sums.rows; ++i) {
            const double* x = rows + i * width;
            Index node = 0;
            for (Index level = 0; level < DEPTH; ++level) node = 2 * node + 1 + (x[place[node]] > cut[node] ? 1 : 0);
            sums(i, column[t]) += value[node];
            leaves(i, t) = static_cast<std::int32_t>(node - INNER);
        }
    }
}

}  // namespace

extern const ForestLoops forest_loops{best_cut, add_values};

}  // namespace robustfd::RFD_LEVEL

// The three forms of the Hessian. Each fills the margins of its experts and, unless rows are only read, their
// kappa = x'H^-1 x; takes their steps; and follows a feature whose unit or centre changes.
#pragma once

#include "mixture.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

// What a row is for: its prediction, its prediction and variance, or a step.
enum class Use { read, doubt, learn };

// Numbers that describe a row in the units of the features.
struct Row {
    Index size;         // number of entries
    double norm;        // factor of the row for experts that divide each row by its own length
    double length;      // factor of the row for linear experts
    double curve;       // factor of the row in the Hessians
    double slow, fast, flat;  // x'H^-1 x for the diagonal Hessians
    double unseen;      // the part of x'H^-1 x of features that have not occurred, whose H is the prior
    double fresh;       // the sum of zeta^2 of these features

    double factor(bool linear) const { return linear ? length : norm; }
};

// Set the kappa of experts first to last - 1: `length` for linear experts and `norm` for the others.
inline void set_kappa(const Experts& e, const Work& work, Index first, Index last, double norm, double length) {
    const double* linear = e.linear.data();
    for (Index k = first; k < last; ++k) work.kappa[k] = larger(linear[k] > 0.0 ? length : norm, 1e-300);
}

// Call see(place, number, linear) for the experts first to first + L - 1 of each output: `place` counts them, and
// `number` is the place of the expert in arrays (outputs, experts).
template <class See> RFD_INLINE void for_experts(const Experts& e, Index first, See see) {
    const Index count = e.count(), n = e.experts(), outputs = e.outputs();
    const double* linear = e.linear.data() + first;
    if (e.targets[0].numbers) {  // all are linear, and without the choice the loop is vectorised
        for (Index c = 0; c < outputs; ++c)
            for (Index k = 0; k < count; ++k) see(c * count + k, c * n + first + k, true);
        return;
    }
    for (Index c = 0; c < outputs; ++c)
        for (Index k = 0; k < count; ++k) see(c * count + k, c * n + first + k, linear[k] > 0.0);
}

// Set y[0 .. n - 1] to the sum of scale[e] x[which[e], ...] over e < rows, from `first` on for blocks of V vectors of N
// that fit; return where the next block begins. A block stays in registers, and wide blocks read longer parts of each
// row at once.
template <int V, Index N, class T>
RFD_INLINE Index sum_blocks(T* __restrict y, const T* __restrict x, Index width, const Index* which,
                            const double* scale, Index rows, Index first, Index n) {
    for (; first + V * N <= n; first += V * N) {
        Lanes<T, N> total[V];
        for (int v = 0; v < V; ++v) total[v] = Lanes<T, N>(T(0));
        for (Index e = 0; e < rows; ++e) {
            const T* row = x + which[e] * width + first;
            const Lanes<T, N> factor(static_cast<T>(scale[e]));
            for (int v = 0; v < V; ++v) total[v] += load<N>(row + v * N) * factor;
        }
        for (int v = 0; v < V; ++v) store(total[v], y + first + v * N);
    }
    return first;
}

template <class T>
RFD_INLINE void sum_rows(T* __restrict y, const T* __restrict x, Index width, const Index* which, const double* scale,
                         Index rows, Index n) {
    constexpr Index LONG = std::is_same_v<T, float> ? FLOATS : LANES;
    Index first = sum_blocks<4, LONG>(y, x, width, which, scale, rows, 0, n);
    first = sum_blocks<2, LONG>(y, x, width, which, scale, rows, first, n);
    first = sum_blocks<1, LONG>(y, x, width, which, scale, rows, first, n);
    if constexpr (LONG > LANES) first = sum_blocks<1, LANES>(y, x, width, which, scale, rows, first, n);
    for (; first < n; ++first) {
        T total(0);
        for (Index e = 0; e < rows; ++e) total += x[which[e] * width + first] * static_cast<T>(scale[e]);
        y[first] = total;
    }
}

// ---------------------------------------------------------------------------------------------------- diagonal
//
// H_j = P_j + the sum of c^2 f^2 zeta_j^2, over all rows (slow) or over recent rows (fast). The cost depends only on
// the non-zeros of a row. Sixteen float weights of a feature fill one cache line.

// The two memories of the intercept.
inline double past_of_intercept(const Experts& e, int memory) {
    const Feature& own = e.table[0];
    return own.prior + (memory == 0 ? own.slow : own.fast * e.totals[0].fade);
}

template <Use use> void diagonal_margins(const Experts& e, const Row& row, const Work& work) {
    const Index width = e.weights.shape(1), count = e.count();
    sum_rows(work.sums, e.weights.data(), width, work.feature, work.value, row.size, width);
    for (int memory = 0; memory < 2; ++memory) {
        const Index first = memory * count;
        if constexpr (use != Use::read) {
            const double intercept = INTERCEPT * INTERCEPT / past_of_intercept(e, memory);
            const double kappa = (memory == 0 ? row.slow : row.fast) + row.unseen;
            set_kappa(e, work, first, first + count, row.norm * row.norm * kappa + intercept,
                      row.length * row.length * kappa + intercept);
        }
        const float *sums = work.sums + memory * (width / 2), *own = e.weights.data() + memory * (width / 2);
        double* margin = work.margin;
        for_experts(e, first, [=](Index i, Index at, bool linear) {
            margin[at] = row.factor(linear) * static_cast<double>(sums[i]) + INTERCEPT * static_cast<double>(own[i]);
        });
    }
}

// Add `slow` times the first half of x, and `fast` times the other half, to y. Both are one vector where it is long
// enough.
template <Index FIXED> RFD_INLINE void add_steps(float* __restrict y, const float* x, Index half, float slow, float fast) {
    if constexpr (2 * FIXED == FLOATS) {
        alignas(64) static constexpr float PLACES[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        const Floats factor = choose(load<FLOATS>(PLACES) > Floats(FIXED - 0.5f), Floats(fast), Floats(slow));
        store(load<FLOATS>(y) + factor * load<FLOATS>(x), y);
    } else {
        const Lanes<float> factors[2] = {Lanes<float>(slow), Lanes<float>(fast)};
        for (const Lanes<float>& factor : factors)
            for (Index k = 0; k < half; k += LANES, y += LANES, x += LANES) store(load(y) + factor * load(x), y);
    }
}

// Take the steps of all features but the intercept. With `record`, also update the statistics of features that are not
// centred, list those in work.due whose scales are due for an update, and return their number. FIXED is half of the width
// of the weights if it is known, else 0.
template <Index FIXED> Index step_entries(Experts& e, const Row& row, const Work& work, double c2, bool record) {
    const Index half = FIXED > 0 ? FIXED : e.weights.shape(1) / 2;
    const double f2 = c2 * row.curve * row.curve, faded = f2 / e.totals[0].fade;
    const Index centred = e.centred.size();
    Index due = 0;
    if (record && centred < row.size) record_values(work, row.size);
    for (Index i = 0; i < row.size; ++i) {
        const Index j = work.feature[i];
        Feature& known = e.table[j];
        if (const double zeta = work.value[i]; zeta != 0.0) {
            add_steps<FIXED>(e.weights.data() + j * 2 * half, work.sums, half, static_cast<float>(work.step_slow[i]),
                             static_cast<float>(work.step_fast[i]));
            known.slow += f2 * zeta * zeta;
            known.fast += faded * zeta * zeta;
        }
        if (!record || i < centred || work.raw[i] != work.raw[i]) continue;
        known.count = work.count[i];
        known.square = work.square[i];
        if (is_due(known.count, known.square, work.moved[i])) work.due[due++] = j;
    }
    return due;
}

// Take the steps, and add the curvature c2 of the row to the Hessians; the rest is as in `step_entries`.
inline Index diagonal_steps(Experts& e, const Row& row, const Work& work, double c2, bool record) {
    const Index width = e.weights.shape(1), half = width / 2;
    const double fade = e.totals[0].fade;
    float* weights = e.weights.data();
    for (int memory = 0; memory < 2; ++memory) {
        const double inverse = INTERCEPT / past_of_intercept(e, memory), *step = work.step;
        float *sums = work.sums + memory * half, *own = weights + memory * half;
        for_experts(e, memory * e.count(), [=](Index i, Index at, bool linear) {
            sums[i] = static_cast<float>(row.factor(linear) * step[at]);
            own[i] += static_cast<float>(inverse * step[at]);
        });
    }
    Feature& own = e.table[0];
    own.slow += c2 * INTERCEPT * INTERCEPT;
    own.fast += c2 * INTERCEPT * INTERCEPT / fade;
    return half == LANES ? step_entries<LANES>(e, row, work, c2, record) : step_entries<0>(e, row, work, c2, record);
}

inline void diagonal_move_centre(Experts& e, Index j, double norm, double length) {
    const Index width = e.weights.shape(1);
    for (Index memory = 0; memory < 2; ++memory) {
        float *own = e.weights.data() + memory * (width / 2), *mine = own + j * width;
        for_experts(e, memory * e.count(), [=](Index i, Index, bool linear) {
            own[i] += static_cast<float>((linear ? length : norm) * static_cast<double>(mine[i]));
        });
    }
}

// ------------------------------------------------------------------------------------------------------- exact
//
// For few features: H = f diag(P) + the sum of c^2 x x', and its inverse, which `Experts::renew_exact` updates now and
// then. In between it stays fixed: the steps differ little from those with an up-to-date Hessian, and a row costs one
// matrix-vector product. There is one inverse for each f of a ladder: in directions in which the rows vary little, the
// best prior differs by orders of magnitude between data sets.

// Fill kappa of the experts of a rung.
inline void exact_kappa(const Experts& e, const Row& row, const Work& work, Index rung, Index first) {
    const double* inverse = e.inverse.plane(rung).data;
    double *g = work.direction[rung], kappa = row.unseen;  // g = H^-1 zeta
    sum_rows(g, inverse, e.block.shape(1), work.feature, work.value, row.size, e.block.shape(1));
    for (Index i = 0; i < row.size; ++i) kappa += work.value[i] * g[work.feature[i]];
    const double cross = 2.0 * INTERCEPT * g[0], own = INTERCEPT * INTERCEPT * inverse[0];
    set_kappa(e, work, first, first + e.count(), own + row.norm * (cross + row.norm * kappa),
              own + row.length * (cross + row.length * kappa));
}

template <Use use> void exact_margins(const Experts& e, const Row& row, const Work& work) {
    const Index width = e.exact_weights.shape(1), count = e.count();
    const double* weights = e.exact_weights.data();
    double *sums = work.better[0], *margin = work.margin;
    sum_rows(sums, weights, width, work.feature, work.value, row.size, width);
    for (Index rung = 0; rung < e.rungs(); ++rung) {
        const Index first = e.plain_experts() + rung * count, start = rung * e.outputs() * count;
        if constexpr (use != Use::read) exact_kappa(e, row, work, rung, first);
        for_experts(e, first, [=](Index i, Index at, bool linear) {
            margin[at] = row.factor(linear) * sums[start + i] + INTERCEPT * weights[start + i];
        });
    }
}

// Add u[i] x[k] + v[i] z[k] to y[i, k] for all i < rows and k < n.
RFD_INLINE void add_outers(double* y, Index width, const double* u, const double* x, const double* v, const double* z,
                           Index rows, Index n) {
    Index k = 0;
    for (; k + LANES <= n; k += LANES) {
        const Lanes<double> xs = load(x + k), zs = load(z + k);
        for (Index i = 0; i < rows; ++i) {
            double* there = y + i * width + k;
            store(xs * Lanes<double>(u[i]) + (zs * Lanes<double>(v[i]) + load(there)), there);
        }
    }
    for (; k < n; ++k)
        for (Index i = 0; i < rows; ++i) y[i * width + k] = x[k] * u[i] + (z[k] * v[i] + y[i * width + k]);
}

// Add scale x[i] x[k] to y[i, k] for all k <= i < n, where x is the row with its intercept; some entries above the
// diagonal change as well. The rows of y are padded to whole vectors.
inline void add_dense_square(double* y, Index width, double scale, const Row& row, const Work& work, Index n) {
    double* x = work.direction[MOST_RUNGS];
    for (Index i = 0; i < width; ++i) x[i] = 0.0;
    x[0] = INTERCEPT;
    for (Index i = 0; i < row.size; ++i) x[work.feature[i]] = row.curve * work.value[i];
    for (Index first = 0; first < n; first += LANES) {
        const Lanes<double> xs = load(x + first);
        for (Index i = first; i < n; ++i) {
            double* there = y + i * width + first;
            store(xs * Lanes<double>(scale * x[i]) + load(there), there);
        }
    }
}

// The same for a row with few entries, entry by entry.
inline void add_sparse_square(double* y, Index width, double scale, const Row& row, const Work& work) {
    y[0] += INTERCEPT * (scale * INTERCEPT);
    for (Index i = 0; i < row.size; ++i) {
        const Index j = work.feature[i];
        const double x = row.curve * work.value[i];
        y[j * width] += INTERCEPT * (scale * x);
        for (Index k = 0; k <= i; ++k) {
            const Index other = work.feature[k];
            const double z = row.curve * work.value[k];
            if (j >= other)
                y[j * width + other] += z * (scale * x);
            else
                y[other * width + j] += x * (scale * z);
        }
    }
}

inline void exact_steps(Experts& e, const Row& row, const Work& work, double c2) {
    const Index width = e.exact_weights.shape(1), size = e.block.shape(0), wide = e.block.shape(1);
    const Index count = e.count(), outputs = e.outputs();
    double *steps = work.better[1], *scaled = work.better[2], *step = work.step;
    for (Index rung = 0; rung < e.rungs(); ++rung) {
        for_experts(e, e.plain_experts() + rung * count, [=](Index i, Index at, bool linear) {
            steps[i] = INTERCEPT * step[at];
            scaled[i] = row.factor(linear) * step[at];
        });
        add_outers(e.exact_weights.data() + rung * outputs * count, width, work.direction[rung], scaled,
                   e.inverse.plane(rung).data, steps, size, outputs * count);
    }
    if (4 * row.size < size)
        add_sparse_square(e.block.data(), wide, c2, row, work);
    else
        add_dense_square(e.block.data(), wide, c2, row, work, size);
}

inline void exact_rescale(Experts& e, Index j, double change) {
    const Index size = e.block.shape(0);
    const Matrix<double> block = e.block.matrix();
    for (Index i = 0; i < size; ++i) {
        block(j, i) /= change;
        block(i, j) /= change;
        for (Index memory = 0; memory < e.past.shape(0); ++memory) {
            const Matrix<double> past = e.past.plane(memory);
            past(j, i) /= change;
            past(i, j) /= change;
        }
        for (Index rung = 0; rung < e.rungs(); ++rung) {
            const Matrix<double> inverse = e.inverse.plane(rung);
            inverse(j, i) *= change;
            inverse(i, j) *= change;
        }
    }
    double* mine = e.exact_weights.matrix()[j];
    for (Index k = 0; k < e.exact_weights.shape(1); ++k) mine[k] *= change;
}

inline void exact_move_centre(Experts& e, Index j, double norm, double length) {
    for (Index rung = 0; rung < e.rungs(); ++rung) {
        double* own = e.exact_weights.data() + rung * e.outputs() * e.count();
        const double* mine = own + j * e.exact_weights.shape(1);
        for_experts(e, e.plain_experts() + rung * e.count(),
                    [=](Index i, Index, bool linear) { own[i] += (linear ? length : norm) * mine[i]; });
    }
}

// ------------------------------------------------------------------------------------------ diagonal plus sketch
//
// H = D + B'B, for many features that are correlated. B is a Frequent Directions sketch of the rows c x. D holds the
// prior plus the part of the exact diagonal that B misses. H stays fixed between updates (learners/hessian.py). With
// U = (I + B D^-1 B')^-1/2 B D^-1
//
//     H^-1 = D^-1 - U'U,   x'H^-1 x = x'D^-1 x - |U x|^2
//
// A step moves the weights along D^-1 x, which has the non-zeros of x, and along U'U x. The latter is stored as
// coefficients of the rows of U: w = a + U'b. So a row costs O(m) for each of its non-zeros. On a long stream only a
// random sample of the rows is added to the sketch, weighted to stand for the skipped rows, so the sketch costs little.

constexpr Index ALL = 256;  // so many of the first rows are all sketched, and as many of each doubling after them

// The weight with which row number `row` (from 0) is sketched, or 0 if it is skipped.
inline Index times_sketched(Index row) {
    const auto stride = static_cast<std::uint64_t>(row / ALL + 1);
    std::uint32_t mixed = static_cast<std::uint32_t>(row) * 2654435761u;
    mixed = (mixed ^ (mixed >> 15)) * 2246822519u;
    return (mixed ^ (mixed >> 13)) % stride == 0 ? static_cast<Index>(stride) : 0;
}

// D of feature j. A feature that has occurred for the first time since the last update has its prior.
inline double sketch_diagonal(const Experts& e, Index j) {
    const double known = e.diagonal[j];
    return known == 0.0 ? e.table[j].prior : known;
}

// Fill kappa, after U x for both scalings of the row.
inline void sketch_kappa(const Experts& e, const Row& row, const Work& work, Index first) {
    double inside = row.unseen, turned[2];
    for (Index i = 0; i < row.size; ++i) {
        const double zeta = work.value[i];
        if (zeta != 0.0) inside += zeta * zeta / sketch_diagonal(e, work.feature[i]);
    }
    for (int kind = 0; kind < 2; ++kind) turned[kind] = dot(work.direction[kind], work.direction[kind], e.lam.size());
    const double intercept = e.diagonal[0] > 0.0 ? INTERCEPT * INTERCEPT / e.diagonal[0] : 0.0;
    set_kappa(e, work, first, first + e.count(), intercept + row.norm * row.norm * inside - turned[0],
              intercept + row.length * row.length * inside - turned[1]);
}

template <Use use> void sketch_margins(const Experts& e, const Row& row, const Work& work) {
    const Index rows = e.lam.size(), width = e.low_weights.shape(1), first = e.plain_experts();
    double *along = work.direction[2], *sums = work.better[0];
    sum_rows(along, e.u.data(), rows, work.feature, work.value, row.size, rows);
    sum_rows(sums, e.low_weights.data(), width, work.feature, work.value, row.size, width);
    double* direction[2] = {work.direction[0], work.direction[1]};  // U x, for both scalings of the row
    for (Index i = 0; i < rows; ++i) {
        direction[0][i] = INTERCEPT * e.u[i] + row.norm * along[i];
        direction[1][i] = INTERCEPT * e.u[i] + row.length * along[i];
    }
    if constexpr (use != Use::read) sketch_kappa(e, row, work, first);
    double* more[2] = {work.better[1], work.better[2]};  // b'U x
    for (int kind = 0; kind < 2; ++kind) {
        for (Index i = 0; i < width; ++i) more[kind][i] = 0.0;
        for (Index i = 0; i < rows; ++i)
            add_multiple(more[kind], e.along.data() + i * width, direction[kind][i], width);
    }
    for_experts(e, first, [&](Index i, Index at, bool linear) {
        work.margin[at] = row.factor(linear) * sums[i] + INTERCEPT * e.low_weights[i] + more[linear ? 1 : 0][i];
    });
}

// Take the steps, and add row `number` of curvature c2 to the buffer if it is sampled.
inline void sketch_steps(Experts& e, const Row& row, const Work& work, double c2, Index number) {
    const Index rows = e.lam.size(), width = e.low_weights.shape(1);
    const double own = e.diagonal[0] > 0.0 ? INTERCEPT / e.diagonal[0] : 0.0;
    double *scaled = work.better[0], *steps[2] = {work.better[1], work.better[2]};
    for_experts(e, e.plain_experts(), [&](Index i, Index at, bool linear) {
        const double step = work.step[at];
        scaled[i] = step * row.factor(linear);
        e.low_weights[i] += own * step;
        steps[0][i] = linear ? 0.0 : step;
        steps[1][i] = linear ? step : 0.0;
    });
    for (Index i = 0; i < rows; ++i)
        for (int kind = 0; kind < 2; ++kind)
            add_multiple(e.along.data() + i * width, steps[kind], -work.direction[kind][i], width);
    for (Index i = 0; i < row.size; ++i) {
        const Index j = work.feature[i];
        const double zeta = work.value[i];
        if (zeta == 0.0) continue;
        e.diagonal[j] = sketch_diagonal(e, j);
        if (e.diagonal[j] > 0.0) add_multiple(e.low_weights.data() + j * width, scaled, zeta / e.diagonal[j], width);
    }
    const Index times = times_sketched(number);
    if (times > 0 && c2 > 0.0) {
        double* target = e.buffer.matrix()[e.filled[0]];
        const double x = sqrt(c2 * static_cast<double>(times));
        e.filled[0] += 1;
        target[0] = INTERCEPT * x;
        for (Index i = 0; i < row.size; ++i) target[work.feature[i]] = row.curve * x * work.value[i];
    }
}

inline void sketch_rescale(Experts& e, Index j, double change) {
    e.diagonal[j] /= change * change;
    const Matrix<double> u = e.u.matrix(), sketch = e.sketch.matrix(), buffer = e.buffer.matrix();
    for (Index i = 0; i < e.lam.size(); ++i) {
        u(j, i) *= change;
        sketch(i, j) /= change;
    }
    for (Index i = 0; i < e.filled[0]; ++i) buffer(i, j) /= change;
    double* mine = e.low_weights.matrix()[j];
    for (Index k = 0; k < e.low_weights.shape(1); ++k) mine[k] *= change;
}

inline void sketch_move_centre(Experts& e, Index j, double norm, double length) {
    const Matrix<double> weights = e.low_weights.matrix(), u = e.u.matrix(), along = e.along.matrix();
    for_experts(e, e.plain_experts(), [&](Index i, Index, bool linear) {
        double w = weights(j, i);
        for (Index r = 0; r < e.lam.size(); ++r) w += u(j, r) * along(r, i);
        weights(0, i) += (linear ? length : norm) * w;
    });
}

}  // namespace

}  // namespace robustfd::RFD_LEVEL

#include "block.hpp"

#include "blas.hpp"
#include "eigen.hpp"
#include "lanes.hpp"
#include "progress.hpp"
#include "eigen.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double LARGE = 1e50;  // numbers below this, and above its inverse, are far from overflow and underflow
// For a single row, or for a B with this few rows, loops are faster than a matrix product.
constexpr Index FEW_ROWS = 16;

// The eigenvalue of the matrix that divides gradients, where H has lam + alpha.
double root_of(Root root, double lam, double alpha) {
    if (root == Root::NONE) return lam + alpha;
    return root == Root::OF_SUM ? sqrt(lam + alpha) : sqrt(lam) + alpha;
}

// The weight of (b'x)^2 that N subtracts, for a row b of B of squared length lam.
double n_weight(Root root, double lam, double alpha, bool careful) {
    if (careful && lam > alpha) return 1.0 / lam;
    double total = root_of(root, lam, alpha);
    if (root == Root::OF_SUM) total *= total + sqrt(alpha);  // (1 - a/h) / lam without cancellation
    if (root == Root::OF_SKETCH) total *= sqrt(lam);
    return total > 0.0 ? 1.0 / total : 0.0;
}

// The weight of that term in K: zero unless alpha is small and below lam.
double k_weight(Root root, double lam, double alpha, bool careful) {
    return careful && lam > alpha ? 1.0 / root_of(root, lam, alpha) : 0.0;
}

// The bound below which n is rounding error, for a row with this squared length and z = B x. The error of an
// eigenvector after a shrink by delta is relative to the largest eigenvalue, so eigenvectors of small eigenvalues are
// less precise.
double round_off(const Block& block, double squares, const double* z) {
    const double *lam = block.lam, delta = block.state.delta;
    double total = squares;
    for (Index b = 0; b < block.r; ++b)
        if (lam[b] > block.state.alpha) total += (z[b] / lam[b]) * z[b] * ((lam[0] + delta) / (lam[b] + delta));
    return larger(INDEPENDENT * squares, 4.0 * EPS * static_cast<double>(block.size) * total);
}

// ------------------------------------------------------------------------------------------------- beginning of rows

// Fill column i of n, if K and N are not separate.
void begin_row(const Block& block, Index i) {
    const Index r = block.r;
    double* scaled = block.scratch;
    for (Index b = 0; b < r; ++b)
        scaled[b] = block.products(i, 1 + b) * n_weight(block.settings.root, block.lam[b], block.state.alpha, false);
    for (Index j = 0; j <= i; ++j) block.n(j, i) = block.gram(i, j) - dot(scaled, block.products[j] + 1, r);
}

// Fill `out` (last - first, last) with the products of rows of Z, scaled by the square roots of the weights.
void scaled_products(const Block& block, Index first, Index last, bool of_k, Matrix<double> out) {
    const Index r = block.r;
    const BlockState& state = block.state;
    const Root root = block.settings.root;
    const Matrix<double> scaled(block.scratch, last, r);
    double* factor = out.data;  // overwritten below, after its use
    for (Index b = 0; b < r; ++b) {
        factor[b] = sqrt(n_weight(root, block.lam[b], state.alpha, state.careful));
        if (of_k) factor[b] *= sqrt(k_weight(root, block.lam[b], state.alpha, state.careful));
    }
    for (Index i = 0; i < last; ++i)
        for (Index b = 0; b < r; ++b) scaled(i, b) = factor[b] * block.products(i, 1 + b);
    gemm(false, true, 1.0, {scaled[first], last - first, r, r}, scaled, 0.0, out);
}

void begin_rows(const Block& block, Index first, Index last) {
    const BlockState& state = block.state;
    const bool undecided = state.shrinks == 0 && state.rank == 0;  // the first row decides whether to be careful
    if (undecided)  // then B = 0 and K = 0
        for (Index i = first; i < last; ++i) {
            for (Index j = 0; j <= i; ++j) block.k(j, i) = 0.0;
            block.rows[i].rounding = 0.0;
        }
    if (!state.careful && (last - first == 1 || block.r <= FEW_ROWS)) {
        for (Index i = first; i < last; ++i) begin_row(block, i);
        return;
    }
    const Matrix<double> start(block.scratch + block.size * block.r, last - first, last);
    scaled_products(block, first, last, false, start);
    for (Index i = first; i < last; ++i)
        for (Index j = 0; j <= i; ++j) block.n(j, i) = block.gram(i, j) - start(i - first, j);
    if (!state.careful) return;
    scaled_products(block, first, last, true, start);
    for (Index i = first; i < last; ++i) {
        for (Index j = 0; j <= i; ++j) block.k(j, i) = start(i - first, j);
        block.rows[i].rounding = round_off(block, block.gram(i, i), block.products[i] + 1);
    }
}

// ------------------------------------------------------------------------------------------------- steps

// Apply the earlier rows of the block to column i of N, and of K if used; return the margin of row i.
double apply_earlier_rows(const Block& block, Index i) {
    const BlockState& state = block.state;
    double p = state.factor * block.products(i, 0);
    // Contiguous copies of column i, since the loops below run along rows.
    double *ki = block.scratch, *ni = block.scratch + block.size;
    for (Index j = 0; j <= i; ++j) ni[j] = block.n(j, i);
    if (state.careful)
        for (Index j = 0; j <= i; ++j) ki[j] = block.k(j, i);
    for (Index j = 0; j < i; ++j) {
        const Effect& row = block.rows[j];
        double *nj = block.n[j], z = ni[j];
        nj[i] = z;
        p -= row.step * row.along_n * z;
        const double z_n = row.one_n * z;
        add_multiple(ni + j + 1, static_cast<const double*>(nj + j + 1), -z_n, i - j);
        if (!state.careful) continue;
        double *kj = block.k[j], x = ki[j];
        kj[i] = x;
        p -= row.step * row.along_k * x;
        const double coef_k = row.kk * x + row.kn * z, coef_n = row.kn * x + row.nn * z_n;
        for (Index l = j + 1; l <= i; ++l) ki[l] += coef_k * kj[l] + coef_n * nj[l];
    }
    block.n(i, i) = larger(ni[i], 0.0);
    if (state.careful) block.k(i, i) = larger(ki[i], 0.0);
    return p;
}

// Set the direction of the step of row i; return by how much a unit step lowers its margin. Afterwards n[i, i] is the
// squared length of the part of the row outside the span, or 0 if the row is inside.
double find_direction(const Block& block, Index i) {
    const BlockState& state = block.state;
    Effect& row = block.rows[i];
    double free = block.n(i, i), kappa = 0.0;
    if (state.careful) {
        kappa = block.k(i, i);
        if (free <= larger(row.rounding, INDEPENDENT * block.gram(i, i)) || state.span == block.features) free = 0.0;
    }
    block.n(i, i) = free;
    row.along_k = 1.0;
    row.along_n = 0.0;
    if (!(free > 0.0)) return kappa;
    const double base = root_of(block.settings.root, 0.0, state.alpha);
    row.along_n = 1.0 / (base * kappa + free);
    row.along_k = base * row.along_n;
    return 1.0;
}

// Set the effect of a row on later rows, which has c^2 = row.c2; return its move, for the gradient g x.
double set_effect(Effect& row, double g, double kappa, double free, double alpha, bool careful) {
    const double c2 = row.c2, inside = 1.0 + c2 * kappa;
    if (free == 0.0) {
        row.kk = -c2 / inside;
        return g / inside;
    }
    if (!(c2 > 0.0 || alpha > 0.0)) return 0.0;  // c2 = 0: the curvature is zero or underflows
    const double divisor = alpha * inside + c2 * free;
    row.one_n = c2 / divisor;
    if (careful && c2 > 0.0) {
        row.one_n = 1.0 / free;
        row.nn = inside / divisor;
        row.kk = -c2 * alpha / divisor;
        row.kn = -c2 / divisor;
    }
    return g * ((alpha * kappa + free) / divisor);
}

// Take the step of row i and return its margin before the step.
double learn_row(const Block& block, Index i, double y, double weight) {
    const PaperSettings& settings = block.settings;
    BlockState& state = block.state;
    Effect& row = block.rows[i];
    double p = apply_earlier_rows(block, i);
    const double along = find_direction(block, i), bound = settings.bound;
    const double kappa = state.careful ? block.k(i, i) : 0.0, free = block.n(i, i);
    double step = 0.0;
    if (settings.projection == Projection::NEXT && fabs(p) > bound && along > 0.0) {
        step = (p - copysign(bound, p)) / along;
        p = copysign(bound, p);
    }
    const double slope = slope_at(settings, p, y), g = weight * slope, rate = rate_at(settings, state.seen + 1);
    const bool newton = settings.root == Root::NONE;
    const double c2 = newton ? weight * (settings.mu + rate) * slope * slope : g * g;
    row.c2 = c2;
    row.one_n = row.kk = row.kn = row.nn = 0.0;
    if (state.shrinks == 0 && state.rank == 0)  // the first row: there is no eigenvalue to compare alpha with yet
        state.careful = state.alpha <= SMALL_ALPHA * c2 * block.gram(i, i);
    if (free > 0.0 && c2 > 0.0) {
        state.rank += 1;
        state.span += 1;
    }
    state.seen += 1;
    if (settings.shrink_first && i + 1 == block.capacity()) {  // its step follows the shrink
        row.step = step;
        row.margin = p;
        row.gradient = newton ? g : rate * g;
        return p;
    }
    double move = set_effect(row, g, kappa, free, state.alpha, state.careful);
    const double q = p - move * along;
    if (settings.projection == Projection::CURRENT && fabs(q) > bound && along > 0.0)
        move += (q - copysign(bound, q)) / along;
    row.step = step + move;
    return p;
}

// Whether the squared length, label and weight of a row are neither huge nor tiny.
bool is_usual(double squares, double y, double weight) {
    return squares < LARGE && (squares == 0.0 || squares > 1.0 / LARGE) && fabs(y) < LARGE && 1.0 / LARGE < weight &&
           weight < LARGE;
}

// Whether the numbers of row i with margin p are far from overflow.
bool is_far_from_overflow(const Block& block, Index i, double p) {
    const Effect& row = block.rows[i];
    const bool calm = !block.state.careful || block.k(i, i) < LARGE;
    return calm && fabs(p) < LARGE && fabs(row.step) < LARGE && row.c2 < LARGE &&
           (row.c2 == 0.0 || row.c2 > 1.0 / LARGE);
}

Index step_rows(const Block& block, const Batch& batch, Index count) {
    BlockState& state = block.state;
    for (Index i = 0; i < count; ++i) {
        const Index place = state.filled;
        const double y = batch.y[i], weight = batch.weight[i], p = learn_row(block, place, y, weight);
        if (!is_usual(block.gram(place, place), y, weight)) state.extreme = EXTREME_ROWS;
        if (!is_far_from_overflow(block, place, p)) {
            if (state.extreme == SAFE) state.extreme = EXTREME_NUMBERS;
            if (!(fabs(p) < HUGE_VAL)) {
                state.overflowed = true;
                return i;
            }
        }
        state.filled += 1;
        batch.margins[i] = p;
        tally(batch.progress, block.settings.loss, p, y, weight);
    }
    return count;
}

// ------------------------------------------------------------------------------------------------- end of a block

// The change is the sum of a_j K x_j + o_j N x_j with the K and N of the beginning of the block. Go backwards from the
// last row, and express each row's K and N by those before it.
void collect_steps(const Block& block, double* scratch, double* coef_b, double* coef_x) {
    const BlockState& state = block.state;
    const Index filled = state.filled, r = block.r;
    const bool careful = state.careful;
    const Root root = block.settings.root;
    double *a = scratch, *o = scratch + filled;
    for (Index j = filled - 1; j >= 0; --j) {
        const Index later = filled - 1 - j;
        const double *kj = block.k[j] + j + 1, *nj = block.n[j] + j + 1;
        const double o_n = dot(o + j + 1, nj, later);
        const double a_k = careful ? dot(a + j + 1, kj, later) : 0.0, a_n = careful ? dot(a + j + 1, nj, later) : 0.0;
        const Effect& row = block.rows[j];
        a[j] = row.step * row.along_k + row.kk * a_k + row.kn * a_n;
        o[j] = row.step * row.along_n + row.kn * a_k + row.one_n * (row.nn * a_n - o_n);
    }
    for (Index b = 0; b < r; ++b) coef_b[b] = 0.0;
    for (Index j = 0; j < filled; ++j) {
        const double* own = block.products[j] + 1;
        add_multiple(coef_b, own, o[j], r);
        if (careful)
            for (Index b = 0; b < r; ++b) coef_b[b] -= a[j] * k_weight(root, block.lam[b], state.alpha, true) * own[b];
    }
    for (Index b = 0; b < r; ++b)
        coef_b[b] = coef_b[b] * n_weight(root, block.lam[b], state.alpha, careful) / state.factor;
    for (Index j = 0; j < filled; ++j) coef_x[j] = -o[j] / state.factor;
}

void form_stack(const Block& block, Index had, Matrix<double> stack, double* c) {
    for (Index i = 0; i < had; ++i) {
        for (Index j = 0; j < i; ++j) stack(i, j) = 0.0;
        stack(i, i) = block.lam[i];
    }
    for (Index i = 0; i < block.state.filled; ++i) {
        c[i] = sqrt(block.rows[i].c2);
        double *left = stack[had + i], *right = left + had;
        const double *own = block.products[i] + 1, *gram = block.gram[i];
        for (Index j = 0; j < had; ++j) left[j] = c[i] * own[j];
        for (Index j = 0; j <= i; ++j) right[j] = c[i] * c[j] * gram[j];
    }
}

void write_rows(const Block& block, const double* values, Matrix<const double> vectors, const double* c,
                const Change& change) {
    const Index filled = change.coef_x.cols, r = block.r, had = vectors.cols - filled;
    for (Index j = 0; j < r; ++j) {
        double *from_b = change.coef_b[1 + j], *from_x = change.coef_x[1 + j];
        for (Index i = 0; i < r; ++i) from_b[i] = 0.0;
        for (Index i = 0; i < filled; ++i) from_x[i] = 0.0;
        const double factor = block.lam[j] > 0.0 ? sqrt(block.lam[j] / values[j]) : 0.0;
        if (!(factor > 0.0)) continue;
        const double *left = vectors[j], *right = left + had;
        for (Index i = 0; i < had; ++i) from_b[i] = factor * left[i];
        for (Index i = 0; i < filled; ++i) from_x[i] = factor * right[i] * c[i];
    }
}

// The products of the last row x of the block with the new B; x'K x and x'N x after the shrink.
struct AfterShrink {
    double* b;
    double kappa, free;
};

AfterShrink find_after_shrink(const Block& block, const Change& change) {
    const BlockState& state = block.state;
    const Index last = state.filled - 1;
    const Root root = block.settings.root;
    const double squares = block.gram(last, last), *lam = block.lam;
    double *b = block.scratch, kappa = 0.0, free = squares;
    for (Index j = 0; j < block.r; ++j) {
        b[j] = dot(change.coef_b[1 + j], block.products[last] + 1, block.r) +
               dot(change.coef_x[1 + j], block.gram[last], last + 1);
        const double share = b[j] * n_weight(root, lam[j], state.alpha, state.careful) * b[j];
        free -= share;
        kappa += share * k_weight(root, lam[j], state.alpha, state.careful);
    }
    free = larger(free, 0.0);
    if (state.careful && (free <= round_off(block, squares, b) || state.span == block.features)) free = 0.0;
    return {b, kappa, free};
}

void step_after_shrink(const Block& block, const Change& change) {
    const PaperSettings& settings = block.settings;
    const BlockState& state = block.state;
    const Index last = state.filled - 1;
    const Effect& row = block.rows[last];
    const auto [b, kappa, free] = find_after_shrink(block, change);
    const double alpha = state.alpha, base = root_of(settings.root, 0.0, alpha);
    // The coefficients of K x and of N x.
    double coef_k = row.gradient, coef_n = alpha > 0.0 && (free > 0.0 || !state.careful) ? coef_k / base : 0.0;
    const double q = row.margin - coef_k * kappa - coef_n * free;
    if (settings.projection == Projection::CURRENT && fabs(q) > settings.bound) {
        double over = q - copysign(settings.bound, q);
        if (free > 0.0) {
            over /= base * kappa + free;
            coef_k += over * base;
            coef_n += over;
        } else if (kappa > 0.0) {
            coef_k += over / kappa;
        }
    }
    coef_k /= state.factor;
    coef_n /= state.factor;
    // Express the step in the new B and x, and the new B in the old B and X.
    for (Index j = 0; j < block.r; ++j) {
        // The order matters: the product of the first two factors grows with the fourth power of the rows and
        // overflows.
        const double c = (coef_n - coef_k * k_weight(settings.root, block.lam[j], alpha, state.careful)) *
                         (n_weight(settings.root, block.lam[j], alpha, state.careful) * b[j]);
        add_multiple(change.coef_b[0], static_cast<const double*>(change.coef_b[1 + j]), c, block.r);
        add_multiple(change.coef_x[0], static_cast<const double*>(change.coef_x[1 + j]), c, last + 1);
    }
    change.coef_x(0, last) -= coef_n;
}

// ------------------------------------------------------------------------------------------------- dense rows

bool add_thin_row(const Block& block, Matrix<const double> basis, Matrix<const double> rows) {
    const Index i = rows.rows - 1, d = rows.cols;
    const double* row = rows[i];
    double *products = block.products[i], *gram = block.gram[i];
    Index count = 0;
    for (Index e = 0; e < d; ++e) count += row[e] != 0.0;
    if (4 * count > d) return false;
    for (Index j = 0; j < basis.rows; ++j) products[j] = 0.0;
    for (Index j = 0; j <= i; ++j) gram[j] = 0.0;
    for (Index e = 0; e < d; ++e) {
        const double x = row[e];
        if (x == 0.0) continue;
        for (Index j = 0; j < basis.rows; ++j) products[j] += x * basis(j, e);
        for (Index j = 0; j <= i; ++j) gram[j] += x * rows(j, e);
    }
    return true;
}

}  // namespace

extern const BlockLoops block_loops{begin_rows,    step_rows,         collect_steps, form_stack, write_rows,
                                    step_after_shrink, add_thin_row};

}  // namespace robustfd::RFD_LEVEL

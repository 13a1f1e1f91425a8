// RP-SON and Oja-SON, as steps of the loop of row_loops.cpp. The weights are w = v + B'c.
#pragma once

#include "eigen.hpp"
#include "first_order.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr Index REFRESH = 1024;  // updated sums are recomputed after this many rows, or after d rows if that is more
constexpr double WORST = 1e-3;   // Y is orthonormalized again when a diagonal entry of F is below this,
constexpr double LONG = 100.0;   // and before a step whose squared length is above this

// ------------------------------------------------------------------------------------------------- both methods

// Fill b with B x and return v'x; set `square` to x'x.
template <class Row> double find_products(const Row& row, const RowArrays& w, double* b, double& square) {
    const Index m = w.basis.cols;
    double p = 0.0;
    square = 0.0;
    for (Index j = 0; j < m; ++j) b[j] = 0.0;
    for (Index k = 0; k < row.size; ++k) {
        const double x = row.values[k];
        p += w.v[row.column(k)] * x;
        square += x * x;
        add_multiple(b, static_cast<const double*>(w.basis[row.column(k)]), x, m);
    }
    return p;
}

// Replace B by B + q x' and keep w the same.
template <class Row> void change_basis(const Row& row, const RowArrays& w, const double* q) {
    const Index m = w.basis.cols;
    const double along_c = dot(q, w.c, m);
    for (Index k = 0; k < row.size; ++k) {
        const double x = row.values[k];
        w.v[row.column(k)] -= along_c * x;
        add_multiple(w.basis[row.column(k)], q, x, m);
    }
}

// Move w by -step (coef_x x + B' coef_b).
template <class Row> void move(const Row& row, const RowArrays& w, double step, double coef_x, const double* coef_b) {
    if (coef_x != 0.0 && step != 0.0)
        for (Index k = 0; k < row.size; ++k) w.v[row.column(k)] -= step * coef_x * row.values[k];
    for (Index j = 0; j < w.basis.cols; ++j) w.c[j] -= step * coef_b[j];
}

// Project w onto |w'x| <= bound in the norm of H, given p = w'x; return the margin after the projection.
template <class Row> double project(const Row& row, const RowArrays& w, double p, const Direction& direction) {
    const double n0 = direction.n0, kappa = direction.kappa, bound = w.settings.bound;
    if (!(fabs(p) > bound) || (n0 == 0.0 && !(kappa > 0.0))) return p;
    const double clipped = copysign(bound, p);
    if (n0 > 0.0) {
        for (Index j = 0; j < w.basis.cols; ++j) direction.outside_b[j] = -direction.outside_b[j];
        move(row, w, (p - clipped) / n0, 1.0, direction.outside_b);
    } else {
        move(row, w, (p - clipped) / kappa, direction.coef_x, direction.coef_b);
    }
    return clipped;
}

// Move w by -weight slope H^-1 x, and project it if the settings ask for it; return whether H^-1 x is finite.
template <class Steps, class Row> bool take_newton_step(const Steps& steps, const Row& row, const RowNow& now) {
    const RowArrays& w = steps.w;
    const double step = now.weight * now.slope;
    if (step == 0.0 && !(fabs(now.p) > w.settings.bound)) return true;
    const Direction direction = steps.solve(now);
    if (!is_finite(direction.kappa)) return false;
    move(row, w, step, direction.coef_x, direction.coef_b);
    if (w.settings.projection == Projection::CURRENT) project(row, w, now.p - step * direction.kappa, direction);
    return true;
}

// Add B'c to v and reset c to 0.
void add_basis(const RowArrays& w) {
    const Index m = w.basis.cols;
    for (Index i = 0; i < w.basis.rows; ++i) w.v[i] += dot(w.basis[i], w.c, m);
    for (Index j = 0; j < m; ++j) w.c[j] = 0.0;
}

// Fill gram with BB', computed from scratch.
void form_gram(Matrix<const double> bt, Matrix<double> gram) {
    const Index m = gram.rows;
    for (Index j = 0; j < m; ++j)
        for (Index l = 0; l < m; ++l) gram(j, l) = 0.0;
    for (Index i = 0; i < bt.rows; ++i)
        for (Index j = 0; j < m; ++j) add_multiple(gram[j], bt[i], bt(i, j), m);
}

// Overwrite the lower triangle of the leading block of a with its Cholesky factor; return whether it succeeded.
bool cholesky(Matrix<double> a, Index size) {
    for (Index i = 0; i < size; ++i)
        for (Index j = 0; j <= i; ++j) {
            const double total = a(i, j) - dot(a[i], a[j], j);
            if (j < i)
                a(i, j) = total / a(j, j);
            else if (total > 0.0)
                a(i, i) = sqrt(total);
            else
                return false;
        }
    return true;
}

// Solve L z = x for z in place, where L is the leading block of size `rank` of the factor.
void forward(Matrix<const double> factor, Index rank, double* x) {
    for (Index i = 0; i < rank; ++i) x[i] = (x[i] - dot(factor[i], x, i)) / factor(i, i);
}

// Solve L'z = x for z in place, where L is the leading block of size `rank` of the factor.
void backward(Matrix<const double> factor, Index rank, double* x) {
    for (Index i = rank - 1; i >= 0; --i) {
        x[i] /= factor(i, i);
        add_multiple(x, factor[i], -x[i], i);
    }
}

// The factor of x in the row a that enters the sketch.
double scale_of(const RowArrays& w, const RowNow& now) {
    return sqrt(now.weight * (w.settings.mu + rate_at(w.settings, w.seen))) * now.slope;
}

bool is_time_to_refresh(const RowArrays& w) {
    return w.seen % (w.basis.rows > REFRESH ? w.basis.rows : REFRESH) == 0;
}

// ------------------------------------------------------------------------------------------------- RP-SON

// Scratch memory of `solve`; the first two vectors are part of its result. Pivots are small integers.
struct SolveScratch {
    double *coef_b, *outside_b, *pivots, *u, *z, *left;
    Matrix<double> lower, other;
    SolveScratch(double* memory, Index m)
        : coef_b(memory), outside_b(memory + m), pivots(memory + 2 * m), u(memory + 3 * m), z(memory + 4 * m),
          left(memory + 5 * m), lower(memory + 8 * m, m, m), other(memory + (8 + m) * m, m, m) {}
    Index pivot(Index i) const { return static_cast<Index>(pivots[i]); }
};

void swap(double& a, double& b) {
    const double old = a;
    a = b;
    b = old;
}

// Fill L with (a + alpha I)[pivots][:, pivots] = L L' and return the rank r, the number of columns of L. For alpha = 0,
// a row counts as independent of the earlier ones if more than the fraction OUTSIDE of its squared length is outside
// their span. For alpha > 0, any positive fraction is enough.
Index ranked_cholesky(Matrix<const double> a, double alpha, const SolveScratch& s) {
    const Index n = a.rows;
    const double least = alpha == 0.0 ? OUTSIDE : 0.0;
    for (Index i = 0; i < n; ++i) {
        s.pivots[i] = static_cast<double>(i);
        s.left[i] = a(i, i) + alpha;
    }
    for (Index k = 0; k < n; ++k) {
        Index best = k;
        double share = 0.0;
        for (Index i = k; i < n; ++i) {
            const double own = a(s.pivot(i), s.pivot(i)) + alpha;
            if (own > 0.0 && s.left[i] > share * own) {
                best = i;
                share = s.left[i] / own;
            }
        }
        if (!(share > least)) return k;
        swap(s.pivots[k], s.pivots[best]);
        swap(s.left[k], s.left[best]);
        for (Index j = 0; j < k; ++j) swap(s.lower(k, j), s.lower(best, j));
        s.lower(k, k) = sqrt(s.left[k]);
        for (Index i = k + 1; i < n; ++i) {
            const double total = a(s.pivot(i), s.pivot(k)) - dot(s.lower[i], s.lower[k], k);
            s.lower(i, k) = total / s.lower(k, k);
            s.left[i] -= s.lower(i, k) * s.lower(i, k);
        }
    }
    return n;
}

// Set z to (L'L)^-1 u for the first `rank` columns of L, and return u'(L'L)^-1 u, or nan if that is singular.
double solve_twice(const SolveScratch& s, Index rank) {
    const Index m = s.lower.rows;
    for (Index i = 0; i < rank; ++i) {
        for (Index j = 0; j <= i; ++j) s.other(i, j) = 0.0;
        for (Index k = i; k < m; ++k) add_multiple(s.other[i], s.lower[k], s.lower(k, i), i + 1);
    }
    double kappa = cholesky(s.other, rank) ? 0.0 : static_cast<double>(NAN);
    forward(s.other, rank, s.z);
    for (Index i = 0; i < rank; ++i) kappa += s.z[i] * s.z[i];
    backward(s.other, rank, s.z);
    return kappa;
}

// Return H^-1 x for a row with B x = b and x'x = square, from the Cholesky factor L of BB' + alpha I. With u = L^-1 B
// x, x'B'(BB' + alpha I)^-1 B x is u'u. When alpha = 0, pivoting puts r independent rows of B first, and the other rows
// of B are combinations of them. Then u = L_r^-1 B_r x, and H^+ x is B_r' L_r^-T (L'L)^-1 u.
Direction solve_projection(double alpha, Matrix<const double> gram, const double* b, double square, double* scratch) {
    const Index m = gram.rows;
    const SolveScratch s(scratch, m);
    const Index rank = ranked_cholesky(gram, alpha, s);
    for (Index i = 0; i < m; ++i) s.u[i] = s.z[i] = i < rank ? b[s.pivot(i)] : 0.0;
    forward(s.lower, rank, s.u);
    double n0 = square, smallest = HUGE_VAL, largest = 0.0, coef_x = 0.0, kappa = 0.0;
    for (Index i = 0; i < rank; ++i) {
        n0 -= s.u[i] * s.u[i];
        s.z[i] = s.u[i];
        smallest = smaller(s.lower(i, i), smallest);
        largest = larger(s.lower(i, i), largest);
    }
    if (alpha > 0.0) {
        coef_x = 1.0 / alpha;
        kappa = larger(n0, 0.0) / alpha;
        n0 = 0.0;
        if (rank < m) kappa = static_cast<double>(NAN);  // alpha is below the rounding error of BB': no solution
    } else {
        kappa = solve_twice(s, rank);
        // the relative error of u'u is eps times the condition number
        const double ratio = largest / smallest;
        const double error = rank > 0 ? 16.0 * static_cast<double>(m) * EPS * (ratio * ratio) : 0.0;
        if (!(n0 > square * larger(error, OUTSIDE))) n0 = 0.0;
    }
    backward(s.lower, rank, s.z);
    backward(s.lower, rank, s.u);
    for (Index i = 0; i < m; ++i) {
        s.coef_b[s.pivot(i)] = alpha == 0.0 ? s.z[i] : -s.z[i] / alpha;
        s.outside_b[s.pivot(i)] = s.u[i];
    }
    return {coef_x, s.coef_b, kappa, s.outside_b, n0};
}

struct ProjectionSteps {
    const RowArrays& w;
    const double* normal;
    const Index m = w.square.rows;
    double *b = w.scratch + 6 * m, *q = w.scratch + 7 * m;  // b = B x

    Direction solve(const RowNow& now) const {
        return solve_projection(w.settings.alpha0, w.square, b, now.square, w.scratch);
    }
    template <class Row> void predict(const Row& row, RowNow& now) {
        now.p = find_products(row, w, b, now.square) + dot(w.c, b, m);
    }
    template <class Row> void project_next(const Row& row, RowNow& now) { now.p = project(row, w, now.p, solve(now)); }

    template <class Row> bool take_step(const Row& row, const RowNow& now) {
        w.seen += 1;
        const double scale = scale_of(w, now);
        if (scale != 0.0) add_to_sketch(row, now, scale);
        if (!take_newton_step(*this, row, now)) return false;
        if (is_time_to_refresh(w)) {
            store_all(w.owner);
            add_basis(w);
            form_gram(w.basis, w.square);
        }
        return true;
    }

    // Add the row a = scale x to the sketch, with random numbers r; b is B x before and after.
    template <class Row> void add_to_sketch(const Row& row, const RowNow& now, double scale) {
        const double* r = normal + now.number * m;
        for (Index j = 0; j < m; ++j) q[j] = scale * r[j] / sqrt(static_cast<double>(m));
        change_basis(row, w, q);
        for (Index j = 0; j < m; ++j)
            for (Index l = 0; l < m; ++l) w.square(j, l) += (b[j] * q[l] + q[j] * b[l]) + now.square * (q[j] * q[l]);
        add_multiple(b, static_cast<const double*>(q), now.square, m);
    }
};

// ------------------------------------------------------------------------------------------------- Oja-SON

// Scratch memory of a row.
struct OjaScratch {
    double *b, *z, *h, *q, *coef_b, *outside_b, *one, *two;  // b = Y x, z = V x, h = V a
    Matrix<double> transposed;
    OjaScratch(double* memory, Index m)
        : b(memory), z(memory + m), h(memory + 2 * m), q(memory + 3 * m), coef_b(memory + 4 * m),
          outside_b(memory + 5 * m), one(memory + 6 * m), two(memory + 7 * m), transposed(memory + 8 * m, m, m) {}
};

// Set Y to T Y for a lower triangular T, given by its transpose.
void multiply(Matrix<double> yt, Matrix<const double> transposed, double* line) {
    const Index m = transposed.rows;
    for (Index i = 0; i < yt.rows; ++i) {
        double* row = yt[i];
        for (Index j = 0; j < m; ++j) line[j] = 0.0;
        for (Index l = 0; l < m; ++l) add_multiple(line + l, transposed[l] + l, row[l], m - l);
        for (Index j = 0; j < m; ++j) row[j] = line[j];
    }
}

// Set v to w, Y to F Y (orthonormalized to remove rounding error) and F to I; return whether it succeeded.
bool fold(const RowArrays& w, const OjaScratch& s) {
    const Matrix<double> f = w.square;
    const Index m = f.rows;
    store_all(w.owner);
    add_basis(w);
    for (Index j = 0; j < m; ++j)
        for (Index l = 0; l < m; ++l) s.transposed(l, j) = l <= j ? f(j, l) : 0.0;
    multiply(w.basis, s.transposed, s.two);
    form_gram(w.basis, f);
    if (!cholesky(f, m)) return false;
    for (Index j = 0; j < m; ++j) {  // row j becomes column j of L^-1
        for (Index l = 0; l < m; ++l) s.transposed(j, l) = l == j ? 1.0 : 0.0;
        forward(f, m, s.transposed[j]);
    }
    multiply(w.basis, s.transposed, s.two);
    for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < m; ++j) f(i, j) = i == j ? 1.0 : 0.0;
    return true;
}

// Set F to L^-1 F and z to along L^-1 h, where L is the Cholesky factor of I + gamma h h'. With
// d_j = 1 + gamma (h_1^2 + ... + h_j^2) and r_j = sqrt(d_j d_{j-1}), L^-1 has d_{j-1} / r_j on its diagonal and
// -gamma h_j h_k / r_j below it, and L^-1 h is h_j / r_j. Substitution would lose digits when gamma h'h is large.
void orthonormal_step(Matrix<double> f, const OjaScratch& s, double gamma, double along) {
    const Index m = f.rows;
    double before = 1.0, *total = s.one;
    const double* h = s.h;
    for (Index j = 0; j < m; ++j) total[j] = 0.0;
    for (Index j = 0; j < m; ++j) {
        const double now = before + gamma * h[j] * h[j], root = sqrt(before) * sqrt(now);
        for (Index l = 0; l <= j; ++l) {
            const double old = f(j, l);
            f(j, l) = (before * old - gamma * h[j] * total[l]) / root;
            total[l] += h[j] * old;
        }
        s.z[j] = along * h[j] / root;
        before = now;
    }
}

// Update V and Lambda with a = scale x, and z to the new V x; return whether it succeeded.
template <class Row>
bool update_basis(const RowArrays& w, const Row& row, double square, double scale, const OjaScratch& s) {
    const Matrix<double> f = w.square;
    const Index m = f.rows;
    const double t = static_cast<double>(w.seen);
    const double gamma = (2.0 + scale * scale * square / t) / t;
    double step2 = 0.0;
    for (Index j = 0; j < m; ++j) {
        s.h[j] = scale * s.z[j];
        step2 += gamma * s.h[j] * s.h[j];
    }
    if (step2 > LONG && !fold(w, s)) return false;
    for (Index j = 0; j < m; ++j) {
        w.sums[j] += s.h[j] * s.h[j];
        s.q[j] = (s.h[j] - dot(f[j], s.q, j)) / f(j, j);
    }
    for (Index j = 0; j < m; ++j) s.q[j] *= scale / t;
    change_basis(row, w, s.q);
    orthonormal_step(f, s, gamma, (1.0 + scale * scale * square / t) / scale);
    return true;
}

// Return H^-1 x for a row with V x = z and x'x = square, in terms of Y.
Direction solve_oja(const RowArrays& w, double square, const OjaScratch& s) {
    const double alpha = w.settings.alpha0, *energy = w.sums;
    const Matrix<const double> f = w.square;
    const Index m = f.rows;
    double kappa = 0.0, n0 = square, largest = 0.0, *coef_v = s.one, *outside_v = s.two;
    for (Index j = 0; j < m; ++j) largest = larger(energy[j], largest);
    for (Index j = 0; j < m; ++j) {
        const double z = s.z[j];
        coef_v[j] = outside_v[j] = 0.0;
        if (alpha > 0.0) {
            coef_v[j] = -energy[j] / (energy[j] + alpha) * z / alpha;
            kappa += z * z / (energy[j] + alpha);
            n0 -= z * z;
        } else if (energy[j] > OUTSIDE * largest) {
            coef_v[j] = z / energy[j];
            outside_v[j] = z;
            kappa += z * z / energy[j];
            n0 -= z * z;
        }
    }
    for (Index l = 0; l < m; ++l) s.coef_b[l] = s.outside_b[l] = 0.0;
    for (Index j = 0; j < m; ++j) {
        add_multiple(s.coef_b, f[j], coef_v[j], j + 1);
        add_multiple(s.outside_b, f[j], outside_v[j], j + 1);
    }
    if (alpha > 0.0) return {1.0 / alpha, s.coef_b, kappa + larger(n0, 0.0) / alpha, s.outside_b, 0.0};
    return {0.0, s.coef_b, kappa, s.outside_b, n0 > OUTSIDE * square ? n0 : 0.0};
}

struct OjaSteps {
    const RowArrays& w;
    const OjaScratch s{w.scratch, w.square.rows};

    Direction solve(const RowNow& now) const { return solve_oja(w, now.square, s); }
    template <class Row> void predict(const Row& row, RowNow& now) {
        const Index m = w.square.rows;
        now.p = find_products(row, w, s.b, now.square) + dot(w.c, s.b, m);
        for (Index j = 0; j < m; ++j) s.z[j] = dot(w.square[j], s.b, j + 1);
    }
    template <class Row> void project_next(const Row& row, RowNow& now) { now.p = project(row, w, now.p, solve(now)); }

    template <class Row> bool take_step(const Row& row, const RowNow& now) {
        w.seen += 1;
        const double scale = scale_of(w, now);
        if (scale != 0.0 && !update_basis(w, row, now.square, scale, s)) return false;
        if (!take_newton_step(*this, row, now)) return false;
        double smallest = 1.0;
        for (Index j = 0; j < w.square.rows; ++j) smallest = smaller(w.square(j, j), smallest);
        return !(smallest < WORST || is_time_to_refresh(w)) || fold(w, s);
    }
};

}  // namespace

}  // namespace robustfd::RFD_LEVEL

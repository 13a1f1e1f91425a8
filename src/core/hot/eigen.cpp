#include "eigen.hpp"

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double TINY = 1e-200;              // replaces a zero pivot; the matrix has norm about 1
constexpr int ISOLATING = 16, REFINING = 24; // maximum numbers of bisection sweeps and of Laguerre sweeps
constexpr double GRID = 12.0;                // the first shifts are a geometric sequence over this many factors of two

using Vector = Lanes<double>;

// ------------------------------------------------------------------------------------------------- reduction

// Make the Householder vector of row[0 .. size - 1] in place; return the new off-diagonal entry and tau.
void make_reflector(double* row, Index size, double& off, double& tau) {
    const double first = row[0], squares = dot(row + 1, row + 1, size - 1);
    tau = 0.0;
    off = first;
    if (squares > 0.0) {
        off = -copysign(sqrt(first * first + squares), first);
        tau = (off - first) / off;
        const double scale = 1.0 / (first - off);
        for (Index i = 0; i < size; ++i) row[i] *= scale;
    }
    row[0] = 1.0;
}

// The reflector v and the vector w of the last step, the reflector of this step, and the sum p of the rows times it.
struct Reflection {
    const double *v, *w, *now;
    double* p;
};

// Subtract v[j] w + w[j] v from R rows j of `a`, one or four, and add now[j] times the results to p.
template <int R> RFD_INLINE void update_rows(Matrix<double> a, Index j, const Reflection& r, Index begin, Index end) {
    double x[R], y[R], u[R], *row[R];
    for (int k = 0; k < R; ++k) x[k] = r.v[j + k], y[k] = r.w[j + k], u[k] = r.now[j + k], row[k] = a[j + k];
    for (Index i = begin; i < end; i += LANES) {
        const Vector v = load(r.v + i), w = load(r.w + i);
        Vector s[R];
        for (int k = 0; k < R; ++k) s[k] = load(row[k] + i) - (Vector(x[k]) * w + Vector(y[k]) * v);
        for (int k = 0; k < R; ++k) store(s[k], row[k] + i);
        for (int k = 0; k < R; ++k) s[k] = Vector(u[k]) * s[k];
        if constexpr (R == 4) s[0] = (s[0] + s[1]) + (s[2] + s[3]);
        store(load(r.p + i) + s[0], r.p + i);
    }
}

// One pass over the trailing matrix applies the rank-two update of a reflection and multiplies by the next v, so each
// step reads the matrix only once. Costs 2 n^3 flops, because the loop does not exploit symmetry. Backward stable
// (Golub and Van Loan 2013, section 8.3.1). Loops run over whole vectors: what they change to the left of the trailing
// matrix is not needed any more.
void reduce(Matrix<double> a, Matrix<double> form) {
    const Index n = a.rows, end = padded(n);
    double *diagonal = form[0], *off = form[1], *tau = form[2], *v = form[3], *w = form[4], *p = form[5];
    for (Index i = 0; i < end; ++i) v[i] = w[i] = p[i] = 0.0;
    diagonal[0] = a(0, 0);
    for (Index k = 0; k < n - 1; ++k) {
        const Index size = n - 1 - k, begin = (k + 1) / LANES * LANES;
        double *row = a[k] + k + 1, *next = a[k + 1];
        make_reflector(row, size, off[k], tau[k]);
        for (Index i = begin; i < end; ++i) p[i] = 0.0;
        const Reflection reflection{v, w, a[k], p};
        Index j = k + 1;
        for (; j + 4 <= n; j += 4) update_rows<4>(a, j, reflection, begin, end);
        for (; j < n; ++j) update_rows<1>(a, j, reflection, begin, end);
        const double t = tau[k], correction = -0.5 * t * t * dot(p + k + 1, row, size);
        for (Index i = k + 1; i < n; ++i) {
            v[i] = a(k, i);
            w[i] = t * p[i] + correction * v[i];
        }
        const double y = w[k + 1];  // the next v is computed from this row; v[k + 1] = 1
        for (Index i = k + 1; i < n; ++i) next[i] -= w[i] + y * v[i];
        diagonal[k + 1] = next[k + 1];
    }
}

// ----------------------------------------------------------------------------------------------- eigenvalues

// T, with squared off-diagonal entries after a leading 0, and the smallest pivot in size.
struct Form {
    const double *diagonal, *squares;
    Index n;
    double tiny;
};

// Numbers for each shift.
struct Shifts {
    double *shift, *low, *high, *above, *inverse, *first, *second, *s1, *s2;
    Index count, lanes;
};

// The pivot, or -tiny if it is smaller than that.
RFD_INLINE Vector away_from_zero(const Vector& pivot, const Vector& tiny) {
    return choose(larger(pivot, -pivot) > tiny, pivot, Vector(-tiny));
}

// Fill `above` with the number of eigenvalues above each shift: the number of positive pivots of T - shift (Sylvester's
// law of inertia). The counts are exact for a matrix that differs from T by O(eps ||T||) in each entry (Demmel, Dhillon
// and Ren 1995).
//
// With `powers`, also fill s1 and s2 with the sums of 1/(shift - lambda) and of its square. Up to sign, these are
// (log p)' and (log p)'', where p(shift) is the product of the pivots. The recurrence carries the first and second
// derivatives of each pivot along.
template <bool powers> void count_above(const Form& t, const Shifts& s) {
    const Vector none(0.0), one(1.0), two(2.0), tiny(t.tiny);
    for (Index j = 0; j < s.lanes; ++j) s.inverse[j] = s.above[j] = 0.0;
    if (powers)
        for (Index j = 0; j < s.lanes; ++j) s.first[j] = s.second[j] = s.s1[j] = s.s2[j] = 0.0;
    for (Index i = 0; i < t.n; ++i) {
        const Vector a(t.diagonal[i]), b(t.squares[i]);
        for (Index j = 0; j < s.lanes; j += LANES) {
            const Vector old = load(s.inverse + j);
            const Vector pivot = away_from_zero((a - load(s.shift + j)) - b * old, tiny), now = one / pivot;
            store(now, s.inverse + j);
            store(load(s.above + j) + choose(pivot > none, one, none), s.above + j);
            if constexpr (!powers) continue;
            const Vector ratio = load(s.first + j) * old, share = b * old;
            const Vector second = share * (load(s.second + j) * old - two * ratio * ratio);
            const Vector first = share * ratio - one, next = first * now;
            store(second, s.second + j);
            store(first, s.first + j);
            store(load(s.s1 + j) + next, s.s1 + j);
            store(load(s.s2 + j) + (next * next - second * now), s.s2 + j);
        }
    }
}

// Narrow the intervals by the counts at the shifts; return how many eigenvalues are above the last interval's lower
// end.
Index narrow(const Shifts& s, Index above_last) {
    for (Index j = 0; j < s.lanes; ++j) {
        const double x = s.shift[j];
        const Index c = static_cast<Index>(s.above[j]);
        if (c >= s.count && x > s.low[s.count - 1]) above_last = c;
        for (Index i = 0; i < (c < s.count ? c : s.count); ++i) s.low[i] = larger(s.low[i], x);
        for (Index i = c; i < s.count; ++i) s.high[i] = smaller(s.high[i], x);
    }
    return above_last;
}

// Place new shifts inside the intervals; return whether every interval holds one eigenvalue.
bool place_shifts(const Shifts& s, Index above_last) {
    bool isolated = true;
    for (Index j = 0; j < s.count;) {
        Index end = j + 1;
        while (end < s.count && s.high[end] == s.high[j]) ++end;
        isolated = isolated && (end < s.count ? end : above_last) == j + 1;
        // The last interval may hold more eigenvalues than wanted and gets all remaining shifts.
        const Index shifts = end < s.count ? end - j : s.lanes - j;
        const double step = (s.high[j] - s.low[j]) / (static_cast<double>(shifts) + 1.0);
        for (Index i = 0; i < shifts; ++i) s.shift[j + i] = s.high[j] - step * (static_cast<double>(i) + 1.0);
        j = end;
    }
    return isolated;
}

// Take one step of Laguerre's iteration for every eigenvalue, safeguarded by its interval; return the largest step.
double laguerre_step(const Form& t, const Shifts& s) {
    const double n = static_cast<double>(t.n);
    double largest = 0.0;
    for (Index j = 0; j < s.count; ++j) {
        const double x = s.shift[j], s1 = s.s1[j], s2 = s.s2[j];
        const bool below = s.above[j] <= static_cast<double>(j);
        (below ? s.high[j] : s.low[j]) = x;
        const double root = sqrt(larger((n - 1.0) * (n * s2 - s1 * s1), 0.0));
        double y = x - n / (below ? s1 + root : s1 - root);
        if (!(s.low[j] <= y && y <= s.high[j])) y = 0.5 * (s.low[j] + s.high[j]);  // also for NaN
        s.shift[j] = y;
        largest = larger(largest, fabs(y - x));
    }
    return largest;
}

// Bisection with many shifts at once isolates every eigenvalue in its own interval. Laguerre's iteration then converges
// with third order (Li and Zeng 1994). The error is O(n eps ||T||). Costs O(n k) flops per sweep for k eigenvalues.
bool largest_values(Matrix<const double> form, double* values, Index count, double* scratch) {
    const Index n = form.cols, lanes = padded(count);
    const double *diagonal = form[0], *off = form[1];
    double *squares = scratch, *w = scratch + n, top = 0.0;
    const Shifts s{w, w + lanes, w + 2 * lanes, w + 3 * lanes, w + 4 * lanes, w + 5 * lanes, w + 6 * lanes,
                   w + 7 * lanes, w + 8 * lanes, count, lanes};
    squares[0] = 0.0;
    for (Index i = 0; i < n; ++i) {
        double bound = diagonal[i] + (i > 0 ? fabs(off[i - 1]) : 0.0);
        if (i < n - 1) {
            squares[i + 1] = off[i] * off[i];
            bound += fabs(off[i]);
        }
        top = larger(top, bound);
    }
    const Form t{diagonal, squares, n, EPS * top};
    double x = top;
    const double factor = exp2(-GRID / static_cast<double>(lanes));
    for (Index j = 0; j < lanes; ++j) {
        x *= factor;
        s.low[j] = -static_cast<double>(n) * t.tiny;
        s.high[j] = (1.0 + static_cast<double>(n) * EPS) * top;
        s.shift[j] = x;
    }
    bool isolated = false;
    Index above_last = n;
    for (int sweep = 0; sweep < ISOLATING && !isolated; ++sweep) {
        count_above<false>(t, s);
        above_last = narrow(s, above_last);
        isolated = place_shifts(s, above_last);
    }
    for (int sweep = 0; isolated && sweep < REFINING; ++sweep) {
        count_above<true>(t, s);
        if (laguerre_step(t, s) <= 4.0 * t.tiny) {
            for (Index j = 0; j < count; ++j) values[j] = s.shift[j];
            return true;
        }
    }
    return false;
}

// ---------------------------------------------------------------------------------------------- eigenvectors

// The factors of T - shift for all shifts: L D L' from the top and U D U' from the bottom, joined at the row `twist`
// where the twisted pivot gamma is smallest.
struct Twisted {
    Matrix<double> below, above, pivot;
    double *up, *twist, *gamma, *squares;
};

void factor(Matrix<const double> form, const double* shifts, const Twisted& f) {
    const Index n = form.cols, k = f.pivot.cols;
    const double *a = form[0], *b = form[1];
    for (Index j = 0; j < k; ++j) {
        f.pivot(0, j) = a[0] - shifts[j];
        f.squares[j] = 0.0;
    }
    for (Index i = 0; i < n - 1; ++i) {
        double *__restrict below = f.below[i], *__restrict next = f.pivot[i + 1];
        const double *__restrict pivot = f.pivot[i], c = b[i], a1 = a[i + 1];
        for (Index j = 0; j < k; ++j) {
            const double d = fabs(pivot[j]) > TINY ? pivot[j] : TINY;
            below[j] = c / d;
            next[j] = (a1 - shifts[j]) - c * below[j];
        }
    }
    double *__restrict up = f.up, *__restrict gamma = f.gamma, *__restrict twist = f.twist;
    for (Index j = 0; j < k; ++j) {
        up[j] = a[n - 1] - shifts[j];
        gamma[j] = fabs(f.pivot(n - 1, j));
        twist[j] = static_cast<double>(n - 1);
    }
    for (Index i = n - 2; i >= 0; --i) {
        double* __restrict above = f.above[i];
        const double *__restrict pivot = f.pivot[i], c = b[i], here = static_cast<double>(i), ai = a[i];
        for (Index j = 0; j < k; ++j) {
            const double d = fabs(up[j]) > TINY ? up[j] : TINY;
            above[j] = c / d;
            up[j] = (ai - shifts[j]) - c * above[j];
            const double candidate = fabs(pivot[j] - c * above[j]);
            const bool better = candidate < gamma[j];
            twist[j] = better ? here : twist[j];
            gamma[j] = better ? candidate : gamma[j];
        }
    }
}

// Fill z: 1 in the twist's row, and by substitution elsewhere. Tiny entries are set to 0, because arithmetic on
// subnormal numbers is slow.
void substitute(const Twisted& f, Matrix<double> z) {
    const Index n = z.rows, k = z.cols;
    const double* twist = f.twist;
    for (Index j = 0; j < k; ++j) z(n - 1, j) = twist[j] == static_cast<double>(n - 1) ? 1.0 : 0.0;
    for (Index i = n - 2; i >= 0; --i) {
        const double *__restrict below = f.below[i], *__restrict next = z[i + 1], here = static_cast<double>(i);
        double* __restrict row = z[i];
        for (Index j = 0; j < k; ++j) {
            double entry = -below[j] * next[j];
            entry = fabs(entry) > TINY ? entry : 0.0;
            row[j] = twist[j] == here ? 1.0 : (twist[j] > here ? entry : 0.0);
        }
    }
    for (Index i = 0; i < n - 1; ++i) {
        const double *__restrict above = f.above[i], *__restrict row = z[i], here = static_cast<double>(i);
        double* __restrict next = z[i + 1];
        for (Index j = 0; j < k; ++j) {
            double entry = -above[j] * row[j];
            entry = fabs(entry) > TINY ? entry : 0.0;
            next[j] = twist[j] <= here ? entry : next[j];
        }
    }
}

// gamma is the only nonzero entry of T z - shift z before scaling (Dhillon and Parlett 2004). O(n) flops per vector.
double vectors(Matrix<const double> form, const double* values, Matrix<double> z, double* scratch) {
    const Index n = z.rows, k = z.cols;
    double* rest = scratch + 3 * n * k;
    const Twisted f{{scratch, n, k}, {scratch + n * k, n, k}, {scratch + 2 * n * k, n, k},
                    rest, rest + k, rest + 2 * k, rest + 3 * k};
    factor(form, values, f);
    substitute(f, z);
    for (Index i = 0; i < n; ++i) {
        const double* row = z[i];
        for (Index j = 0; j < k; ++j) f.squares[j] += row[j] * row[j];
    }
    double residual = 0.0;
    for (Index j = 0; j < k; ++j) {
        f.squares[j] = 1.0 / sqrt(f.squares[j]);
        const double mine = f.gamma[j] * f.squares[j];
        residual = mine <= residual ? residual : mine;  // keeps NaN
    }
    for (Index i = 0; i < n; ++i) {
        double* row = z[i];
        for (Index j = 0; j < k; ++j) row[j] *= f.squares[j];
    }
    return residual;
}

// Apply the reflections that `reduce` left in `a` and `form`, in reverse order: 2 n^2 k flops. A strip of columns of z
// stays in the cache for all reflections.
void back_transform(Matrix<const double> a, Matrix<const double> form, Matrix<double> z) {
    const Index n = z.rows;
    for (Index strip = 0; strip < z.cols; strip += LANES)
        for (Index i = n - 2; i >= 0; --i) {
            const double* v = a[i];
            Vector one(0.0), two(0.0), three(0.0), four(0.0);  // partial sums, for shorter chains of additions
            Index l = i + 1;
            for (; l + 4 <= n; l += 4) {
                one += Vector(v[l]) * load(z[l] + strip);
                two += Vector(v[l + 1]) * load(z[l + 1] + strip);
                three += Vector(v[l + 2]) * load(z[l + 2] + strip);
                four += Vector(v[l + 3]) * load(z[l + 3] + strip);
            }
            for (; l < n; ++l) one += Vector(v[l]) * load(z[l] + strip);
            const Vector total = Vector(form(2, i)) * ((one + two) + (three + four));
            for (l = i + 1; l < n; ++l) store(load(z[l] + strip) - Vector(v[l]) * total, z[l] + strip);
        }
}

}  // namespace

extern const Tridiagonal tridiagonal{reduce, largest_values, vectors, back_transform};

}  // namespace robustfd::RFD_LEVEL

"""Compiled loops for a small symmetric eigenproblem: tridiagonal reduction, eigenpairs, back-transformation.

For a matrix of ten to a hundred rows LAPACK spends most of its time in calls to very short vector operations and in
chains of dependent divisions. Here every inner loop runs over a whole row or over all wanted eigenvalues, so the
compiler can vectorise it. All inner loops start at 0 on purpose: numba does not vectorise loops whose index might be
negative, because negative indices count from the end.
"""

from typing import Any

import numpy as np

from robustfd._compile import loops

EPS = 2.220446049250313e-16
TINY = 1e-200  # replaces a zero pivot; the matrix has norm about 1
LANES = 8  # the number of eigenvalues is rounded up to a multiple of this, to fill vector registers
ISOLATING, REFINING = 16, 24  # maximum numbers of bisection sweeps and of Laguerre sweeps
GRID = 12.0  # the first shifts are a geometric sequence that spans this many factors of two


@loops
def tridiagonalise(a: Any, form: Any) -> None:
    """Reduce the symmetric matrix `a` to tridiagonal form by Householder reflections I - tau v v'.

    The vectors v are stored in the rows of `a`, to the right of the diagonal. Both triangles are read and overwritten.
    `form` (6, n) receives the diagonal, the off-diagonal and tau; its other rows are scratch. One pass over the
    trailing matrix applies the rank-two update of a reflection and multiplies by the next v, so each step reads the
    matrix only once. Costs 2 n^3 flops, because the loop does not exploit symmetry. Backward stable (Golub and Van Loan
    2013, section 8.3.1).
    """
    n = len(a)
    diagonal, off, tau, work = form[0], form[1], form[2], form[3:]
    for i in range(n):
        work[0, i] = work[1, i] = 0.0
    diagonal[0] = a[0, 0]
    for k in range(n - 1):
        size = n - 1 - k
        row, v, w, p = a[k, k + 1 :], work[0, k + 1 :], work[1, k + 1 :], work[2, k + 1 :]
        first, squares = row[0], 0.0
        for i in range(1, size):
            squares += row[i] * row[i]
        tau[k], off[k] = 0.0, first
        if squares > 0:
            off[k] = -np.copysign(np.sqrt(first * first + squares), first)
            tau[k] = (off[k] - first) / off[k]
            scale = 1.0 / (first - off[k])
            for i in range(size):
                row[i] *= scale
        row[0] = 1.0
        for i in range(size):
            p[i] = 0.0
        for j in range(0, size - 1, 2):  # two rows at a time
            one, x, y, u = a[k + 1 + j, k + 1 :], v[j], w[j], row[j]
            two, x2, y2, u2 = a[k + 2 + j, k + 1 :], v[j + 1], w[j + 1], row[j + 1]
            for i in range(size):
                s = one[i] - (x * w[i] + y * v[i])
                t = two[i] - (x2 * w[i] + y2 * v[i])
                one[i], two[i] = s, t
                p[i] += u * s + u2 * t
        if size % 2 == 1:
            one, x, y, u = a[n - 1, k + 1 :], v[size - 1], w[size - 1], row[size - 1]
            for i in range(size):
                s = one[i] - (x * w[i] + y * v[i])
                one[i] = s
                p[i] += u * s
        correction = 0.0
        for i in range(size):
            correction += p[i] * row[i]
        correction *= -0.5 * tau[k] * tau[k]
        for i in range(size):
            v[i], w[i] = row[i], tau[k] * p[i] + correction * row[i]
        next_row, y = a[k + 1, k + 1 :], w[0]  # the next v is computed from this row; v[0] = 1
        for i in range(size):
            next_row[i] -= w[i] + y * v[i]
        diagonal[k + 1] = next_row[0]


@loops
def largest_values(form: Any, values: Any, scratch: Any) -> bool:
    """Fill `values` with the largest eigenvalues of T, descending; return whether all were isolated and converged.

    The number of eigenvalues above a shift is the number of positive pivots of T - shift (Sylvester's law of inertia).
    Bisection with many shifts at once isolates every eigenvalue in its own interval. Laguerre's iteration, safeguarded
    by that interval, then converges with third order (Li and Zeng 1994). The error is O(n eps ||T||). Costs O(n k)
    flops per sweep for k eigenvalues. `scratch` holds n + 9 k numbers, k rounded up to a multiple of LANES.
    """
    n, count = form.shape[1], len(values)
    lanes = -(-count // LANES) * LANES
    diagonal, off, squares, work = form[0], form[1], scratch[:n], scratch[n : n + 9 * lanes].reshape(9, lanes)
    shift, low, high, above = work[0], work[1], work[2], work[3]
    top, squares[0] = 0.0, 0.0
    for i in range(n):
        row_bound = diagonal[i] + (abs(off[i - 1]) if i > 0 else 0.0)
        if i < n - 1:
            squares[i + 1] = off[i] * off[i]
            row_bound += abs(off[i])
        top = max(top, row_bound)
    tiny, x, factor = EPS * top, top, 0.5 ** (GRID / lanes)
    for j in range(lanes):
        x *= factor
        low[j], high[j], shift[j] = -n * tiny, (1.0 + n * EPS) * top, x

    isolated, above_last = False, n  # above_last: number of eigenvalues above the lower end of the last interval
    for _ in range(ISOLATING):
        _count_above(diagonal, squares, tiny, shift, work[4], above)
        for j in range(lanes):
            x, c = shift[j], int(above[j])
            if c >= count and x > low[count - 1]:
                above_last = c
            for i in range(min(c, count)):
                low[i] = max(low[i], x)
            for i in range(max(count - c, 0)):
                high[c + i] = min(high[c + i], x)
        isolated, j = True, 0
        while j < count:
            end = j + 1
            while end < count and high[end] == high[j]:
                end += 1
            isolated = isolated and (end if end < count else above_last) == j + 1
            # The last interval may hold more eigenvalues than wanted and gets all remaining shifts.
            shifts = end - j if end < count else lanes - j
            step = (high[j] - low[j]) / (shifts + 1.0)
            for i in range(shifts):
                shift[j + i] = high[j] - step * (i + 1.0)
            j = end
        if isolated:
            break
    if not isolated:
        return False

    for _ in range(REFINING):
        _sums_of_powers(diagonal, squares, tiny, shift, work[4:8], work[8], above)
        largest_step = 0.0
        for j in range(count):
            x, s1, s2, below = shift[j], work[6, j], work[7, j], above[j] <= j
            high[j], low[j] = (x, low[j]) if below else (high[j], x)
            root = np.sqrt(max((n - 1.0) * (n * s2 - s1 * s1), 0.0))
            y = x - n / (s1 + root if below else s1 - root)
            if not low[j] <= y <= high[j]:  # also true for NaN
                y = 0.5 * (low[j] + high[j])
            shift[j] = y
            largest_step = max(largest_step, abs(y - x))
        if largest_step <= 4.0 * tiny:
            for j in range(count):
                values[j] = shift[j]
            return True
    return False


@loops
def _count_above(diagonal: Any, squares: Any, tiny: float, shift: Any, inverse: Any, above: Any) -> None:
    """Fill `above` with the number of eigenvalues above each shift.

    `squares` holds a 0 and the squared off-diagonal entries. The counts are exact for a matrix that differs from T by
    O(eps ||T||) in each entry (Demmel, Dhillon and Ren 1995).
    """
    for j in range(len(shift)):
        inverse[j] = above[j] = 0.0
    for i in range(len(diagonal)):
        a, b = diagonal[i], squares[i]
        for j in range(len(shift)):
            pivot = (a - shift[j]) - b * inverse[j]
            pivot = pivot if abs(pivot) > tiny else -tiny
            inverse[j] = 1.0 / pivot
            above[j] += 1.0 if pivot > 0 else 0.0


@loops
def _sums_of_powers(diagonal: Any, squares: Any, tiny: float, shift: Any, work: Any, inverse: Any, above: Any) -> None:
    """Do the same as `_count_above`; fill work[2] and work[3] with the sums of 1/(shift - lambda) and of its square.

    Up to sign, these are (log p)' and (log p)'', where p(shift) is the product of the pivots. The recurrence carries
    the first and second derivatives of each pivot along.
    """
    first, second, s1, s2 = work[0], work[1], work[2], work[3]
    for j in range(len(shift)):
        inverse[j] = first[j] = second[j] = s1[j] = s2[j] = above[j] = 0.0
    for i in range(len(diagonal)):
        a, b = diagonal[i], squares[i]
        for j in range(len(shift)):
            old = inverse[j]
            pivot = (a - shift[j]) - b * old
            pivot = pivot if abs(pivot) > tiny else -tiny
            inverse[j] = new = 1.0 / pivot
            ratio, share = first[j] * old, b * old
            second[j] = share * (second[j] * old - 2.0 * ratio * ratio)
            first[j] = share * ratio - 1.0
            ratio = first[j] * new
            s1[j] += ratio
            s2[j] += ratio * ratio - second[j] * new
            above[j] += 1.0 if pivot > 0 else 0.0


@loops
def twisted_vectors(form: Any, shifts: Any, z: Any, scratch: Any) -> float:
    """Fill the columns of z with unit eigenvectors of a tridiagonal T; return the largest residual |T z - shift z|.

    T - shift is factored as L D L' from the top and as U D U' from the bottom. The two are joined at the row where the
    twisted pivot gamma is smallest. z is 1 in that row and follows by substitution elsewhere, so gamma is the only
    nonzero entry of T z - shift z before scaling (Dhillon and Parlett 2004). O(n) flops per vector. The loop over the
    shifts is innermost, so that it vectorises. `scratch` holds (3 n + 4) k numbers.
    """
    n, k = z.shape
    work = scratch[: (3 * n + 4) * k].reshape(3 * n + 4, k)
    a, b, below, above, pivot = form[0], form[1], work[:n], work[n : 2 * n], work[2 * n : 3 * n]
    up, twist, gamma, squares = work[3 * n], work[3 * n + 1], work[3 * n + 2], work[3 * n + 3]
    for j in range(k):
        pivot[0, j], squares[j] = a[0] - shifts[j], 0.0
    for i in range(n - 1):
        for j in range(k):
            d = pivot[i, j]
            d = d if abs(d) > TINY else TINY
            below[i, j] = b[i] / d
            pivot[i + 1, j] = (a[i + 1] - shifts[j]) - b[i] * below[i, j]
    for j in range(k):
        up[j] = a[n - 1] - shifts[j]
        gamma[j] = abs(pivot[n - 1, j])
        twist[j] = n - 1.0
    for i in range(n - 2, -1, -1):
        for j in range(k):
            d = up[j]
            d = d if abs(d) > TINY else TINY
            above[i, j] = b[i] / d
            up[j] = (a[i] - shifts[j]) - b[i] * above[i, j]
            candidate = abs(pivot[i, j] - b[i] * above[i, j])
            twist[j] = float(i) if candidate < gamma[j] else twist[j]
            gamma[j] = candidate if candidate < gamma[j] else gamma[j]
    for j in range(k):
        z[n - 1, j] = 1.0 if twist[j] == n - 1.0 else 0.0
    for i in range(n - 2, -1, -1):
        for j in range(k):
            entry = -below[i, j] * z[i + 1, j]
            entry = entry if abs(entry) > TINY else 0.0  # flush to zero: arithmetic on subnormal numbers is slow
            z[i, j] = 1.0 if twist[j] == i else (entry if twist[j] > i else 0.0)
    for i in range(n - 1):
        for j in range(k):
            entry = -above[i, j] * z[i, j]
            entry = entry if abs(entry) > TINY else 0.0
            z[i + 1, j] = entry if twist[j] <= i else z[i + 1, j]
    for i in range(n):
        for j in range(k):
            squares[j] += z[i, j] * z[i, j]
    residual = 0.0
    for j in range(k):
        squares[j] = 1.0 / np.sqrt(squares[j])
        residual = residual if gamma[j] * squares[j] <= residual else gamma[j] * squares[j]
    for i in range(n):
        for j in range(k):
            z[i, j] *= squares[j]
    return residual


@loops
def back_transform(a: Any, form: Any, z: Any, total: Any) -> None:
    """Map the columns of z (n, k) from eigenvectors of the tridiagonal form to eigenvectors of the matrix, in place.

    Apply the reflections that `tridiagonalise` left in `a` and `form`, in reverse order: 2 n^2 k flops. `total` is
    scratch of length k.
    """
    (n, k), tau = z.shape, form[2]
    for i in range(n - 2, -1, -1):
        v, rest, size = a[i, i + 1 :], z[i + 1 :], n - 1 - i
        for j in range(k):
            total[j] = 0.0
        for l in range(0, size - 1, 2):
            one, two, x, y = rest[l], rest[l + 1], v[l], v[l + 1]
            for j in range(k):
                total[j] += x * one[j] + y * two[j]
        if size % 2 == 1:
            one, x = rest[size - 1], v[size - 1]
            for j in range(k):
                total[j] += x * one[j]
        for j in range(k):
            total[j] *= tau[i]
        for l in range(size):
            one, x = rest[l], v[l]
            for j in range(k):
                one[j] -= x * total[j]

"""The steps of a small symmetric eigenproblem as compiled loops: to tridiagonal form, its eigenpairs, and back.

For a matrix of ten to a hundred rows LAPACK spends most of its time on calls of very short vector operations and in
chains of divisions, one waiting for the other. Here every inner loop runs over a whole row, or over all wanted
eigenvalues side by side, so that it runs in vector registers. (Loops begin at 0 on purpose: over indices that might be
negative, which count from the end in Python, numba makes no vector instructions.)
"""

from typing import Any

import numpy as np

from robustfd._compile import loops

EPS = 2.220446049250313e-16
TINY = 1e-200  # stands for a pivot that vanishes; the matrix has norm about 1
LANES = 8  # numbers of eigenvalues are rounded up to a multiple of this, as vector registers like it
ISOLATING, REFINING = 16, 24  # times that all intervals may be divided, and that all estimates may be improved
GRID = 12.0  # the first shifts are a geometric sequence over so many factors of two


@loops
def tridiagonalise(a: Any, form: Any) -> None:
    """Reduce the symmetric matrix `a` by reflections I - tau v v', whose v are left in its rows, right of the diagonal.

    Both triangles are used and destroyed. `form` (6, n) gets the diagonal, what is beside it, and tau. The rank-two
    change of one reflection and the product with the next v are one pass over what is left of the matrix.
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
        inside = 0.0
        for i in range(size):
            inside += p[i] * row[i]
        inside *= -0.5 * tau[k] * tau[k]
        for i in range(size):
            v[i], w[i] = row[i], tau[k] * p[i] + inside * row[i]
        after, y = a[k + 1, k + 1 :], w[0]  # the next v needs its row now; v[0] = 1
        for i in range(size):
            after[i] -= w[i] + y * v[i]
        diagonal[k + 1] = after[0]


@loops
def largest_values(form: Any, values: Any, room: Any) -> bool:
    """Fill `values` with as many of the largest eigenvalues, descending; return whether they are apart and were found.

    The number of eigenvalues above a shift is that of the positive pivots of T - shift; by it all are isolated at
    the same time. Then Laguerre's iteration, which converges from within an interval to the one eigenvalue in it,
    with third order (Li and Zeng 1994). room is for n + 9 times the rounded-up number of values.
    """
    n, count = form.shape[1], len(values)
    lanes = -(-count // LANES) * LANES
    diagonal, off, squares, work = form[0], form[1], room[:n], room[n : n + 9 * lanes].reshape(9, lanes)
    shift, low, high, above = work[0], work[1], work[2], work[3]
    top, squares[0] = 0.0, 0.0
    for i in range(n):
        reach = diagonal[i] + (abs(off[i - 1]) if i > 0 else 0.0)
        if i < n - 1:
            squares[i + 1] = off[i] * off[i]
            reach += abs(off[i])
        top = max(top, reach)
    tiny, x, factor = EPS * top, top, 0.5 ** (GRID / lanes)
    for j in range(lanes):
        x *= factor
        low[j], high[j], shift[j] = -n * tiny, (1.0 + n * EPS) * top, x

    alone, least = False, n  # least: how many are above the lower end of the last interval
    for _ in range(ISOLATING):
        _count_above(diagonal, squares, tiny, shift, work[4], above)
        for j in range(lanes):
            x, c = shift[j], int(above[j])
            if c >= count and x > low[count - 1]:
                least = c
            for i in range(min(c, count)):
                low[i] = max(low[i], x)
            for i in range(max(count - c, 0)):
                high[c + i] = min(high[c + i], x)
        alone, j = True, 0
        while j < count:
            end = j + 1
            while end < count and high[end] == high[j]:
                end += 1
            alone = alone and (end if end < count else least) == j + 1
            shifts = end - j if end < count else lanes - j  # the last interval, with others below, has all the rest
            step = (high[j] - low[j]) / (shifts + 1.0)
            for i in range(shifts):
                shift[j + i] = high[j] - step * (i + 1.0)
            j = end
        if alone:
            break
    if not alone:
        return False

    for _ in range(REFINING):
        _sums_of_powers(diagonal, squares, tiny, shift, work[4:8], work[8], above)
        furthest = 0.0
        for j in range(count):
            x, s1, s2, below = shift[j], work[6, j], work[7, j], above[j] <= j
            high[j], low[j] = (x, low[j]) if below else (high[j], x)
            root = np.sqrt(max((n - 1.0) * (n * s2 - s1 * s1), 0.0))
            y = x - n / (s1 + root if below else s1 - root)
            if not low[j] <= y <= high[j]:  # in this form it also catches NaN
                y = 0.5 * (low[j] + high[j])
            shift[j] = y
            furthest = max(furthest, abs(y - x))
        if furthest <= 4.0 * tiny:
            for j in range(count):
                values[j] = shift[j]
            return True
    return False


@loops
def _count_above(diagonal: Any, squares: Any, tiny: float, shift: Any, inverse: Any, above: Any) -> None:
    """Fill `above` with the number of eigenvalues above each shift; squares are of the off-diagonal, after a 0."""
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
    """Do as `_count_above`, and fill work[2] and work[3] with the sums of 1/(shift - lambda) and of their squares.

    They are -(log p)' and (log p)'' but for signs, p the product of the pivots, whose derivatives run along.
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
def twisted_vectors(form: Any, shifts: Any, z: Any, room: Any) -> float:
    """Fill the columns of z with unit vectors of a tridiagonal matrix T; return the largest |T z - shift z|.

    room is for (3 n + 4) k numbers.
    T - shift = L D L' from above and U D U' from below; where the two meet with the smallest gamma, z is 1 and
    the rest follows by substitution; gamma is then the only entry of T z - shift z that is not zero (Dhillon and
    Parlett 2004). Loops over the shifts are innermost, so that they run in vector registers.
    """
    n, k = z.shape
    work = room[: (3 * n + 4) * k].reshape(3 * n + 4, k)
    a, b, below, above, pivot = form[0], form[1], work[:n], work[n : 2 * n], work[2 * n : 3 * n]
    up, where, gamma, squares = work[3 * n], work[3 * n + 1], work[3 * n + 2], work[3 * n + 3]
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
        where[j] = n - 1.0
    for i in range(n - 2, -1, -1):
        for j in range(k):
            d = up[j]
            d = d if abs(d) > TINY else TINY
            above[i, j] = b[i] / d
            up[j] = (a[i] - shifts[j]) - b[i] * above[i, j]
            meeting = abs(pivot[i, j] - b[i] * above[i, j])
            where[j] = float(i) if meeting < gamma[j] else where[j]
            gamma[j] = meeting if meeting < gamma[j] else gamma[j]
    for j in range(k):
        z[n - 1, j] = 1.0 if where[j] == n - 1.0 else 0.0
    for i in range(n - 2, -1, -1):
        for j in range(k):
            follows = -below[i, j] * z[i + 1, j]
            follows = follows if abs(follows) > TINY else 0.0  # before it is a subnormal, which are slow
            z[i, j] = 1.0 if where[j] == i else (follows if where[j] > i else 0.0)
    for i in range(n - 1):
        for j in range(k):
            follows = -above[i, j] * z[i, j]
            follows = follows if abs(follows) > TINY else 0.0
            z[i + 1, j] = follows if where[j] <= i else z[i + 1, j]
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
def turn_back(a: Any, form: Any, z: Any, total: Any) -> None:
    """Turn the columns of z (n, k), vectors of the tridiagonal form, into those of the matrix; `total` has room for k.

    The matrix and its form are as `tridiagonalise` left them.
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

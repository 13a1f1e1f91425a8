"""The largest eigenvectors of a positive semidefinite matrix G that is known only through its products, with bounds.

A block Krylov space, from a random start, gives good directions in few products. Rayleigh-Ritz on some of them gives
lower bounds on the largest eigenvalues (Cauchy). Upper bounds follow from the residuals and from a number h such that
G <= h I outside the directions. A few products cannot give h for certain, but random vectors give it with a probability
as close to 1 as one likes: a vector that is nearly orthogonal to the largest eigenvector is unlikely, and 16 of them
are almost impossible. Here h is too small with probability 1e-12 at most, for every G that does not depend on the
random numbers. docs/mathematics.md has the proofs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dtrsm
from scipy.special import gammaincinv

from robustfd.linalg.decompose import EPS, Floats

Product = Callable[[Floats], Floats]  # returns GV for a C-ordered V

SPARE = 10  # columns of a block in addition to the wanted eigenvectors, or up to 3 more
TESTS = 16  # random vectors that test the rest of the space
DEGREES = 3, 6  # products with each of them: at least, and at most
FAILURE = 1e-12  # probability that the tests miss the largest eigenvalue
# The squared length of TESTS standard normal numbers is below this with probability FAILURE.
LEAST_LENGTH = float(2.0 * gammaincinv(TESTS / 2, FAILURE))
CLEARLY_BELOW = 0.5  # of the last wanted eigenvalue: if the trace outside is smaller, no test is necessary
WELL_CONDITIONED = 1e-5
PART = 32  # columns of G that are formed at a time
MARGIN = 1e-9  # relative; above the rounding errors of h


@dataclass(frozen=True)
class Leading:
    """Orthonormal vectors near the largest eigenvectors of G."""

    vectors: Floats  # in columns
    values: Floats  # the Ritz values, descending
    outside: float  # G is at most this outside the span of the vectors


def block_size(wanted: int) -> int:
    """Return the number of columns of a block. Sparse products with multiples of 4 columns are faster."""
    return -(-(wanted + SPARE) // 4) * 4


def descending_eigh(matrix: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues of a matrix that is symmetric up to rounding, largest first, and its eigenvectors."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values[::-1], vectors[:, ::-1]


def form_leading(times: Product, size: int, most: int) -> Leading:
    """Return the `most` largest eigenvectors of a small matrix G, which is formed."""
    parts = [times(np.eye(size, min(PART, size - start), -start)) for start in range(0, size, PART)]
    values, vectors = descending_eigh(np.hstack(parts))
    return Leading(vectors[:, :most], values[:most], float(max(values[most], 0.0)) if most < size else 0.0)


def find_leading(times: Product, size: int, wanted: int, most: int, steps: int, noise: float) -> Leading:
    """Return at least `wanted` and at most `most` vectors near the largest eigenvectors of G.

    There are fewer if the rank of G is below `wanted`. G has trace 1 and more rows than `steps` blocks have columns.
    `noise` bounds the rounding errors of `times` in the spectral norm.
    """
    block = block_size(wanted)
    rng = np.random.default_rng(0)  # any fixed seed
    basis, projected, rest = _krylov_space(times, rng.standard_normal((size, block)), steps)
    values, rotation = descending_eigh(projected)
    # More vectors than a block make little difference, unless they are all: the rank is then below `most`.
    rank = np.count_nonzero(values > noise)
    keep = rank if rank <= most else min(block, most)
    outside = max(0.0, 1.0 - float(values.sum()))  # the trace of G outside the space
    if outside > CLEARLY_BELOW * values[wanted - 1]:
        enough = float(values[keep]) if keep < len(values) else 0.0  # more than this is outside the vectors in any case
        outside = min(outside, _largest_outside(times, basis, rng.standard_normal((size, TESTS)), outside, enough))
    last = rotation[-block:, keep:]  # only the last block of the space has a residual
    left = bound_eigenvalues(values[keep:], last.T @ (rest.T @ rest) @ last, outside)[0] if keep < len(values) else 0.0
    return Leading(basis @ rotation[:, :keep], values[:keep], max(outside, float(left)) + noise)


def bound_eigenvalues(values: Floats, squares: Floats, outside: float) -> Floats:
    """Return upper bounds on the largest eigenvalues of G from Ritz values, residuals and the bound h outside.

    With the residual R, `squares` is R'R. The bounds are the largest eigenvalues of [[diag(values), C'], [C, h I]] with
    C'C = R'R. They grow with C'C, so adding a bound on the rounding errors of R'R keeps them upper bounds.
    """
    lengths, vectors = np.linalg.eigh(squares)
    lengths = np.maximum(lengths, 0.0)
    lengths += len(lengths) * EPS * lengths.sum()
    r = len(values)
    whole = np.zeros((2 * r, 2 * r))
    whole[:r, :r] = np.diag(values)
    whole[r:, :r] = np.sqrt(lengths)[:, None] * vectors.T
    whole[np.arange(r, 2 * r), np.arange(r, 2 * r)] = outside
    return np.asarray(np.linalg.eigvalsh(whole)[: r - 1 : -1])


def orthonormal(x: Floats) -> tuple[Floats, Floats]:
    """Return (Q, R) with x = QR and orthonormal columns Q.

    Cholesky QR is several times faster than Householder QR, which replaces it if x is too ill-conditioned. If x is
    moderately ill-conditioned, Q is orthonormal only roughly, and a second call makes it so.
    """
    gram = x.T @ x
    root, failed = scipy.linalg.lapack.dpotrf(gram)
    if failed or not np.diag(root).min() > WELL_CONDITIONED * np.sqrt(gram.diagonal().max()):
        q, r = np.linalg.qr(x)
        return q, r
    return dtrsm(1.0, root, x, side=1), root


def _krylov_space(times: Product, start: Floats, steps: int) -> tuple[Floats, Floats, Floats]:
    """Return (X, X'GX, R): orthonormal columns X of the block Krylov space, and the residual R of its last block."""
    size, block = start.shape
    basis, projected = np.empty((size, steps * block), order="F"), np.zeros((steps * block, steps * block))
    new, _ = orthonormal(start)
    for have in range(block, steps * block + 1, block):
        now = slice(have - block, have)
        basis[:, now] = new
        image = times(np.ascontiguousarray(new))
        # In exact arithmetic the image is orthogonal to all but the last two blocks. The second projection, on all
        # blocks, removes rounding errors.
        recent = slice(max(0, have - 2 * block), have)
        projected[recent, now] = basis[:, recent].T @ image
        image -= basis[:, recent] @ projected[recent, now]
        new, factor = orthonormal(image)
        again = basis[:, :have].T @ new
        new -= basis[:, :have] @ again
        projected[:have, now] += again @ factor
        new, more = orthonormal(new)
    upper = np.triu(projected)
    return basis, upper + np.triu(upper, 1).T, new @ (more @ factor)


def _largest_outside(times: Product, basis: Floats, start: Floats, trace: float, enough: float) -> float:
    """Return h such that G is at most h I outside the span of the basis, except with probability FAILURE.

    Let P be the projection on the rest of the space, h the largest eigenvalue of PGP and u its eigenvector. For
    standard normal vectors S and a polynomial p, u'p(PGP)S = p(h) u'S. So p(h)^2 |u'S|^2 <= ||p(PGP)S||^2, where
    |u'S|^2 is at least LEAST_LENGTH. This bounds h, because p increases beyond its largest root. The smallest bound of
    several p counts. Each further product allows a higher degree. The loop ends when the bound is at most `enough`.
    """
    power = start - basis @ (basis.T @ start)
    moments, best, (least, most) = [power.T @ power], np.inf, DEGREES
    for degree in range(1, most + 1):
        image = times(np.ascontiguousarray(power))
        image -= basis @ (basis.T @ image)
        image /= trace
        moments += [power.T @ image, image.T @ image]
        power = image
        if degree >= least:
            best = min(best, trace * _bound(np.array(moments)))
            if best <= enough:
                break
    return best * (1.0 + MARGIN)


def _bound(moments: Floats) -> float:
    """Return the bound h of `_largest_outside` from the moments S'(PGP)^i S."""
    count = len(moments)
    unit = float(np.linalg.eigvalsh(moments[-1])[-1] / LEAST_LENGTH) ** (1 / (count - 1))
    if not unit > 0.0:
        return 0.0
    moments = (moments + moments.transpose(0, 2, 1)) / 2 / unit ** np.arange(float(count))[:, None, None]
    best = 1.0  # in these units, the bound from a power of x
    polynomials, squares = _polynomials(count // 2)
    limits = np.linalg.eigvalsh(np.tensordot(squares, moments, 1))[:, -1] / LEAST_LENGTH
    for (roots, extra), limit in zip(polynomials, limits.tolist(), strict=True):
        best = _largest_argument(roots, extra, limit, best)
    return best * unit


@cache
def _polynomials(degree: int) -> tuple[list[tuple[list[float], int]], Floats]:
    """Return polynomials x^extra p(x)^2 of up to twice this degree: the roots of p with extra, and the coefficients.

    p is a Chebyshev polynomial of [0, top], or x times one.
    """
    polynomials, squares = [], []
    for top in np.linspace(0.1, 0.9, 9):
        for zeros, extra in ((0, 0), (0, 1), (1, 0), (1, 1)):
            count = degree - zeros - extra
            roots = top / 2 * (1.0 + np.cos(np.pi * (np.arange(count) + 0.5) / count))
            p = np.poly(np.append(roots, np.zeros(zeros)))[::-1]
            polynomials.append(([*roots.tolist(), *[0.0] * zeros], extra))
            squares.append(np.convolve(np.convolve(p, p), np.eye(1, extra + 1, extra)[0]))
    return polynomials, np.array([np.pad(each, (0, 2 * degree + 1 - len(each))) for each in squares])


def _largest_argument(roots: list[float], extra: int, limit: float, above: float) -> float:
    """Return the largest x with x^extra prod (x - roots)^2 <= limit, rounded up; `above` if it is larger."""

    def exceeds(x: float) -> bool:
        return x**extra * math.prod(x - root for root in roots) ** 2 > limit

    below = max(roots)
    if above <= below or not exceeds(above):
        return above
    for _ in range(40):
        x = (below + above) / 2
        below, above = (below, x) if exceeds(x) else (x, above)
    return above

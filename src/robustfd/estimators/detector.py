"""Streaming outlier detection by Mahalanobis distance under a sketched covariance."""

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, ndtri
from sklearn.base import OutlierMixin
from sklearn.utils import assert_all_finite

from robustfd._container import Document, Tensors
from robustfd._validation import check_real, check_rows, check_weights
from robustfd.estimators._sketched import SketchEstimator
from robustfd.learners.snapshot import Parts
from robustfd.linalg.decompose import Floats
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.exact import ExactSecondMoment

BLOCK = 2**20  # matrix entries processed at once
AUTO_SIGMAS = 3.0  # contamination="auto": standard deviations above the median
FLOOR = 1e-10  # smallest variance outside the span of the rows, relative to the mean variance of a feature
GROWTH = 0.25  # the scoring model is replaced when the row count has grown by this fraction (plus a buffer)
EXACT_GROWTH = 1.0  # the same with the exact covariance, where all d eigenvalues must be computed
REFITS = 2  # number of times `trim` drops the farthest rows and fits again

# Scores are counted in logarithmic bins, 256 per octave. That is finer than the relative spread of the distances, about
# sqrt(2/d), up to d = 100,000. EDGES holds the upper edges; the first and the last bin are open-ended.
PER_OCTAVE, LOWEST, HIGHEST = 256, -24, 40
EDGES = 2.0 ** (np.arange((HIGHEST - LOWEST) * PER_OCTAVE) / PER_OCTAVE + LOWEST)


@dataclass(frozen=True)
class _Model:
    """The mean and the covariance that define the distances."""

    mean: Floats
    covariance: LowRankPlusIdentity

    @classmethod
    def of(cls, rfd: Any) -> "_Model":
        mean, m = rfd.mean_, rfd.covariance(ddof=0)
        if m.alpha == 0.0 and len(m.components) == len(mean):  # the rows span all directions
            return cls(mean, m)
        # The second term bounds the rounding error in a sparse row's distance from a large mean. If all rows are zero,
        # both terms are zero and distances are Euclidean.
        floor = FLOOR * m.trace() / len(mean) + np.finfo(float).eps * float(mean @ mean) or 1.0
        alpha = max(m.alpha, floor)
        lam = np.maximum(m.low_rank_eigenvalues + (m.alpha - alpha), 0.0)
        return cls(mean, LowRankPlusIdentity(m.components, lam, alpha))

    @one_blas_thread()
    def distances(self, x: Any) -> Floats:
        """Return the squared distances of the rows, converted to float64 one block at a time."""
        step = max(1, BLOCK // x.shape[1])
        blocks = (_double(x[start : start + step]) for start in range(0, x.shape[0], step))
        with np.errstate(over="ignore"):  # an infinite distance is fine for a row outside the span
            return np.concatenate([np.zeros(0), *(self.covariance.mahalanobis(b, self.mean) for b in blocks)])


class MahalanobisDetector(OutlierMixin, SketchEstimator):
    """Streaming outlier detector based on the Mahalanobis distance.

    The score of a row is its squared Mahalanobis distance under the covariance of the rows seen so far. The covariance
    is exact for a moderate number of features and comes from a `RobustFrequentDirections` sketch otherwise. The
    detector needs one pass and constant memory, and never makes sparse rows dense. It also learns the threshold from
    the stream: each row is scored on arrival by an earlier model, and the scores are counted in a fixed histogram.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        With "auto", the detector keeps the exact covariance for up to 200 features and a sketch of m = 50 rows for
        more. An integer m of at least 2 always uses a sketch of m rows. A sketch has m - 1 directions and assumes the
        same variance in all others. It finds more outliers than the exact covariance when many directions have almost
        no variance, as in images.
    contamination : "auto" or float in (0, 0.5], default="auto"
        The fraction of rows to flag as outliers. "auto" learns it from the scores: see Notes.
    buffer_size : int, optional
        Rows of the sketch and its buffer together before a shrink step. The default is that of `SketchedPCA`.
    decay : float in (0, 1], default=1.0
        Factor applied to the weight of all earlier rows before each new row. With `decay` < 1, the model and the
        threshold follow a drifting stream.
    solver : {"auto", "svd"}, default="auto"
        How the sketch decomposes its buffer.
    window : float, optional
        Number of most recent rows to learn from: another way to follow a drifting stream. With `sketch_size="auto"` and
        up to 350 features, the detector keeps exact matrices of 32 blocks of rows and weights the oldest block by the
        fraction of it that is inside the window. Otherwise it keeps a `SlidingFrequentDirections` sketch.
        `buffer_size`, `decay` and `solver` must keep their defaults.
    trim : float in [0, 0.5], default=0.0
        Fraction of rows, the farthest ones, that `fit` drops before it fits again, twice. Outliers among the first rows
        then do not count as normal. This helps against scattered outliers, but not against a tight cluster of them that
        has shifted the mean.

    Attributes
    ----------
    sketch_ : ExactSecondMoment, ExactWindow, RobustFrequentDirections or SlidingFrequentDirections
        The summary of the centred rows.
    offset_ : float
        The threshold: rows with `score_samples` below it are outliers.
    contamination_ : float
        The fraction of the stream (after `fit`: of X) that is above the threshold distance. Before any row has been
        scored, the fraction expected for Gaussian rows.
    location_ : ndarray of shape (n_features,)
        The mean.
    n_samples_seen_ : int
        Number of rows seen, not counting rows of weight 0.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    sklearn.covariance.EllipticEnvelope : Mahalanobis distances under a robust covariance, for data in memory.
    sklearn.ensemble.IsolationForest : Outlier detection with random trees, for data in memory.
    SketchedPCA : Principal components from the same kind of sketch.

    Notes
    -----
    New rows are scored by a copy of the model that is replaced at certain row counts. The first copy is made after
    `buffer_size` rows (2 m by default). It is replaced when the count has grown by a quarter plus one buffer; the
    quarter is of 1 / (1 - decay) rows or of the window if that is less. With the exact covariance, whose eigenvalues
    are expensive, the first copy is made after at least n_features rows and replaced when the count has doubled. The
    schedule depends on the row count alone, so batch sizes do not matter. Each replacement halves the counts in the
    histogram, because early models give scores that are too large. Before the first copy exists, the threshold is the
    chi-square quantile with n_features degrees of freedom. `fit` has all rows available and takes the threshold from
    their scores under the final model instead.

    "auto" places the threshold so that 0.13 % of the scores would exceed it if the rows were Gaussian. The cube root of
    a chi-square variable is almost normal (Wilson & Hilferty 1931) for any number of degrees of freedom and any scale.
    (A sketch changes the scale.) The threshold on the cube roots is therefore the median plus three standard
    deviations, where one standard deviation is (upper quartile - median) / 0.6745. The upper quartile is used instead
    of the median absolute deviation because real scores are skewed to the right and often tied.

    Clean data may therefore have no outliers at all. About 0.1 to 0.4 % of new Gaussian rows are flagged, and 1 to 2 %
    of rows with heavy tails. A few compact clusters have no tail: all their rows are about equally far from the common
    mean, and none is flagged. Set `contamination` to flag a fixed fraction in any case.

    In a direction in which the stream never varied, the detector assumes a variance of 1e-10 times the mean variance of
    a feature. (A pseudo-inverse would ignore the direction.) A row outside the span of all earlier rows is therefore
    far away. Only relative weights matter, because the covariance is divided by their sum.

    "Robust" has the meaning of the paper, not robustness against outliers: outliers enter the mean and the covariance
    like all other rows. A few do little harm. A large group of similar ones looks normal.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import MahalanobisDetector
    >>> rng = np.random.default_rng(0)
    >>> detector = MahalanobisDetector(sketch_size=10, contamination=0.05)
    >>> for _ in range(100):
    ...     detector = detector.partial_fit(rng.standard_normal((50, 20)))
    >>> X = rng.standard_normal((2000, 20))
    >>> print(f"{np.mean(detector.predict(X) == -1):.2f}")
    0.05
    >>> X[7] *= 5.0
    >>> int(detector.score_samples(X).argmin())
    7
    """

    _features_per_row: ClassVar[int] = 4  # all eigenvalues are needed repeatedly

    offset_: float
    contamination_: float

    _scorer: _Model | None
    _due: int  # the row count at which the scoring model is replaced
    _counts: Floats  # weight of the scored rows in each bin

    def __init__(
        self,
        sketch_size: Literal["auto"] | int = "auto",
        *,
        contamination: float | str = "auto",
        buffer_size: int | None = None,
        decay: float = 1.0,
        solver: str = "auto",
        window: float | None = None,
        trim: float = 0.0,
    ):
        self.sketch_size = sketch_size
        self.contamination = contamination
        self.buffer_size = buffer_size
        self.decay = decay
        self.solver = solver
        self.window = window
        self.trim = trim

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the detector to X from scratch and set the threshold from the scores of X.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            The rows.
        y : ignored
        sample_weight : array of shape (n,), optional
            Row weights. Rows of weight 0 are ignored.

        Returns
        -------
        self
        """
        new, trim = copy.copy(self), check_real("trim", self.trim, 0.0, 0.5)
        if trim > 0 and self.window is not None:
            raise ValueError(f"trim must be 0 with window={self.window!r}, got {trim:g}.")
        x, weight = new._learn(X, sample_weight, reset=True)
        for _ in range(REFITS if trim > 0 else 0):
            distances = new._model().distances(x)
            near = distances <= _quantile(distances, weight, 1.0 - trim)
            new._learn(x, np.where(near, weight, 0.0), reset=True, named=False)
        if self.window is not None:  # the model does not include rows that have left the window
            x, weight = x[-math.ceil(self.window) :], weight[-math.ceil(self.window) :]
        new._set_threshold(new._model().distances(x), weight)
        self.__dict__ = new.__dict__  # only now, so that an error leaves the detector unchanged
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows. The result does not depend on the batch sizes.

        The parameters and the return value are those of `fit`. X may have any number of rows, and none after the first
        call.
        """
        new = copy.copy(self)
        new._learn(X, sample_weight, reset=not self.__sklearn_is_fitted__())
        new._use_histogram()
        self.__dict__ = new.__dict__
        return self

    def learn_one(self, x: Any, sample_weight: float = 1.0) -> Self:
        """Learn from one row.

        Parameters
        ----------
        x : dict or array of shape (d,)
            The row. A dict maps names of features to numbers; a string creates a feature "name=value" of value 1, and
            absent features are 0. New features may appear at any time. A detector that starts with a dict always keeps
            a sketch, of 50 rows if `sketch_size="auto"`.
        sample_weight : float, default=1.0
            Weight of the row. A row of weight 0 is ignored.

        Returns
        -------
        self
        """
        self._learn_one(x, sample_weight)
        return self

    def score_one(self, x: Any) -> float:
        """Return the squared Mahalanobis distance of one row, as for `learn_one`; 0 before the first row.

        The higher, the less normal. Rows above `-offset_` are outliers.
        """
        one, row, _ = self._single_row(x)
        return float(one._model().distances(row)[0]) if self.__sklearn_is_fitted__() else 0.0

    def _widen_own(self) -> None:
        self._scorer = self._scorer and _Model.of(self.sketch_)

    def _merge_own(self, other: "MahalanobisDetector", *, fitted: bool) -> None:
        if fitted:
            # Each scoring model has seen only a part of the rows: halve the counts, as at every replacement.
            self._counts = (self._counts + other._counts) / 2
            self._renew(self.sketch_.n_samples_seen_)
        else:
            self._scorer, self._due, self._counts = other._scorer, other._due, other._counts
        self._use_histogram()

    def mahalanobis(self, X: Any) -> Floats:
        """Return the squared Mahalanobis distances of the rows of X from the mean."""
        self._fitted()
        x = check_rows(self, X, reset=False)
        assert_all_finite(x, input_name="X")
        return self._model().distances(x)

    def score_samples(self, X: Any) -> Floats:
        """Return the negative squared Mahalanobis distances: the higher, the more normal."""
        return -self.mahalanobis(X)

    def decision_function(self, X: Any) -> Floats:
        """Return `score_samples` minus `offset_`: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return +1 for rows that look normal and -1 for outliers."""
        return np.where(self.score_samples(X) >= self.offset_, 1, -1)

    @property
    def location_(self) -> Floats:
        """The mean of the rows."""
        return self._fitted().mean_

    def _model(self) -> _Model:
        """Return the model of all rows seen, cached until more arrive."""
        return self._cached("model", lambda: _Model.of(self.sketch_))

    @property
    def _unit(self) -> int:
        """The minimum number of rows between two replacements of the scoring model."""
        unit = 2 * self._check_size() if self.buffer_size is None else self.buffer_size
        return max(unit, self.n_features_in_) if isinstance(self.sketch_, ExactSecondMoment) else unit

    def _renew(self, seen: int) -> None:
        """Replace the scoring model by the current model."""
        self._scorer = _Model.of(self.sketch_)
        memory = 1.0 / max(1.0 - float(self.decay), 1e-16) if self.window is None else self.window
        growth = EXACT_GROWTH if isinstance(self.sketch_, ExactSecondMoment) else GROWTH
        self._due = seen + self._unit + int(growth * min(seen, memory))

    def _learn(self, X: Any, sample_weight: Any, *, reset: bool, named: bool = True) -> tuple[Any, Floats]:
        """Score the rows and add them to the sketch. Return the rows of positive weight and their weights.

        With `named=False`, the rows are an array that an earlier call returned, and column names are not checked.
        """
        if self.contamination != "auto":
            check_real('contamination, if not "auto",', self.contamination, 0.0, 0.5, open_low=True)
        self._check_size()
        x = check_rows(self, X, reset=reset and named)
        weight = check_weights(sample_weight, x.shape[0])
        if reset and not weight.any():
            raise ValueError("sample_weight must be positive for at least one of the first rows, got only zeros.")
        self.sketch_, self._cache = self._sketch_for(x, reset=reset), {}
        if reset:
            self.sketch_._check_parameters()
            self._scorer, self._due, self._counts = None, self._unit, np.zeros(len(EDGES))
        rfd, seen = self.sketch_, 0 if reset else self.sketch_.n_samples_seen_
        if not weight.any():  # no row to learn from, but the parameters are still checked
            rfd.partial_fit(_double(x[:0]))
        if not weight.all():
            x, weight = x[weight > 0], weight[weight > 0]
        assert_all_finite(x, input_name="X")
        start = 0
        while start < len(weight):
            part = slice(start, start + min(self._due - seen, max(1, BLOCK // x.shape[1])))
            rows, w = _double(x[part]), weight[part]
            rfd.partial_fit(rows, sample_weight=w)
            if self._scorer is not None:
                self._counts = self._counts + _histogram(self._scorer.distances(rows), w)
            start, seen = start + len(w), seen + len(w)
            if seen == self._due:
                self._counts = self._counts / 2
                self._renew(seen)
        return x, weight

    def _use_histogram(self) -> None:
        """Set the threshold from the histogram of scores."""
        judged = np.flatnonzero(self._counts)
        self._set_threshold(EDGES[judged], self._counts[judged])

    def _pack_own(self) -> tuple[Document, Tensors]:
        own = {"due": self._due, "offset": self.offset_, "contamination": self.contamination_, "judge": None}
        if self._scorer is None:
            return own, {"counts": self._counts}
        mean, m = self._scorer.mean, self._scorer.covariance
        arrays = {"mean": mean, "components": m.components, "lam": m.low_rank_eigenvalues, "counts": self._counts}
        return own | {"judge": m.alpha}, arrays

    def _unpack_own(self, parts: Parts) -> None:
        d, alpha = self.n_features_in_, parts.text("judge")
        self._due, self._scorer = parts.count("due"), None
        self.offset_, self.contamination_ = parts.number("offset"), parts.number("contamination", 0.0)
        self._counts = parts.array("counts", len(EDGES), least=0.0)
        if self._due <= self.sketch_.n_samples_seen_:
            raise ValueError(f"due is {self._due}")
        if alpha is not None:
            mean, r = parts.array("mean", d), parts.shape("lam", 1)[0]
            lam, v = parts.array("lam", r, least=0.0), parts.array("components", r, d)
            self._scorer = _Model(mean, LowRankPlusIdentity(v, lam, check_real("judge", alpha, 0.0)))

    def _set_threshold(self, distances: Floats, weight: Floats) -> None:
        """Set `offset_` and `contamination_` from weighted distances of rows or of histogram bins."""
        auto = self.contamination == "auto"
        share = float(ndtr(-AUTO_SIGMAS)) if auto else float(self.contamination)
        if not len(distances):
            self.offset_ = -float(chdtri(self.n_features_in_, share))
            self.contamination_ = float(share)
            return
        if auto:
            median, upper = np.cbrt(_quantile(distances, weight, 0.5)), np.cbrt(_quantile(distances, weight, 0.75))
            limit = (median + AUTO_SIGMAS * (upper - median) / ndtri(0.75)) ** 3
        else:
            limit = _quantile(distances, weight, 1.0 - share)
        limit *= 1.0 + 1e-9  # keeps the row at the quantile inside, despite rounding errors
        self.offset_ = -float(limit)
        self.contamination_ = float(weight[distances > limit].sum() / weight.sum())


def _double(x: Any) -> Any:
    return x.astype(np.float64, copy=False)


def _histogram(distances: Floats, weight: Floats) -> Floats:
    """Return the total weight in each bin of EDGES."""
    place = np.minimum(np.searchsorted(EDGES, distances), len(EDGES) - 1)
    return np.bincount(place, weight, len(EDGES)).astype(np.float64)


def _quantile(values: Floats, weight: Floats, q: float) -> float:
    """Return the smallest value such that at least a fraction q of the weight is at or below it."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    place = np.searchsorted(total, q * total[-1] * (1.0 - 1e-12))
    return float(values[order[place]])

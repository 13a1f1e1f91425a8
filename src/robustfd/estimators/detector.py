"""Outliers of a stream, by their Mahalanobis distance under a sketched covariance."""

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, ndtri
from sklearn.base import OutlierMixin
from sklearn.utils import assert_all_finite

from robustfd._container import Document, Tensors
from robustfd._validation import check_real, check_rows, check_weights
from robustfd.estimators._sketched import Sketch, SketchEstimator
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.threads import one_blas_thread
from robustfd.online.snapshot import Parts
from robustfd.sketch.exact import ExactSecondMoment

Floats = NDArray[np.float64]

BLOCK = 2**20  # entries of the rows that are worked on at once
AUTO_SIGMAS = 3.0  # "auto": so many standard deviations above the median
FLOOR = 1e-10  # the least variance off the span of the rows, as a share of the mean variance of a feature
GROWTH = 0.25  # a judge is renewed when the stream has grown by this share (and a buffer)
EXACT_GROWTH = 1.0  # the same if all d eigenvalues have to be computed for it
SIZE = 50  # rows of the sketch, if there is one and nothing else was asked for
REFITS = 2  # of rows without those that are furthest away

# Scores are counted in bins by their logarithm, 256 an octave: finer than the spread of the distances, about
# sqrt(2/d) of them, up to d = 100 000. EDGES are the upper edges; the first and the last bin have no other end.
PER_OCTAVE, LOWEST, HIGHEST = 256, -24, 40
EDGES = 2.0 ** (np.arange((HIGHEST - LOWEST) * PER_OCTAVE) / PER_OCTAVE + LOWEST)


@dataclass(frozen=True)
class _Model:
    """A mean and a covariance to measure distances with."""

    mean: Floats
    covariance: LowRankPlusIdentity

    @classmethod
    def of(cls, rfd: Sketch) -> "_Model":
        mean, m = rfd.mean_, rfd.covariance(ddof=0)
        if m.alpha == 0.0 and len(m.components) == len(mean):  # nothing is off the span
            return cls(mean, m)
        # The second term is what rounding can make of a sparse row's distance from a large mean. With neither
        # spread nor size to go by, all rows being zero, distances are Euclidean.
        floor = FLOOR * m.trace() / len(mean) + np.finfo(float).eps * float(mean @ mean) or 1.0
        alpha = max(m.alpha, floor)
        lam = np.maximum(m.low_rank_eigenvalues + (m.alpha - alpha), 0.0)
        return cls(mean, LowRankPlusIdentity(m.components, lam, alpha))

    @one_blas_thread()
    def distances(self, x: Any) -> Floats:
        """Return squared distances of the rows, which are made float64 a block at a time."""
        step = max(1, BLOCK // x.shape[1])
        blocks = (_double(x[start : start + step]) for start in range(0, x.shape[0], step))
        with np.errstate(over="ignore"):  # off the span of all rows seen, infinitely far is far enough
            return np.concatenate([np.zeros(0), *(self.covariance.mahalanobis(b, self.mean) for b in blocks)])


class MahalanobisDetector(OutlierMixin, SketchEstimator):
    """Streaming outlier scores: squared Mahalanobis distances under the covariance of the rows so far.

    The covariance is exact for a moderate number of features, and that of a `RobustFrequentDirections` sketch for more.
    One pass, constant memory, sparse rows stay sparse. The threshold is learnt from the stream too: rows are scored
    when they arrive, by the model as it stood before them, and the scores are kept as counts in a fixed histogram.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        By default the exact covariance is kept for up to 200 features, and else a sketch of m = 50 rows. An integer
        of at least 2 fixes a sketch of m rows. It takes what is beyond its m - 1 directions to vary alike in all
        others. That finds more than the exact covariance does where many directions have next to no variance, as in
        pictures.
    buffer_size : int, optional
        Rows held in all before a shrink, default 4 `sketch_size`, 8 if the first rows are sparse, and neither between
        n_features / 2 and 2 n_features.
    decay, solver : as for `RobustFrequentDirections`
        With `decay` < 1 the model and the threshold follow a drifting stream.
    trim : float in [0, 0.5], default=0.0
        For `fit`, which has all rows at hand: twice, the share of rows that are furthest away is left out and the
        model is learnt anew from the others, so that outliers among the first rows do not count as normal. It helps
        against scattered outliers, and not against a tight group of them, which has made itself the middle.
    window : float, optional
        Learn from the last so many rows only: another way to follow a drifting stream. With `sketch_size="auto"` and up
        to 350 features the exact matrix is kept in 32 blocks of rows, of which the oldest counts by its share in the
        window; else it is a `SlidingFrequentDirections` sketch. `buffer_size`, `decay` and `solver` must be left as
        they are.
    contamination : "auto" or float in (0, 0.5], default="auto"
        The share of rows to call outliers. "auto" learns it: see Notes.

    Attributes
    ----------
    sketch_ : ExactSecondMoment, ExactWindow, RobustFrequentDirections or SlidingFrequentDirections
        What is kept of the centred rows.
    offset_ : float
        The threshold: rows with `score_samples` below it are outliers.
    contamination_ : float
        The share of the stream (after `fit`: of X) beyond the threshold. Before the first judge, what is
        expected of normally distributed rows.
    location_ : ndarray of shape (n_features,)
        The mean.
    n_samples_seen_ : int
    n_features_in_ : int

    Notes
    -----
    The judge is the model frozen at certain row counts: first after `buffer_size` rows, 2 m by default, then whenever
    the count has grown by a quarter (of 1 / (1 - decay) rows or of the window, if that is less) and a buffer. With the
    exact covariance, whose eigenvalues take long, it is n_features rows if that is more, and the count doubles. All
    that depends on the count alone, so it does not matter how the stream is cut into batches. At every renewal the
    counts in the histogram are halved: scores by young models, which are too large, fade. Before the first renewal the
    threshold is the chi-square quantile with n_features degrees of freedom. `fit` has all rows at hand and
    takes the threshold from their scores under the final model instead.

    "auto" puts the threshold where, if the middle of the scores is that of Gaussian rows, only 0.13 % of them
    are beyond. The cube root of a chi-square variable is almost normal (Wilson & Hilferty 1931), whatever the
    degrees of freedom and the scale, which a sketch changes. So the threshold is, of the cube roots, the median
    plus three standard deviations, one being (upper quartile - median) / 0.6745. The upper quartile
    and not the median absolute deviation, because real scores lean to the right, and many may be equal.

    So clean data may have no outliers at all. Of Gaussian rows about 0.1 to 0.4 % of new ones are flagged, of rows with
    heavy tails 1 to 2 %. A few compact clusters have no tail: the distances of their rows from the common mean are all
    alike, none is far beyond the others, and none is flagged. To have a given share flagged in any case, set
    `contamination`.

    Along a direction in which the stream never varied the variance is taken to be 1e-10 of the mean variance
    of a feature, where the pseudo-inverse would ignore the direction: a row that leaves the span of all
    rows before is far away, a row within it is not. Weights count relative to each other (the covariance is
    divided by their sum).

    The sketch is robust in the paper's sense, not against outliers: they enter mean and covariance like all
    other rows. A few do little harm; a large group of similar ones makes itself look normal.

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

    _features_per_row: ClassVar[int] = 4  # all eigenvalues are needed, again and again

    offset_: float
    contamination_: float

    _judge: _Model | None
    _due: int  # the row count at which the judge is to be renewed
    _counts: Floats  # weight of the judged rows in each bin

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
        """Forget everything, learn from X, and take the threshold from the scores of X itself.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
            0 is as if the row were not there.

        Returns
        -------
        self
        """
        new, trim = copy.copy(self), check_real("trim", self.trim, 0.0, 0.5)
        if trim > 0 and self.window is not None:
            raise ValueError(f"trim={trim:g} is for sketches of all rows: with window={self.window!r} leave it at 0.")
        x, weight = new._take(X, sample_weight, anew=True)
        for _ in range(REFITS if trim > 0 else 0):
            distances = new._model().distances(x)
            near = distances <= _quantile(distances, weight, 1.0 - trim)
            new._take(x, np.where(near, weight, 0.0), anew=True, named=False)
        if self.window is not None:  # rows that left the window are none that the model knows
            x, weight = x[-math.ceil(self.window) :], weight[-math.ceil(self.window) :]
        new._set_threshold(new._model().distances(x), weight)
        self.__dict__ = new.__dict__  # all or nothing: an error leaves the detector as it was
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from the rows of X after those before; how rows are cut into batches does not matter.

        Parameters and result are those of `fit`. X may have any number of rows, after the first call also
        none.
        """
        new = copy.copy(self)
        new._take(X, sample_weight, anew=not self.__sklearn_is_fitted__())
        new._use_histogram()
        self.__dict__ = new.__dict__
        return self

    def _merge_own(self, other: "MahalanobisDetector", *, begun: bool) -> None:
        if begun:
            # Both judges have seen a part of the rows only: theirs count half, as at every renewal.
            self._counts = (self._counts + other._counts) / 2
            self._renew(self.sketch_.n_samples_seen_)
        else:
            self._judge, self._due, self._counts = other._judge, other._due, other._counts
        self._use_histogram()

    def mahalanobis(self, X: Any) -> Floats:
        """Return the squared Mahalanobis distances of the rows of X from the mean."""
        self._fitted()
        x = check_rows(self, X, reset=False)
        assert_all_finite(x, input_name="X")
        return self._model().distances(x)

    def score_samples(self, X: Any) -> Floats:
        """Return minus the squared Mahalanobis distances: the higher, the more normal."""
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
        mean: Floats = self._fitted().mean_
        return mean

    def _auto_size(self) -> int:
        return SIZE

    def _model(self) -> _Model:
        """Return the model after all rows, kept until there are more."""
        if "model" not in self._kept:
            self._kept["model"] = _Model.of(self.sketch_)
        model: _Model = self._kept["model"]
        return model

    @property
    def _unit(self) -> int:
        """How many rows must come at least before a judge is renewed."""
        unit = 2 * self._check_size() if self.buffer_size is None else self.buffer_size
        return max(unit, self.n_features_in_) if isinstance(self.sketch_, ExactSecondMoment) else unit

    def _renew(self, seen: int) -> None:
        """Make the model as it is now the judge."""
        self._judge = _Model.of(self.sketch_)
        memory = 1.0 / max(1.0 - float(self.decay), 1e-16) if self.window is None else self.window
        growth = EXACT_GROWTH if isinstance(self.sketch_, ExactSecondMoment) else GROWTH
        self._due = seen + self._unit + int(growth * min(seen, memory))

    def _take(self, X: Any, sample_weight: Any, *, anew: bool, named: bool = True) -> tuple[Any, Floats]:
        """Judge the rows and sketch them; return those of positive weight, and their weights.

        If they are not `named`, they are rows that were taken before, and their columns are known.
        """
        if self.contamination != "auto":
            check_real('contamination, if not "auto",', self.contamination, 0.0, 0.5, open_low=True)
        self._check_size()
        x = check_rows(self, X, reset=anew and named)
        weight = check_weights(sample_weight, x.shape[0])
        if anew and not weight.any():
            raise ValueError("Every sample_weight is zero: there is nothing to start from.")
        if anew:
            self.sketch_ = self._new_sketch(x.shape[1], sparse=sp.issparse(x), center=True)
            self.sketch_._check_parameters()
            self._judge, self._due, self._counts = None, self._unit, np.zeros(len(EDGES))
        else:
            self.sketch_ = self._next_sketch()
        self._kept = {}
        rfd, seen = self.sketch_, 0 if anew else self.sketch_.n_samples_seen_
        if not weight.any():  # nothing to learn, but something to check
            rfd.partial_fit(_double(x[:0]))
        if not weight.all():
            x, weight = x[weight > 0], weight[weight > 0]
        assert_all_finite(x, input_name="X")
        start = 0
        while start < len(weight):
            part = slice(start, start + min(self._due - seen, max(1, BLOCK // x.shape[1])))
            rows, w = _double(x[part]), weight[part]
            rfd.partial_fit(rows, sample_weight=w)
            if self._judge is not None:
                self._counts = self._counts + _histogram(self._judge.distances(rows), w)
            start, seen = start + len(w), seen + len(w)
            if seen == self._due:
                self._counts = self._counts / 2
                self._renew(seen)
        return x, weight

    def _use_histogram(self) -> None:
        """Set the threshold from the scores of the stream."""
        judged = np.flatnonzero(self._counts)
        self._set_threshold(EDGES[judged], self._counts[judged])

    def _pack_own(self) -> tuple[Document, Tensors]:
        own = {"due": self._due, "offset": self.offset_, "contamination": self.contamination_, "judge": None}
        if self._judge is None:
            return own, {"counts": self._counts}
        mean, m = self._judge.mean, self._judge.covariance
        arrays = {"mean": mean, "components": m.components, "lam": m.low_rank_eigenvalues, "counts": self._counts}
        return own | {"judge": m.alpha}, arrays

    def _unpack_own(self, parts: Parts) -> None:
        d, alpha = self.n_features_in_, parts.text("judge")
        self._due, self._judge = parts.count("due"), None
        self.offset_, self.contamination_ = parts.number("offset"), parts.number("contamination", 0.0)
        self._counts = parts.array("counts", len(EDGES), least=0.0)
        if self._due <= self.sketch_.n_samples_seen_:
            raise ValueError(f"due is {self._due}")
        if alpha is not None:
            mean, r = parts.array("mean", d), parts.shape("lam", 1)[0]
            lam, v = parts.array("lam", r, least=0.0), parts.array("components", r, d)
            self._judge = _Model(mean, LowRankPlusIdentity(v, lam, check_real("judge", alpha, 0.0)))

    def _set_threshold(self, distances: Floats, weight: Floats) -> None:
        """Set `offset_` and `contamination_` from the distances of rows, or of bins of rows."""
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
        limit *= 1.0 + 1e-9  # the row that is the quantile is within, also when rounding differs
        self.offset_ = -float(limit)
        self.contamination_ = float(weight[distances > limit].sum() / weight.sum())


def _double(x: Any) -> Any:
    return x.astype(np.float64, copy=False)


def _histogram(distances: Floats, weight: Floats) -> Floats:
    """Return the weight in each bin."""
    with np.errstate(divide="ignore"):
        place = np.ceil((np.log2(distances) - LOWEST) * PER_OCTAVE)
    place = np.clip(place, 0, len(EDGES) - 1).astype(np.intp)
    return np.bincount(place, weight, len(EDGES)).astype(np.float64)


def _quantile(values: Floats, weight: Floats, q: float) -> float:
    """Return the smallest value such that at least the share q of the weight is not above it."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    place = np.searchsorted(total, q * total[-1] * (1.0 - 1e-12))
    return float(values[order[place]])

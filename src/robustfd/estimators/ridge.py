"""One-pass ridge regression from a robust sketch of A'A and the exact A'b."""

import copy
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length

from robustfd._container import Document, Tensors
from robustfd._validation import changed, check_choice, check_real, check_rows, check_weights
from robustfd.estimators._sketched import SIZE, SketchEstimator, SketchSizeWarning, exact_is_better
from robustfd.learners.snapshot import Parts
from robustfd.linalg.decompose import Floats
from robustfd.linalg.operator import BLOCK, LowRankPlusIdentity
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.exact import ExactSecondMoment, WindowedSums
from robustfd.sketch.view import View


@dataclass(frozen=True)
class Moments:
    """Total weight, means (0 without centring) and cross moment of rows x and targets y."""

    weight: float
    x_mean: Floats
    y_mean: Floats
    cross: Floats  # sum of w (x - x_mean)(y - y_mean)'

    @classmethod
    def of(cls, x: Any, y: Floats, weight: Floats, *, center: bool) -> "Moments":
        """Return the moments of one or more rows without making sparse rows dense."""
        total = float(weight.sum())
        x_mean, y_mean = np.zeros(x.shape[1]), np.zeros(y.shape[1])
        if center:
            x_mean, y_mean = np.asarray(x.T @ weight) / total, weight @ y / total
        wy = weight[:, None] * (y - y_mean)
        if sp.issparse(x):
            # The sum of wy is 0 except for rounding errors, which a large mean would amplify.
            return cls(total, x_mean, y_mean, np.asarray(x.T @ wy) - np.outer(x_mean, wy.sum(axis=0)))
        return cls(total, x_mean, y_mean, (x - x_mean).T @ wy)

    def faded(self, factor: float) -> "Moments":
        """Return the moments with all weights multiplied by factor."""
        return replace(self, weight=factor * self.weight, cross=factor * self.cross)

    def plus(self, other: "Moments") -> "Moments":
        """Return the combined moments."""
        n, k = self.weight, other.weight
        if n + k == 0:
            return self
        x, y = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        between = np.outer(n * (k / (n + k)) * x, y)
        share = k / (n + k)
        return Moments(n + k, self.x_mean + share * x, self.y_mean + share * y, self.cross + other.cross + between)


class SketchedRidge(RegressorMixin, SketchEstimator):
    r"""Streaming ridge regression in one pass and constant memory.

    Let A be the rows and b the targets, both centred if there is an intercept. Ridge regression minimises
    ||A w - b||^2 + r ||w||^2, so H w = A'b with H = A'A + r I. The estimator keeps the exact A'b. For a moderate number
    of features it also keeps the exact A'A, and the solution is that of `sklearn.linear_model.Ridge`. For more
    features, it approximates H by M = B'B + alpha I from a `RobustFrequentDirections` sketch with alpha0 = r:

    .. math::

        w = M^{-1} A'b, \qquad \|M - H\|_2 \le \varepsilon, \qquad
        \|w - H^{-1} A'b\| \le \frac{\varepsilon}{\lambda_{\min}(M) - \varepsilon} \|w\|
        \quad \text{if } \varepsilon < \lambda_{\min}(M),

    Here epsilon is `sketch_.error_bound_`, which is at most ||A - A_k||_F^2 / (2 (m - k)) for every k < m. The
    denominator is never below r. The solution is exact while the rank of A is below m. If epsilon is above r, the
    sketch regularises more than requested, and the estimator issues a `SketchSizeWarning` that states a sufficient
    `sketch_size`.

    Parameters
    ----------
    regularization : float, default=1.0
        The penalty r >= 0. With r = 0, the alpha of the sketch makes H w = A'b solvable. While that is also 0 (the rank
        is below m), w is the least-squares solution of smallest norm.
    sketch_size : "auto" or int, default="auto"
        With "auto", the estimator keeps the exact A'A for up to 1000 features and a sketch of m = 50 rows for more. An
        integer m of at least 2 always uses a sketch of m rows; a larger m is more accurate.
    buffer_size : int, optional
        Rows of the sketch and its buffer together before a shrink step. The default is that of `SketchedPCA`.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not regularised. Rows and targets are centred for it.
    decay : float in (0, 1], default=1.0
        Factor applied to the weight of all earlier rows before each new row. It does not apply to the regularisation.
    solver : {"auto", "svd"}, default="auto"
        How the sketch decomposes its buffer.
    window : float, optional
        Number of most recent rows to learn from. The estimator keeps A'b for 32 blocks of rows and weights the oldest
        block by the fraction of it that is inside the window. It keeps A'A in the same way with `sketch_size="auto"`
        and up to 350 features, and a `SlidingFrequentDirections` sketch otherwise. Estimators with a window cannot be
        merged. `buffer_size`, `decay` and `solver` must keep their defaults.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        The coefficients, float32 if all rows were float32.
    intercept_ : float or ndarray of shape (n_targets,)
        The intercept, 0.0 if `fit_intercept=False`.
    n_features_in_ : int
        Number of features.
    n_samples_seen_ : int
        Number of rows seen, not counting rows of weight 0.
    sketch_ : ExactSecondMoment, ExactWindow, RobustFrequentDirections or SlidingFrequentDirections
        The summary of the rows.

    See Also
    --------
    sklearn.linear_model.Ridge : Ridge regression for data in memory.
    SketchedNewtonRegressor : Online linear regression without a penalty to choose.
    RobustFrequentDirections : The sketch behind this estimator.

    Notes
    -----
    The exact A'b takes n_features x n_targets float64 numbers. The coefficients are computed lazily, in 6 m d flops per
    target. Sparse rows are never made dense, and the result does not depend on the batch sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import SketchedRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 100)) * 0.8 ** np.arange(100)
    >>> y = X[:, :3] @ [1.0, -2.0, 3.0] + 5.0 + 0.1 * rng.standard_normal(2000)
    >>> ridge = SketchedRidge(regularization=1.0, sketch_size=40)
    >>> for rows in np.array_split(np.arange(2000), 30):
    ...     ridge = ridge.partial_fit(X[rows], y[rows])
    >>> ridge.coef_[:3].round(1), round(ridge.intercept_, 1)
    (array([ 1., -2.,  3.]), 5.0)
    >>> bool(ridge.score(X, y) > 0.99)
    True
    """

    _moments: Moments
    _sums: WindowedSums  # blocks that add up to _moments, if there is a window
    _flat: bool  # whether the first y was one-dimensional

    def __init__(
        self,
        regularization: float = 1.0,
        *,
        sketch_size: Literal["auto"] | int = "auto",
        buffer_size: int | None = None,
        fit_intercept: bool = True,
        decay: float = 1.0,
        solver: str = "auto",
        window: float | None = None,
    ):
        self.regularization = regularization
        self.sketch_size = sketch_size
        self.buffer_size = buffer_size
        self.fit_intercept = fit_intercept
        self.decay = decay
        self.solver = solver
        self.window = window

    # -- learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to X and y from scratch.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            The rows.
        y : array of shape (n,) or (n, n_targets)
            The targets.
        sample_weight : array of shape (n,), optional
            Row weights. A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        self._learn(X, y, sample_weight, reset=True)
        self._warn_of_error()
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from more rows. The result does not depend on the batch sizes.

        The parameters and the return value are those of `fit`.
        """
        return self._learn(X, y, sample_weight, reset=not self.__sklearn_is_fitted__())

    def _check_merge(self, other: "SketchedRidge") -> None:
        if self.window is not None or other.window is not None:
            raise ValueError("Models with a window cannot be merged: it is not known which of the rows came last.")
        if not other.__sklearn_is_fitted__():
            return
        self._check_parameters()
        if self.__sklearn_is_fitted__():
            self._check_targets(other._moments.cross.shape[1])

    def _merge_own(self, other: "SketchedRidge", *, fitted: bool) -> None:
        if fitted:
            self._moments = self._moments.plus(other._moments)
        else:
            self._moments, self._flat, self._sums = other._moments, other._flat, other._sums

    def _widen_own(self) -> None:
        more = (0, self.n_features_in_ - len(self._moments.x_mean))
        x_mean, cross = np.pad(self._moments.x_mean, more), np.pad(self._moments.cross, (more, (0, 0)))
        self._moments = replace(self._moments, x_mean=x_mean, cross=cross)

    @property
    def _alpha0(self) -> float:
        return self.regularization

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Self:
        after = copy.copy(self)  # an error leaves self unchanged
        self._check_parameters(reset=reset)
        x = check_rows(after, X, reset=reset)
        if y is None:
            raise ValueError("This SketchedRidge requires y to be passed, but the target y is None.")
        target = check_array(y, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="y", estimator=self)
        if target.ndim == 0:
            raise ValueError(f"y must have shape ({x.shape[0]},) or ({x.shape[0]}, n_targets), got the number {y!r}.")
        check_consistent_length(x, target)
        flat = target.ndim == 1
        target = target[:, None] if flat else target
        if not reset:
            self._check_targets(target.shape[1])
        weight = check_weights(sample_weight, len(target))
        after.sketch_ = self._sketch_for(x, reset=reset, center=self.fit_intercept)
        after.sketch_.partial_fit(x, sample_weight=weight)
        if reset:
            d, t = x.shape[1], target.shape[1]
            after._moments, after._flat = Moments(0.0, np.zeros(d), np.zeros(t), np.zeros((d, t))), flat
            after._sums = WindowedSums(self.window or 1.0)
        if not weight.all():
            x, target, weight = x[weight > 0], target[weight > 0], weight[weight > 0]
        if self.window is None:
            after._moments = self._absorb(after._moments, x, target, weight)
        else:
            after._sums = self._absorb_window(after._sums, x, target, weight)
            after._moments = after._sums.total() or after._moments
        after._cache = {}
        self.__dict__ = after.__dict__
        return self

    @one_blas_thread()
    def _absorb(self, moments: Moments, x: Any, y: Floats, weight: Floats) -> Moments:
        """Return the moments after these rows. Dense rows are centred in blocks, to save memory."""
        step = max(1, len(y) if sp.issparse(x) else BLOCK // x.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(y), step):
                rows = slice(start, start + step)
                fading = float(self.decay) ** np.arange(len(y[rows]) - 1.0, -1.0, -1.0)
                block = x[rows] if sp.issparse(x) else np.asarray(x[rows], dtype=np.float64)
                new = Moments.of(block, y[rows], weight[rows] * fading, center=self.fit_intercept)
                moments = moments.faded(float(self.decay) * fading[0]).plus(new)
        if not np.isfinite(moments.cross).all():
            raise ValueError(f"y is too large: with targets up to {np.abs(y).max():.3g} X'y overflows. Scale y or X.")
        return moments

    def _absorb_window(self, sums: WindowedSums, x: Any, y: Floats, weight: Floats) -> WindowedSums:
        """Return the windowed sums after these rows, which are assigned to blocks by row number."""
        start, nothing = 0, Moments(0.0, np.zeros(x.shape[1]), np.zeros(y.shape[1]), np.zeros((x.shape[1], y.shape[1])))
        while start < len(y):
            part = slice(start, start + sums.free_rows())
            rows = len(y[part])
            sums = sums.after(rows, self._absorb(nothing, x[part], y[part], weight[part]))
            start += rows
        return sums

    def _check_parameters(self, *, reset: bool = False) -> None:
        check_real("regularization", self.regularization, 0.0)
        check_choice("fit_intercept", self.fit_intercept, (True, False))
        self._check_size()
        then = self.sketch_.center if self.__sklearn_is_fitted__() and not reset else self.fit_intercept
        if then != self.fit_intercept:
            raise changed("fit_intercept", then, self.fit_intercept)

    def _check_targets(self, t: int) -> None:
        before = self._moments.cross.shape[1]
        if t != before:
            raise ValueError(f"y has {t} targets, but this SketchedRidge has seen y with {before}: expected {before}.")

    # -- fitted attributes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @one_blas_thread()
    def _solution(self) -> Floats:
        """Return M^-1 A'b, of shape (n_features, n_targets)."""
        sketch = self._fitted()
        if "coef" not in self._cache:
            self._warn_of_error()
            w = sketch._solve(self._moments.cross) if isinstance(sketch, ExactSecondMoment) else None
            if w is None:
                view = sketch._view
                w = LowRankPlusIdentity(view.components, view.lam, view.alpha).solve(self._moments.cross)
            self._cache["coef"] = w
        coef: Floats = self._cache["coef"]
        return coef

    def _warn_of_error(self) -> None:
        """Warn if the error of the sketch is above the regularisation, once for the rows seen so far."""
        sketch, regularization = self.sketch_, float(self.sketch_.alpha0)
        if isinstance(sketch, ExactSecondMoment) or "warned" in self._cache:
            return
        view = sketch._view
        if view.error_bound > regularization and view.ceiling_alpha > view.floor_alpha:
            self._cache["warned"] = True
            warnings.warn(
                f"The sketch of {sketch.sketch_size} rows has an error of up to {view.error_bound:.3g}, more than "
                f"regularization={regularization:g}: the coefficients are regularised more than requested. "
                f"{self._remedy(view, regularization)}",
                SketchSizeWarning,
                stacklevel=4,
            )

    def _remedy(self, view: View, regularization: float) -> str:
        """Return advice that states a sketch size whose error is certainly at most the regularisation.

        The error is at most ||A - A_k||_F^2 / (2 (m - k)) for every k < m.
        """
        d = self.n_features_in_
        if self.window is not None:  # the error then also depends on the order of the rows
            return "Use a larger sketch_size."
        if exact_is_better(d, SIZE):
            return "Use sketch_size='auto', which keeps the exact matrix."
        size = d + 1
        if regularization > 0:
            left = view.squared_norm - np.append(0.0, np.cumsum(view.certain))
            sizes = np.arange(len(left)) + np.maximum(left, 0.0) / (2.0 * regularization)
            size = min(size, math.ceil(min(float(sizes.min()), float(d))) + 1)
        return f"sketch_size={size} is sufficient."

    @property
    def coef_(self) -> NDArray[np.floating]:
        """The coefficients, in the shape of `sklearn.linear_model.Ridge.coef_`."""
        w = self._fitted()._cast(self._solution())
        return w[:, 0] if self._flat else w.T

    @property
    def intercept_(self) -> Any:
        """The intercept, 0.0 if `fit_intercept=False`."""
        w = self._solution()
        if not self._fitted().center:
            return 0.0
        intercept = self._moments.y_mean - self._moments.x_mean @ w
        return float(intercept[0]) if self._flat else self._fitted()._cast(intercept)

    # -- snapshots

    def _pack_own(self) -> tuple[Document, Tensors]:
        moments = [self._moments, *(sums for _, sums in self._sums.blocks)]
        own = {"flat": self._flat, "seen": self._sums.seen}
        return own, {
            "blocks": np.array([block for block, _ in self._sums.blocks], dtype=np.int64),
            "weight": np.array([each.weight for each in moments]),
            "x_mean": np.stack([each.x_mean for each in moments]),
            "y_mean": np.stack([each.y_mean for each in moments]),
            "cross": np.stack([each.cross for each in moments]),
        }

    def _unpack_own(self, parts: Parts) -> None:
        self._check_parameters()
        if float(self.sketch_.alpha0) != float(self.regularization):
            raise ValueError(f"alpha0={self.sketch_.alpha0} for regularization={self.regularization}")
        (n, d, t), k = parts.shape("cross", 3), parts.shape("blocks", 1)[0]
        if d != self.n_features_in_ or n != k + 1 or (k and self.window is None):
            raise ValueError(f"{n} moments of {d} features, and {k} blocks")
        weight, blocks = parts.array("weight", n, least=0.0), parts.array("blocks", k, dtype=np.int64, least=0)
        means, targets = parts.array("x_mean", n, d), parts.array("y_mean", n, t)
        each = [Moments(float(w), *rest) for w, *rest in zip(weight, means, targets, parts.array("cross", n, d, t))]
        self._flat, self._moments = parts.flag("flat"), each[0]
        self._sums = WindowedSums(self.window or 1.0, tuple(zip(blocks.tolist(), each[1:])), parts.count("seen"))
        if t < 1 or (self._flat and t > 1) or np.any(np.diff(blocks) <= 0):
            raise ValueError(f"{t} targets, blocks {blocks}")

    # -- predicting

    @one_blas_thread()
    def predict(self, X: Any) -> NDArray[np.floating]:
        """Return the predicted targets of the rows of X, dense or sparse, in the shape of y."""
        return np.asarray(self._checked(X) @ self.coef_.T + self.intercept_)

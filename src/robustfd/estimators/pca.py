"""Streaming PCA, exact or with certified error intervals."""

import copy
import warnings
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array

from robustfd._container import Document, Tensors
from robustfd._validation import check_choice, check_integer, check_rows, check_weights
from robustfd.estimators._components import Analysis, Ritz, analyse
from robustfd.estimators._sketched import SketchEstimator, SketchSizeWarning
from robustfd.learners.snapshot import Parts
from robustfd.linalg.decompose import EPS, Floats
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.base import EPS32
from robustfd.sketch.exact import ExactSecondMoment
from robustfd.sketch.two_sided import TwoSidedFrequentDirections

SPARE = 50  # sketch rows in addition to twice the number of components
UNKNOWN = 25  # number of components to plan for if n_components is not an integer


class SketchedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SketchEstimator):
    r"""Streaming PCA with scikit-learn's interface and certified variances.

    For a moderate number of features, the estimator keeps the exact second moment of the centred rows and gives the
    result of `sklearn.decomposition.PCA` in one pass. For more features, it keeps a `TwoSidedFrequentDirections`
    sketch, which consists of two sketches: P gives the directions and the lower end of each variance, F the upper end.
    Let A be the centred rows, n their total weight, and sigma_i the eigenvalues of the exact covariance. Then

    .. math::

        \frac{\max(\lambda_i(P'P), \lambda_i(F'F))}{n - 1} = \mathrm{explained\_variance}_i \le \sigma_i
            \le \frac{\lambda_i(F'F) + \Delta_F}{n - 1}.

    `explained_variance_` is the lower end, which is usually far more accurate than the interval suggests. The mean and
    the total variance are always exact, and the whole analysis is exact while the rank of the centred rows is below
    `sketch_size`. `partial_fit` reads each row once. `fit` has all rows available and reads them several times: a block
    Krylov method finds the directions, each variance is the exact variance of the rows along the component (a
    Rayleigh-Ritz step), and upper bounds follow from the residuals. They are much tighter than those of the sketches,
    and fail with a probability of 1e-12 at most. `fit` takes about as long as `TruncatedSVD`.

    Unlike with `IncrementalPCA`, batches may have any number of rows, the result does not depend on the batch sizes,
    and sparse rows are never made dense.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None, default=None
        The number of components k, which must be below `sketch_size`. A float selects the smallest number of components
        that explain more than this fraction of the variance. None keeps all components: the rank of the rows seen,
        limited by n_features and by the number of sketch rows.
    sketch_size : "auto" or int, default="auto"
        With "auto", m = 2 n_components + 50, or 100 if n_components is not an integer. The estimator then keeps the
        exact matrix for up to 20 m features, but at most 2000 features (32 MB), and a sketch of m rows for more. An
        integer m of at least 2 always uses a sketch of m rows; a larger m makes `partial_fit` more accurate.
    buffer_size : int, optional
        Rows of the sketch and its buffer together before a shrink step. The default is 4 `sketch_size`. If the
        first rows are sparse, it is 8 `sketch_size`, but at most 800 if that is more than 4 `sketch_size`. It avoids
        values between n_features / 2 and 2 n_features. A larger buffer makes the intervals of `partial_fit` shorter.
        For sparse rows it costs time but no memory.
    whiten : bool, default=False
        Whether `transform` divides each component by its standard deviation. Components without variance become 0.
    decay : float in (0, 1], default=1.0
        Factor applied to the weight of all earlier rows before each new row.
    solver : {"auto", "svd"}, default="auto"
        How the sketch decomposes its buffer.
    window : float, optional
        Number of most recent rows to analyse. With `sketch_size="auto"` and up to 350 features, the estimator keeps
        exact matrices of 32 blocks of rows and weights the oldest block by the fraction of it that is inside the
        window. Otherwise it keeps a `SlidingFrequentDirections` sketch: the intervals still hold, but the mean and the
        total variance are approximate. `buffer_size`, `decay` and `solver` must keep their defaults.

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        The principal directions as orthonormal rows. The entry of largest absolute value in each row is positive. If
        the rows seen span fewer than `n_components` directions, the remaining rows are arbitrary orthogonal directions.
    explained_variance_ : ndarray of shape (k,)
        The variance along each component.
    explained_variance_interval_ : ndarray of shape (k, 2)
        Certified lower and upper bounds on the i-th largest eigenvalue of the exact covariance. After `partial_fit`
        they hold in any case, after `fit` except with probability 1e-12.
    explained_variance_error_bound_ : float
        An upper bound on the distance of each explained variance from the exact one.
    excess_error_bound_ : float
        An upper bound on the excess reconstruction error: the mean squared error of `inverse_transform(transform(X))`
        over the rows seen, times n / (n - 1), minus that of the best projection on k directions.
    subspace_error_bound_ : float
        An upper bound on ||sin Theta||_F, where Theta are the angles between the span of `components_` and the span of
        the first k exact principal components. 0 means that the spans are equal. The largest possible value,
        sqrt(min(k, d - k)), means that nothing is known.
    explained_variance_ratio_ : ndarray of shape (k,)
        The explained variances divided by the exact total variance.
    singular_values_ : ndarray of shape (k,)
        The square roots of the explained variances times n - 1.
    noise_variance_ : float
        The unexplained variance divided by the d - k remaining directions (Tipping and Bishop 1999). scikit-learn
        divides by min(n, d) - k, which differs when there are fewer rows than features.
    mean_ : ndarray of shape (n_features,)
        The mean of the rows.
    n_components_ : int
        The number of components k.
    n_features_in_ : int
        Number of features.
    n_samples_seen_ : int
        Number of rows seen, not counting rows of weight 0.
    sketch_ : ExactSecondMoment, ExactWindow, TwoSidedFrequentDirections or SlidingFrequentDirections
        The summary of the rows. `sketch_.covariance()` returns the covariance as an operator.

    See Also
    --------
    sklearn.decomposition.IncrementalPCA : PCA in mini-batches, without error bounds.
    sklearn.decomposition.TruncatedSVD : SVD without centring, for sparse data in memory.
    TwoSidedFrequentDirections : The sketch behind this estimator.

    Notes
    -----
    Attributes are computed lazily from the sketch, so `partial_fit` of one row stays cheap. `fit` makes a sketch that
    `partial_fit` can continue, and the analysis is then that of the sketch. `fit`, `transform` and `score_samples` need
    no d x d matrix except the exact one that may be kept. `get_covariance` and `get_precision` return d x d matrices.
    The random numbers of `fit` are the same in every call. The bounds are proven in
    :doc:`The mathematics </mathematics>`.

    When new directions become dominant late in a stream, P adapts slowly. The components switch to those of F as soon
    as these certainly explain more.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import SketchedPCA
    >>> X = np.random.default_rng(0).standard_normal((2000, 60)) @ np.diag(0.8 ** np.arange(60))
    >>> pca = SketchedPCA(n_components=3, sketch_size=12)
    >>> for batch in np.array_split(X, 100):
    ...     pca = pca.partial_fit(batch)
    >>> pca.transform(X).shape
    (2000, 3)
    >>> exact = np.linalg.eigvalsh(np.cov(X.T))[::-1][:3]
    >>> low, high = pca.explained_variance_interval_.T
    >>> bool(np.all((low <= exact) & (exact <= high)))
    True
    >>> SketchedPCA(n_components=3).fit(X).sketch_
    ExactSecondMoment(center=True)
    """

    _kind: ClassVar[type] = TwoSidedFrequentDirections

    _wanted: Any  # n_components when the last rows arrived
    _ritz: Ritz | None  # the result of a second pass over all rows

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        sketch_size: Literal["auto"] | int = "auto",
        buffer_size: int | None = None,
        whiten: bool = False,
        decay: float = 1.0,
        solver: str = "auto",
        window: float | None = None,
    ):
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.buffer_size = buffer_size
        self.whiten = whiten
        self.decay = decay
        self.solver = solver
        self.window = window

    # -- learning

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to X from scratch.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            The rows. They are read several times if the estimator does not keep the exact matrix.
        y : ignored
        sample_weight : array of shape (n,), optional
            Row weights. A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        return self._learn(X, sample_weight, reset=True, whole=True)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows. The result does not depend on the batch sizes.

        The parameters and the return value are those of `fit`. Each row is read once, so the variances are those of the
        sketch.
        """
        return self._learn(X, sample_weight, reset=not self.__sklearn_is_fitted__())

    def _check_merge(self, other: "SketchedPCA") -> None:
        if other.__sklearn_is_fitted__():
            self._accept_width(other.n_features_in_)

    def _merge_own(self, other: "SketchedPCA", *, fitted: bool) -> None:
        self._ritz = None

    def _learn(self, X: Any, sample_weight: Any, *, reset: bool, whole: bool = False) -> Self:
        after = copy.copy(self)  # an error leaves self unchanged
        check_choice("whiten", self.whiten, (True, False))
        self._check_size()
        x = check_rows(after, X, reset=reset)
        after._accept_width(x.shape[1])
        after.sketch_ = sketch = self._sketch_for(x, reset=reset)
        after._ritz, after._cache, found = None, {}, None
        if whole and isinstance(sketch, TwoSidedFrequentDirections):
            weight = check_weights(sample_weight, x.shape[0])
            found = analyse(x, weight, float(self.decay), after._wanted, sketch.sketch_size)
        if found is None:
            sketch.partial_fit(x, sample_weight=sample_weight)
        else:
            state, after._ritz = found
            sketch._continue_from(state, int(np.count_nonzero(weight)), single=bool(x.dtype == np.float32))
        self.__dict__ = after.__dict__
        if whole:
            self._warn_of_share()
        return self

    def _auto_size(self) -> int:
        k = self.n_components
        return 2 * (int(k) if isinstance(k, int | np.integer) and not isinstance(k, bool) else UNKNOWN) + SPARE

    def _check_size(self) -> int:
        k = self.n_components
        if isinstance(k, float | np.floating):
            if not 0.0 < k < 1.0:
                raise ValueError(f"n_components must be an integer of at least 1 or between 0 and 1, got {k}.")
        elif k is not None:
            check_integer("n_components", k, 1)
        m = super()._check_size()
        if isinstance(k, int | np.integer) and k >= m:
            raise ValueError(f"n_components must be below sketch_size={m}, got {k}. Try sketch_size={2 * k}.")
        return m

    def _accept_width(self, d: int) -> None:
        k = self.n_components
        if isinstance(k, int | np.integer):
            if k > d and not self._grows:
                raise ValueError(f"n_components must be at most n_features={d}, got {k}.")
            most = getattr(vars(self).get("sketch_"), "sketch_size", k + 1)
            if self._is_auto and k >= most:
                raise ValueError(
                    f"n_components must be below {most}, the size of the existing sketch, got {k}. "
                    "Set it back, or call fit to start over."
                )
            k = min(int(k), d)
        self._wanted = k if k is None or isinstance(k, int) else float(k)

    def _warn_of_share(self) -> None:
        """Warn if the sketch is too small to explain the requested fraction of the variance."""
        share = self._wanted
        if not isinstance(share, float) or isinstance(self.sketch_, ExactSecondMoment):
            return
        if (reached := float(self.explained_variance_ratio_.sum())) <= share:
            warnings.warn(
                f"The {self.n_components_} components of the sketch explain {reached:.3f} of the variance, less "
                f"than n_components={share:g}. Use a sketch_size larger than {self.sketch_.sketch_size}.",
                SketchSizeWarning,
                stacklevel=4,
            )

    def _pack_own(self) -> tuple[Document, Tensors]:
        numbers, arrays = ({}, {}) if self._ritz is None else self._ritz.pack()
        return {"wanted": self._wanted, "ritz": self._ritz is not None, **numbers}, arrays

    def _unpack_own(self, parts: Parts) -> None:
        wanted, d = parts.text("wanted"), self.n_features_in_
        if wanted is not None and not isinstance(wanted, float):
            wanted = check_integer("wanted", wanted, 1)
            if wanted > min(d, getattr(self.sketch_, "sketch_size", d + 1) - 1):
                raise ValueError(f"{wanted} components of {d} features")
        elif wanted is not None and not 0.0 < wanted < 1.0:
            raise ValueError(f"wanted is {wanted}")
        self._wanted, self._ritz = wanted, None
        if parts.flag("ritz"):
            self._ritz = Ritz.unpack(parts, d, self.sketch_._view.squared_norm, wanted)

    # -- fitted attributes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _analysis(self) -> Analysis:
        sketch = self._fitted()
        return self._cached("analysis", lambda: Analysis.of(sketch, self._ritz, self._wanted))

    @property
    def n_components_(self) -> int:
        """The number of components k."""
        return self._analysis().k

    _n_features_out = n_components_

    @property
    def components_(self) -> NDArray[np.floating]:
        """The principal directions as orthonormal rows."""
        return self._components().copy()

    def _components(self) -> NDArray[np.floating]:
        """Return the components in the dtype of the rows, cached so that `transform` of one row is fast."""
        v, dtype = self._analysis().directions, np.float32 if self.sketch_._single else np.float64
        return self._cached("components", lambda: v.astype(dtype, copy=False))

    def _freedom(self) -> float:
        """Return n - 1."""
        weight = self._analysis().view.weight
        if not weight > 1.0:
            # NotFittedError is an AttributeError, so `hasattr` and attribute listings keep working.
            raise NotFittedError(f"The total weight of the rows must be above 1 for a variance, got {weight:g}.")
        return weight - 1.0

    @property
    def explained_variance_(self) -> Floats:
        """The variance along each component."""
        return np.asarray(self._analysis().scatter / self._freedom())

    @property
    def explained_variance_interval_(self) -> Floats:
        """Certified lower and upper bounds on the variances of the exact components."""
        analysis = self._analysis()
        return np.column_stack([analysis.lower[: analysis.k], analysis.upper[: analysis.k]]) / self._freedom()

    @property
    def explained_variance_error_bound_(self) -> float:
        """An upper bound on the distance of each explained variance from the exact one."""
        analysis = self._analysis()
        rounded = EPS32 * analysis.scatter.max(initial=0.0) if self.sketch_._single else 0.0
        return (analysis.error + rounded) / self._freedom()

    @property
    def excess_error_bound_(self) -> float:
        """An upper bound on the reconstruction error minus that of the best projection on k directions."""
        return self._analysis().excess / self._freedom()

    @property
    def subspace_error_bound_(self) -> float:
        """An upper bound on the distance ||sin Theta||_F between the spans of these and of the exact components."""
        return self._analysis().angle(self.n_features_in_)

    @property
    def explained_variance_ratio_(self) -> Floats:
        """The explained variances divided by the exact total variance; 0 if there is none."""
        total = (analysis := self._analysis()).view.squared_norm
        return analysis.scatter / total if total > 0 else np.zeros(analysis.k)

    @property
    def singular_values_(self) -> Floats:
        """The approximate singular values of the centred rows."""
        return np.sqrt(self._analysis().scatter)

    @property
    def noise_variance_(self) -> float:
        """The mean variance in the directions that are not components."""
        analysis, d = self._analysis(), self.n_features_in_
        view, k = analysis.view, analysis.k
        # If no shrink step removed anything, B'B equals A'A, and a difference of norms would be pure rounding error.
        exact = view.ceiling_alpha == view.floor_alpha
        whole = not (isinstance(self.sketch_, ExactSecondMoment) and len(view.lam) == k + 1 < d)
        left = view.lam[k:].sum() if exact and whole else view.squared_norm - analysis.scatter.sum()
        return max(0.0, float(left)) / (d - k) / self._freedom() if k < d else 0.0

    @property
    def mean_(self) -> Floats:
        """The mean of the rows."""
        mean = self._analysis().view.mean
        assert mean is not None
        return mean.copy()

    # -- transforming and scoring

    @one_blas_thread()
    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the coordinates of the rows of X, dense or sparse, along the components."""
        X, v = self._checked(X), self._components()
        if sp.issparse(X) and X.nnz < X.shape[1]:  # a few short rows: use only their non-zero columns
            columns, places = np.unique(X.indices, return_inverse=True)
            short = sp.csr_array((X.data, places, X.indptr), shape=(X.shape[0], len(columns)))
            z = np.asarray(short @ np.ascontiguousarray(v[:, columns].T))
        else:
            z = np.asarray(X @ v.T)
        z -= self._cached("shift", lambda: v @ self.mean_).astype(z.dtype)
        if self.whiten:
            scale = np.sqrt(self.explained_variance_)
            scale[scale == 0.0] = np.inf  # as the pseudo-inverse: coordinates without variance become 0
            z /= scale.astype(z.dtype)
        return z

    @one_blas_thread()
    def inverse_transform(self, X: Any) -> NDArray[np.floating]:
        """Return the rows with coordinates X along the components that equal the mean in all other directions."""
        self._fitted()
        X = check_array(X, dtype=[np.float64, np.float32], input_name="X", estimator=self)
        if X.shape[1] != self.n_components_:
            raise ValueError(f"X has {X.shape[1]} columns, expected n_components_={self.n_components_}.")
        if self.whiten:
            X = X * np.sqrt(self.explained_variance_).astype(X.dtype)
        x = np.asarray(X @ self._components())
        x += self.mean_.astype(x.dtype)
        return x

    def _model(self) -> LowRankPlusIdentity:
        """Return the covariance of probabilistic PCA: explained variances plus noise in all other directions."""
        noise = self.noise_variance_
        lam = np.maximum(self.explained_variance_ - noise, 0.0)
        return LowRankPlusIdentity(self._analysis().directions, lam, noise)

    @one_blas_thread()
    def get_covariance(self) -> Floats:
        """Return the d x d covariance of the model, V' diag(explained - noise) V + noise I."""
        return self._model().to_dense()

    @one_blas_thread()
    def get_precision(self) -> Floats:
        """Return the d x d inverse of the covariance of the model, or its pseudo-inverse if it is singular."""
        return self._model().solve(np.eye(self.n_features_in_))

    @one_blas_thread()
    def score_samples(self, X: Any) -> Floats:
        """Return the log-likelihood of each row of X, dense or sparse, under the Gaussian model.

        If the noise variance is 0 and there are fewer components than features, the model is a Gaussian on a subspace.
        The score is then its density on the subspace, and the part of a row outside the subspace is ignored.
        """
        X = self._checked(X)
        model, d = self._model(), self.n_features_in_
        lam = model.low_rank_eigenvalues
        rank = d if model.alpha > 0 else np.count_nonzero(lam > d * EPS * lam.max(initial=0.0))
        distance = np.asarray(model.mahalanobis(X, self.mean_))
        return np.asarray(-0.5 * (rank * np.log(2 * np.pi) + model.logdet() + distance))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows of X."""
        return float(np.mean(self.score_samples(X)))

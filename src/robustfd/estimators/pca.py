"""Principal components of a stream, from one robust sketch of the centred rows."""

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.extmath import svd_flip
from sklearn.utils.validation import check_array, validate_data

from robustfd._guard import Guarded, guarded_pair
from robustfd._validation import check_choice, check_integer, check_rows
from robustfd.estimators._windowed import Sketch, prepared
from robustfd.linalg.eigen import EPS
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.threads import one_blas_thread

Floats = NDArray[np.float64]


class SketchedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Guarded, BaseEstimator):
    r"""Principal component analysis of a stream, with `IncrementalPCA`'s interface and a certified error.

    The centred rows A of total weight n go into a `RobustFrequentDirections` sketch, which approximates A'A by
    B'B + alpha I with orthogonal rows of B, of squared lengths lambda_i. Components are the directions of the
    first k rows, and

    .. math::

        \mathrm{explained\_variance}_i = \frac{\lambda_i + \alpha}{n - 1}, \qquad
        \left| \mathrm{explained\_variance}_i - \sigma_i \right|
            \le \frac{\|A'A - B'B - \alpha I\|_2}{n - 1} \le \frac{\mathrm{error\_bound}}{n - 1},

    where sigma_i is the i-th eigenvalue of the exact covariance (Weyl). The total variance ||A||_F^2 / (n - 1)
    is exact, and so are the mean, the denominators of `explained_variance_ratio_`, and the whole analysis
    as long as the centred rows have a rank below `sketch_size`.

    Unlike `IncrementalPCA`, batches may have any number of rows, the result does not depend on how rows were
    cut into batches, and sparse rows are never made dense.

    Parameters
    ----------
    n_components : int, optional
        k, below `sketch_size`. By default as many as the sketch has rows: the rank of what was seen, at most
        n_features and `sketch_size` - 1.
    sketch_size : int, optional
        m of the sketch, default max(50, 2 n_components). Larger is more accurate.
    buffer_size : int, optional
        Rows held in all before a shrink, default 2 `sketch_size`.
    whiten : bool, default=False
        Whether `transform` divides each component by its standard deviation. What has none becomes 0.
    decay : float in (0, 1], default=1.0
        Before each row, all that is older is multiplied by this.
    solver : {"auto", "gram", "svd"}, default="auto"
        How the sketch decomposes its buffer.
    window : float, optional
        Analyse the last so many rows only, by a `SlidingFrequentDirections` sketch. The certificate holds; mean and
        total variance are then approximate. `buffer_size`, `decay` and `solver` must be left as they are.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Orthonormal rows; the entry of largest absolute value in each is positive. If fewer than
        `n_components` directions were seen, others orthogonal to them, of variance alpha / (n - 1), follow.
    explained_variance_ : ndarray of shape (n_components_,)
    explained_variance_error_bound_ : float
        No explained variance is further than this from that of the exact covariance.
    explained_variance_ratio_ : ndarray of shape (n_components_,)
        Explained variances divided by the exact total variance.
    singular_values_ : ndarray of shape (n_components_,)
        sqrt(lambda_i + alpha).
    noise_variance_ : float
        The variance that is not explained, over the d - k directions that are left (Tipping and Bishop 1999);
        scikit-learn divides by min(n, d) - k, which differs when there are fewer rows than features.
    mean_ : ndarray of shape (n_features,)
    n_components_, n_features_in_, n_samples_seen_ : int
    rfd_ : RobustFrequentDirections or SlidingFrequentDirections
        The sketch, to read from: `rfd_.covariance()` is the covariance as an operator.

    Notes
    -----
    Attributes are computed from the sketch when read, so that `partial_fit` of one row stays cheap. `fit`,
    `transform` and `score_samples` need no d x d matrix; `get_covariance` and `get_precision` return one.

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
    >>> bool(np.all(np.abs(pca.explained_variance_ - exact) <= pca.explained_variance_error_bound_))
    True
    """

    rfd_: Sketch
    n_features_in_: int
    _wanted: int | None  # n_components when the last rows came

    def __init__(
        self,
        n_components: int | None = None,
        *,
        sketch_size: int | None = None,
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

    # -- rows in

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Forget everything and analyse X.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
            A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        return self._learn(X, sample_weight, anew=True)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take in the rows of X, any number of them, after those that came before; otherwise as `fit`."""
        return self._learn(X, sample_weight, anew=not self.__sklearn_is_fitted__())

    @guarded_pair
    def merge(self, other: "SketchedPCA") -> Self:
        """Take in all that another analysis with the same sketch parameters has seen; return self."""
        if not isinstance(other, SketchedPCA):
            raise TypeError(f"other must be a SketchedPCA, got a {type(other).__name__}.")
        if not other.__sklearn_is_fitted__():
            return self
        after, anew = copy.copy(self), not self.__sklearn_is_fitted__()
        after.rfd_ = self._sketch(anew=anew)
        after._accept_width(other.n_features_in_)
        after.rfd_.merge(other.rfd_)
        if anew:
            names = ("n_features_in_", "feature_names_in_")
            after.__dict__.update({k: v for k, v in vars(other).items() if k in names})
        else:
            here, there = (getattr(each, "feature_names_in_", None) for each in (self, other))
            if here is not None and there is not None and not np.array_equal(here, there):
                raise ValueError(f"Cannot merge: feature_names_in_ is {here} here and {there} there.")
        self.__dict__ = after.__dict__
        return self

    def _learn(self, X: Any, sample_weight: Any, *, anew: bool) -> Self:
        after = copy.copy(self)  # an error leaves all as it was
        after.rfd_ = self._sketch(anew=anew)
        x = check_rows(after, X, reset=anew)
        after._accept_width(x.shape[1])
        after.rfd_.partial_fit(x, sample_weight=sample_weight)
        self.__dict__ = after.__dict__
        return self

    def _sketch(self, *, anew: bool) -> Sketch:
        """Return a new sketch, or a copy of the one there is, with the parameters as they are now."""
        check_choice("whiten", self.whiten, (True, False))
        k, m = self.n_components, self.sketch_size
        if k is not None:
            check_integer("n_components", k, 1)
        if m is None:
            m = 50 if k is None else max(50, 2 * k)
        elif k is not None and k >= check_integer("sketch_size", m, 2):
            raise ValueError(f"n_components must be below sketch_size={m}, got {k}; {2 * k} is a good sketch_size.")
        params = {"sketch_size": m, "buffer_size": self.buffer_size, "decay": self.decay, "solver": self.solver}
        return prepared(None if anew else self.rfd_, self.window, center=True, **params)

    def _accept_width(self, d: int) -> None:
        if self.n_components is not None and self.n_components > d:
            raise ValueError(f"n_components must be at most n_features={d}, got {self.n_components}.")
        self._wanted = self.n_components

    # -- reading

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rfd_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _fitted(self) -> Sketch:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This SketchedPCA has seen no rows yet. Call fit or partial_fit with some first.")
        return self.rfd_

    @property
    def n_components_(self) -> int:
        """k, how many components there are."""
        lam = self._fitted()._view.lam
        return len(lam) if self._wanted is None else self._wanted

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @property
    def components_(self) -> NDArray[np.floating]:
        """The principal directions as orthonormal rows."""
        return self._fitted()._cast(self._directions())

    @one_blas_thread()
    def _directions(self) -> Floats:
        v = _completed(self._fitted()._view.components[: self.n_components_], self.n_components_)
        return np.asarray(svd_flip(None, v.copy(), u_based_decision=False)[1])

    def _scatter(self) -> Floats:
        """Return lambda_i + alpha for each component."""
        view, k = self._fitted()._view, self.n_components_
        return np.pad(view.lam[:k], (0, max(0, k - len(view.lam)))) + view.alpha

    def _freedom(self) -> float:
        """Return n - 1."""
        weight = self._fitted()._view.weight
        if not weight > 1.0:
            # Both a ValueError and an AttributeError: who only looks which attributes there are is not stopped.
            raise NotFittedError(f"Variances need rows of a total weight above 1, but it is {weight:g}.")
        return weight - 1.0

    @property
    def explained_variance_(self) -> Floats:
        """The variance along each component."""
        return np.asarray(self._scatter() / self._freedom())

    @property
    def explained_variance_error_bound_(self) -> float:
        """A bound on the distance of each explained variance from that of the exact covariance."""
        return self._fitted()._view.error_bound / self._freedom()

    @property
    def explained_variance_ratio_(self) -> Floats:
        """The explained variances divided by the exact total variance; 0 if there is none."""
        total = self._fitted()._view.squared_norm
        return self._scatter() / total if total > 0 else np.zeros(self.n_components_)

    @property
    def singular_values_(self) -> Floats:
        """The approximate singular values of the centred rows."""
        return np.sqrt(self._scatter())

    @property
    def noise_variance_(self) -> float:
        """The mean variance in the directions that are not components."""
        view, k, d = self._fitted()._view, self.n_components_, self.n_features_in_
        # With nothing taken by a shrink B'B is A'A: a difference of norms would be rounding, not noise.
        exact = view.ceiling_alpha == view.floor_alpha
        left = view.lam[k:].sum() if exact else view.squared_norm - self._scatter().sum()
        return max(0.0, float(left)) / (d - k) / self._freedom() if k < d else 0.0

    @property
    def mean_(self) -> Floats:
        """The mean of the rows."""
        return self._fitted().mean_

    @property
    def n_samples_seen_(self) -> int:
        """How many rows were seen, those of weight 0 not counted."""
        return self._fitted().n_samples_seen_

    # -- use

    @one_blas_thread()
    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the coordinates of the rows of X, dense or sparse, along the components."""
        self._fitted()
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        v = self.components_
        z = np.asarray(X @ v.T)
        z -= (self.mean_ @ v.T).astype(z.dtype)
        if self.whiten:
            scale = np.sqrt(self.explained_variance_)
            scale[scale == 0.0] = np.inf  # no variance, no coordinate: the pseudo-inverse
            z /= scale.astype(z.dtype)
        return z

    @one_blas_thread()
    def inverse_transform(self, X: Any) -> NDArray[np.floating]:
        """Return the rows whose coordinates along the components are X and that are the mean in all else."""
        self._fitted()
        X = check_array(X, dtype=[np.float64, np.float32], input_name="X", estimator=self)
        if X.shape[1] != self.n_components_:
            raise ValueError(f"X has {X.shape[1]} columns, expected n_components_={self.n_components_}.")
        if self.whiten:
            X = X * np.sqrt(self.explained_variance_).astype(X.dtype)
        x = np.asarray(X @ self.components_)
        x += self.mean_.astype(x.dtype)
        return x

    def _model(self) -> LowRankPlusIdentity:
        """Return the covariance of probabilistic PCA: explained variances, and noise in all other directions."""
        noise = self.noise_variance_
        return LowRankPlusIdentity(self._directions(), np.maximum(self.explained_variance_ - noise, 0.0), noise)

    @one_blas_thread()
    def get_covariance(self) -> Floats:
        """Return the covariance V' diag(explained - noise) V + noise I of the model, d x d."""
        return self._model().to_dense()

    @one_blas_thread()
    def get_precision(self) -> Floats:
        """Return the inverse of the covariance of the model, d x d; its pseudo-inverse if it is singular."""
        return self._model().solve(np.eye(self.n_features_in_))

    @one_blas_thread()
    def score_samples(self, X: Any) -> Floats:
        """Return the log-likelihood of each row of X, dense or sparse, under the Gaussian model.

        With noise variance 0 and fewer components than features the model is a Gaussian on a subspace: its
        density there is what counts, and the part of a row outside it is ignored.
        """
        self._fitted()
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        model, d = self._model(), self.n_features_in_
        lam = model.low_rank_eigenvalues
        rank = d if model.alpha > 0 else np.count_nonzero(lam > d * EPS * lam.max(initial=0.0))
        distance = np.asarray(model.mahalanobis(X, self.mean_))
        return np.asarray(-0.5 * (rank * np.log(2 * np.pi) + model.logdet() + distance))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows of X."""
        return float(np.mean(self.score_samples(X)))


def _completed(v: Floats, k: int) -> Floats:
    """Return k orthonormal rows of which the first are v."""
    while len(v) < k:
        row = np.zeros(v.shape[1])
        row[np.argmin(np.einsum("ij,ij->j", v, v))] = 1.0  # at least 1 - len(v) / d of it is outside the span
        for _ in range(2):
            row -= (v @ row) @ v
        v = np.vstack([v, row / np.linalg.norm(row)])
    return v

"""Principal components of a stream, from one summary of the centred rows: exact, or with certified intervals."""

import copy
import warnings
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, validate_data

from robustfd._container import Document, Tensors
from robustfd._validation import check_choice, check_integer, check_rows, check_weights
from robustfd.estimators._analysis import Analysis
from robustfd.estimators._ritz import Ritz, ritz_pass
from robustfd.estimators._sketched import SketchEstimator, SketchSizeWarning
from robustfd.linalg.eigen import EPS
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.threads import one_blas_thread
from robustfd.online.snapshot import Parts
from robustfd.sketch.exact import ExactSecondMoment
from robustfd.sketch.two_sided import TwoSidedFrequentDirections, TwoSidedView

Floats = NDArray[np.float64]
SPARE = 50  # rows of the sketch beyond twice the components
UNKNOWN = 25  # components that the sketch is made for if their number is not known beforehand


class SketchedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SketchEstimator):
    r"""Principal component analysis of a stream, with scikit-learn's interface and certified variances.

    For a moderate number of features the centred second moment itself is kept: the analysis is that of
    `sklearn.decomposition.PCA`, in one pass. Rows with more features go into a `TwoSidedFrequentDirections` sketch: P,
    which gives the directions and the lower end of each variance, beside F, which gives the upper end. With A the
    centred rows, of total weight n, and sigma_i the eigenvalues of the exact covariance,

    .. math::

        \frac{\max(\lambda_i(P'P), \lambda_i(F'F))}{n - 1} = \mathrm{explained\_variance}_i \le \sigma_i
            \le \frac{\lambda_i(F'F) + \Delta_F}{n - 1}.

    `explained_variance_` is the lower end, which is usually far more accurate than the interval tells. The mean and the
    total variance are exact in any case, and so is the whole analysis as long as the centred rows have a rank below
    `sketch_size`. `fit`, which has all rows at hand, reads them once more. It sets the variances to those that the
    rows have along the components, exactly (a Rayleigh-Ritz step), and bounds them from above by the residuals, which
    are the much better bounds. `partial_fit` sees each row once.

    Unlike with `IncrementalPCA`, batches may have any number of rows, the result does not depend on how rows were
    cut into batches, and sparse rows are never made dense.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None, default=None
        k, below `sketch_size`. A fraction stands for as many components as explain more than this share of the
        variance, and None for all that are known: the rank of what was seen, at most n_features and the rows of the
        sketch, if there is one.
    sketch_size : "auto" or int, default="auto"
        By default the exact matrix is kept for up to 20 m features, but no more than 2000 (32 MB), and else a sketch
        of m = 2 n_components + 50 rows, 100 if n_components is no integer. `sketch_` tells which. An integer of at
        least 2 fixes a sketch of m rows; larger is more accurate.
    buffer_size : int, optional
        Rows held in all before a shrink, by default 4 `sketch_size`, but not between n_features / 2 and 2 n_features.
        With more, the intervals of `partial_fit` are shorter. For sparse rows that costs time, and no memory.
    whiten : bool, default=False
        Whether `transform` divides each component by its standard deviation. What has none becomes 0.
    decay : float in (0, 1], default=1.0
        Before each row, all that is older is multiplied by this.
    solver : {"auto", "gram", "svd"}, default="auto"
        How the sketch decomposes its buffer.
    window : float, optional
        Analyse the last so many rows only. With `sketch_size="auto"` and up to 350 features the exact matrix is kept
        in 32 blocks of rows, of which the oldest counts by its share in the window. Else it is a
        `SlidingFrequentDirections` sketch: the intervals hold; mean and total variance are then approximate.
        `buffer_size`, `decay` and `solver` must be left as they are.

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows; the entry of largest absolute value in each is positive. If fewer than
        `n_components` directions were seen, others orthogonal to them follow.
    explained_variance_ : ndarray of shape (k,)
    explained_variance_interval_ : ndarray of shape (k, 2)
        The variance of the i-th principal component of the exact covariance is certainly between these two.
    explained_variance_error_bound_ : float
        No explained variance is further than this from that of the exact covariance.
    excess_error_bound_ : float
        The mean squared error of `inverse_transform(transform(X))` over the rows seen, times n / (n - 1), is at most
        this above the least that any projection on k directions has.
    subspace_error_bound_ : float
        A bound on ||sin Theta||_F, Theta the angles between the span of `components_` and that of the first k
        principal components: 0 if they are the same. It is at most sqrt(min(k, d - k)), which says nothing.
    explained_variance_ratio_ : ndarray of shape (k,)
        Explained variances divided by the exact total variance.
    singular_values_ : ndarray of shape (k,)
        The square roots of explained variances times n - 1.
    noise_variance_ : float
        The variance that is not explained, over the d - k directions that are left (Tipping and Bishop 1999);
        scikit-learn divides by min(n, d) - k, which differs when there are fewer rows than features.
    mean_ : ndarray of shape (n_features,)
    n_components_, n_features_in_, n_samples_seen_ : int
    sketch_ : ExactSecondMoment, ExactWindow, TwoSidedFrequentDirections or SlidingFrequentDirections
        What is kept of the rows, to read from: `sketch_.covariance()` is the covariance as an operator.

    Notes
    -----
    Attributes are computed from the sketch when read, so that `partial_fit` of one row stays cheap. `fit`,
    `transform` and `score_samples` need no d x d matrix beyond the one that may be kept; `get_covariance` and
    `get_precision` return one. Proofs of the bounds are in docs/mathematics.md.

    Where new directions become the largest late in a stream, P is slow to let them in. The components are those of F
    from the moment on when these certainly explain more.

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
    _sparse_buffer: ClassVar[int] = 4  # `fit` gains little by a larger one, which takes more time

    _wanted: Any  # n_components when the last rows came
    _ritz: Ritz | None  # what a second pass over all rows has found

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

    # -- rows in

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Forget everything and analyse X.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            Where a sketch is used it is read twice.
        y : ignored
        sample_weight : array of shape (n,), optional
            A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        return self._learn(X, sample_weight, anew=True, whole=True)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take in the rows of X, any number of them, after those that came before; otherwise as `fit`.

        Each row is seen once: the variances are those of the sketch.
        """
        return self._learn(X, sample_weight, anew=not self.__sklearn_is_fitted__())

    def _check_merge(self, other: "SketchedPCA") -> None:
        if other.__sklearn_is_fitted__():
            self._accept_width(other.n_features_in_)

    def _merge_own(self, other: "SketchedPCA", *, begun: bool) -> None:
        self._ritz = None

    def _learn(self, X: Any, sample_weight: Any, *, anew: bool, whole: bool = False) -> Self:
        after = copy.copy(self)  # an error leaves all as it was
        check_choice("whiten", self.whiten, (True, False))
        self._check_size()
        x = check_rows(after, X, reset=anew)
        after._accept_width(x.shape[1])
        if anew:
            after.sketch_ = self._new_sketch(x.shape[1], sparse=sp.issparse(x), center=True)
        else:
            after.sketch_ = self._next_sketch()
        after.sketch_.partial_fit(x, sample_weight=sample_weight)
        after._ritz, after._kept = None, {}
        if whole and isinstance(after.sketch_, TwoSidedFrequentDirections):
            view, weight = after.sketch_._view, check_weights(sample_weight, x.shape[0])
            assert isinstance(view, TwoSidedView)
            both = view.upper_explains_more(after._wanted if isinstance(after._wanted, int) else len(view.lam))
            after._ritz = ritz_pass(view, x, weight, float(self.decay), both=both)
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
            raise ValueError(f"n_components must be below sketch_size={m}, got {k}; {2 * k} is a good sketch_size.")
        return m

    def _accept_width(self, d: int) -> None:
        k = self.n_components
        if isinstance(k, int | np.integer):
            if k > d:
                raise ValueError(f"n_components must be at most n_features={d}, got {k}.")
            most = getattr(vars(self).get("sketch_"), "sketch_size", k + 1)
            if self._is_auto and k >= most:
                raise ValueError(
                    f"n_components must be below {most}, the size of the sketch there is, got {k}. "
                    "Set it back, or call fit to start anew."
                )
            k = int(k)
        self._wanted = k if k is None or isinstance(k, int) else float(k)

    def _warn_of_share(self) -> None:
        """Warn if the sketch has too few rows for the share of the variance that was asked for."""
        share = self._wanted
        if isinstance(share, float) and not isinstance(self.sketch_, ExactSecondMoment):
            reached = float(self.explained_variance_ratio_.sum())
            if reached <= share:
                warnings.warn(
                    f"The {self.n_components_} components of the sketch explain {reached:.3f} of the variance, and "
                    f"n_components={share:g} was asked for. Use a larger sketch_size than {self.sketch_.sketch_size}.",
                    SketchSizeWarning,
                    stacklevel=4,
                )

    def _pack_own(self) -> tuple[Document, Tensors]:
        ritz, own = self._ritz, {"wanted": self._wanted, "ritz": self._ritz is not None}
        if ritz is None:
            return own, {}
        arrays = {"values": ritz.values, "rotation": ritz.rotation}
        return own | {"rounding": ritz.rounding}, arrays | ({} if ritz.upper is None else {"upper": ritz.upper})

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
            view, (r, q) = self.sketch_._view, parts.shape("rotation", 2)
            if not isinstance(view, TwoSidedView) or q not in (len(view.lam), len(view.lam) + len(view.upper_lam)):
                raise ValueError(f"a rotation of shape {(r, q)}")
            values, rotation = parts.array("values", r, least=0.0), parts.array("rotation", r, q)
            upper = parts.array("upper", r, least=0.0) if parts.has("upper") else None  # early files have none
            self._ritz = Ritz(values, rotation, parts.number("rounding", 0.0), upper)

    # -- reading

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _analysis(self) -> Analysis:
        sketch, kept = self._fitted(), self._kept
        if "analysis" not in kept:
            kept["analysis"] = Analysis.of(sketch, self._ritz, self._wanted)
        found: Analysis = kept["analysis"]
        return found

    @property
    def n_components_(self) -> int:
        """k, how many components there are."""
        return self._analysis().k

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @property
    def components_(self) -> NDArray[np.floating]:
        """The principal directions as orthonormal rows."""
        return self._components().copy()

    def _components(self) -> NDArray[np.floating]:
        """Return the components in the type of the rows; they are kept, so that `transform` of a row is quick."""
        kept, v = self._kept, self._analysis().directions
        if "components" not in kept:
            kept["components"] = v.astype(np.float32) if self.sketch_._single else v
        components: NDArray[np.floating] = kept["components"]
        return components

    def _freedom(self) -> float:
        """Return n - 1."""
        weight = self._analysis().view.weight
        if not weight > 1.0:
            # Both a ValueError and an AttributeError: who only looks which attributes there are is not stopped.
            raise NotFittedError(f"Variances need rows of a total weight above 1, but it is {weight:g}.")
        return weight - 1.0

    @property
    def explained_variance_(self) -> Floats:
        """The variance along each component."""
        return np.asarray(self._analysis().scatter / self._freedom())

    @property
    def explained_variance_interval_(self) -> Floats:
        """For each component what the variance of the exact one is at least, and at most."""
        analysis = self._analysis()
        return np.column_stack([analysis.lower[: analysis.k], analysis.upper[: analysis.k]]) / self._freedom()

    @property
    def explained_variance_error_bound_(self) -> float:
        """A bound on the distance of each explained variance from that of the exact covariance."""
        a = self._analysis()
        off = np.maximum(a.upper[: a.k] - a.scatter, a.scatter - a.lower[: a.k])
        rounded = float(np.finfo(np.float32).eps) * a.scatter.max(initial=0.0) if self.sketch_._single else 0.0
        return float((off.max(initial=0.0) + rounded) / self._freedom())

    @property
    def excess_error_bound_(self) -> float:
        """A bound on the reconstruction error above that of the best projection on as many directions."""
        return self._analysis().excess / self._freedom()

    @property
    def subspace_error_bound_(self) -> float:
        """A bound on the distance ||sin Theta||_F of the span of the components from that of the exact ones."""
        analysis = self._analysis()
        k, d = analysis.k, self.n_features_in_
        gap = float(analysis.lower[k - 1] - analysis.upper[k]) if 0 < k < d else 0.0
        trivial = float(np.sqrt(min(k, d - k)))
        return min(trivial, float(np.sqrt(analysis.excess / gap))) if gap > 0 else trivial

    @property
    def explained_variance_ratio_(self) -> Floats:
        """The explained variances divided by the exact total variance; 0 if there is none."""
        analysis = self._analysis()
        total = analysis.view.squared_norm
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
        # With nothing taken by a shrink B'B is A'A: a difference of norms would be rounding, not noise.
        exact = view.ceiling_alpha == view.floor_alpha
        whole = not (isinstance(self.sketch_, ExactSecondMoment) and len(view.lam) == k + 1 < d)
        if exact and whole:
            left = view.lam[k:].sum()
        else:
            left = view.squared_norm - analysis.scatter.sum()
        return max(0.0, float(left)) / (d - k) / self._freedom() if k < d else 0.0

    @property
    def mean_(self) -> Floats:
        """The mean of the rows."""
        mean = self._analysis().view.mean
        assert mean is not None
        return mean.copy()

    # -- use

    def _scale(self) -> Floats:
        scale = np.sqrt(self.explained_variance_)
        scale[scale == 0.0] = np.inf  # no variance, no coordinate: the pseudo-inverse
        return scale

    @one_blas_thread()
    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the coordinates of the rows of X, dense or sparse, along the components."""
        self._fitted()
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        v, kept = self._components(), self._kept
        if sp.issparse(X) and X.nnz < X.shape[1]:  # a few short rows: only the columns that they have
            columns, places = np.unique(X.indices, return_inverse=True)
            short = sp.csr_array((X.data, places, X.indptr), shape=(X.shape[0], len(columns)))
            z = np.asarray(short @ np.ascontiguousarray(v[:, columns].T))
        else:
            z = np.asarray(X @ v.T)
        if "shift" not in kept:
            kept["shift"] = v @ self.mean_
        z -= kept["shift"].astype(z.dtype)
        if self.whiten:
            z /= self._scale().astype(z.dtype)
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
        x = np.asarray(X @ self._components())
        x += self.mean_.astype(x.dtype)
        return x

    def _model(self) -> LowRankPlusIdentity:
        """Return the covariance of probabilistic PCA: explained variances, and noise in all other directions."""
        noise = self.noise_variance_
        return LowRankPlusIdentity(
            self._analysis().directions, np.maximum(self.explained_variance_ - noise, 0.0), noise
        )

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

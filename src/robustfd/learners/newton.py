"""The learners of the paper: online Newton with a sketched Hessian (Luo et al. 2019, Section 5), baselines, rivals."""

from operator import attrgetter
from typing import Any, Literal

import numpy as np

from robustfd._validation import check_choice, check_integer, check_real
from robustfd.learners.learner import OnlineLearner
from robustfd.learners.losses import LOSSES
from robustfd.learners.newton_state import NewtonState
from robustfd.learners.states import AdaGradState, DescentState, OjaState, ProjectionState, Settings
from robustfd.linalg.decompose import shrunk_count

NARROW = 512  # up to this number of features, converting sparse rows to dense ones is faster
SKETCHES = ("rfd", "fd", "pfd", "scfd", "s-adagrad", "ada-fd", "rp", "oja", "full")
ADDED = {"rfd": 0.5, "scfd": 1.0, "s-adagrad": 1.0}  # the share of what a shrink removes that is added to alpha
ROOTS = {"s-adagrad": 1, "ada-fd": 2}  # codes of the core
PROJECTIONS = {None: 0, "current": 1, "next": 2}  # codes of the core
RATES = {"1/t": (1.0, 1.0), "1/sqrt(t)": (1.0, 0.5)}  # eta_t = first / t^second


class PaperLearner(OnlineLearner):
    """The parameters that all learners of the paper have."""

    bound: float
    projection: str | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._names = attrgetter(*cls._get_param_names())

    def _check_parameters(self) -> None:
        self._check_loss()
        check_real("bound", self.bound, 0.0, open_low=True)
        check_choice("projection", self.projection, tuple(PROJECTIONS))

    def _settings(self, **more: Any) -> Settings:
        """Return the settings of the compiled core, `more` of which this learner has."""
        return Settings(
            loss=self._check_loss().code,
            delta=float(self.huber_delta),
            bound=float(self.bound),
            projection=PROJECTIONS[self.projection],
            **more,
        )


def check_rate(rate: Any) -> None:
    """Raise an error unless rate is a known name or a number, at least 0."""
    if isinstance(rate, str):
        check_choice("rate", rate, tuple(RATES))
    else:
        check_real("rate", rate, 0.0)


def rate_and_power(rate: str | float) -> tuple[float, float]:
    """Return rate and power of eta_t = rate / t^power."""
    return RATES[rate] if isinstance(rate, str) else (float(rate), 0.0)


class OnlineNewton(PaperLearner):
    r"""Online Newton learning of a linear model with a sketched Hessian, in O(m d) time per row.

    At row t, with margin p = w'x and gradient g = l'(p) x, the row :math:`\sqrt{\mu + \eta_t}\, g` is added to the
    sketch of H, and

    .. math::

        u = w - H_t^{-1} g, \qquad w \leftarrow \arg\min_{|v'x| \le C} (v - u)' H_t (v - u).

    The defaults are those of the experiments of Luo et al. 2019 and need no tuning: squared loss on labels -1 and +1,
    C = 1, mu = 1/8, eta_t = 1/t, alpha0 = 0 (RFD0-SON in the paper).

    Two methods divide by a root instead, and need a learning rate. Their sketch is that of the gradients g, without
    mu and eta_t:

    .. math::

        u = w - \eta_t\, (B'B + \alpha I)^{-1/2} g \quad \text{(S-AdaGrad)}, \qquad
        u = w - \eta_t\, ((B'B)^{1/2} + \alpha_0 I)^{-1} g \quad \text{(Ada-FD)}.

    Parameters
    ----------
    sketch : {"rfd", "fd", "pfd", "scfd", "s-adagrad", "ada-fd", "rp", "oja", "full"}, default="rfd"
        RFD-SON (Alg. 3 and 6), FD-SON, PFD-SON, RP-SON, Oja-SON, or FULL-ON, whose H is exact and d x d. Newer than the
        paper are "scfd", which adds all that a shrink removes to alpha, where "rfd" adds half (Chen et al. 2020),
        "s-adagrad" (Feinberg et al. 2023) and "ada-fd" (Wan et al. 2018, the form of mirror descent).
    sketch_size : int, default=20
        m, at least 2. Not used by "full".
    alpha0 : float, default=0.0
        Initial value alpha0 I of H. With 0, the steps use pseudo-inverses until the sketch of "rfd", "scfd" or
        "s-adagrad" adds a multiple of the identity. The other sketches never add one, so they should start from a
        value above 0. So should all if the first rows are nearly dependent, such as windows of a series, as
        pseudo-inverses then make very long weights.
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
        Loss of a margin and a label.
    bound : float, default=1.0
        C, the largest absolute margin. Labels of the squared loss should not exceed it.
    curvature : float, optional
        mu. The default is the curvature of the loss on \|w'x\| <= C: 1 / (8 C^2) for the squared loss.
    rate : {"1/t", "1/sqrt(t)"} or float, default="1/t"
        eta_t. A float is a constant rate. "s-adagrad" and "ada-fd" have no default: give a float.
    scale : float, default=1.0
        Factor of eta_t.
    projection : {"current", "next", None}, default="current"
        "current" projects after the step, with the row just learned (Alg. 6). "next" projects before predicting the
        next row, with that row (Alg. 3). None never projects.
    buffer_size : int, optional
        Total number of rows in B and in the buffer, at least m (Alg. 3). Default is 2 m (Alg. 6). "s-adagrad" and
        "ada-fd" shrink after every row, as if it were m.
    beta : float, default=0.2
        For "pfd": the share of the m squared singular values that a shrink reduces.
    shrink_first : bool, default=False
        If True, the row that fills the buffer takes its step after the shrink, as Alg. 6 is printed. If False, it takes
        the step before the shrink, as in the paper's figures. Always True for "s-adagrad" and "ada-fd".
    huber_delta : float, default=1.0
        Margin error at which the Huber loss becomes linear.
    random_state : int, optional
        Seed of "rp" and "oja".

    Attributes
    ----------
    weights_ : array of shape (d,)
        The weights w.
    alpha_ : float
        alpha of H.
    n_samples_seen_ : int
        Number of rows learned so far.
    progressive_loss_, progressive_error_ : float
        Mean loss and error rate of all rows so far, each predicted before it was learned.
    progressive_ : dict of arrays
        The same after 1, 2, 4, ... rows.

    See Also
    --------
    AdaGrad : A first-order method with one learning rate for each feature.
    OnlineGradientDescent : Gradient descent with one learning rate.

    Notes
    -----
    Rows are processed in blocks between shrinks, through small Gram matrices. The result equals that of one row at a
    time (:doc:`proof </online-mathematics>`). A row costs O(m) for each non-zero plus O(m^2); for sparse rows nothing
    costs O(d). The roots have no update of rank one: a row of "s-adagrad" and "ada-fd" costs O(m^2 d).

    References
    ----------
    Chen et al., "Efficient and Robust High-Dimensional Linear Contextual Bandits", IJCAI 2020.
    V. Feinberg, X. Chen, Y. J. Sun, R. Anil and E. Hazan, "Sketchy: Memory-efficient Adaptive Regularization with
    Frequent Directions", NeurIPS 2023.
    Y. Wan, N. Wei and L. Zhang, "Efficient Adaptive Online Learning via Frequent Directions", IJCAI 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import normalize, scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = OnlineNewton(sketch_size=5)
    >>> margins = learner.learn(normalize(scale(X)), 2 * y - 1)
    >>> learner.n_samples_seen_, round(learner.progressive_error_, 2)
    (569, 0.07)
    """

    def __init__(
        self,
        sketch: Literal["rfd", "fd", "pfd", "scfd", "s-adagrad", "ada-fd", "rp", "oja", "full"] = "rfd",
        sketch_size: int = 20,
        *,
        alpha0: float = 0.0,
        loss: str = "squared",
        bound: float = 1.0,
        curvature: float | None = None,
        rate: str | float = "1/t",
        scale: float = 1.0,
        projection: Literal["current", "next"] | None = "current",
        buffer_size: int | None = None,
        beta: float = 0.2,
        shrink_first: bool = False,
        huber_delta: float = 1.0,
        random_state: int | None = None,
    ):
        self.sketch = sketch
        self.sketch_size = sketch_size
        self.alpha0 = alpha0
        self.loss = loss
        self.bound = bound
        self.curvature = curvature
        self.rate = rate
        self.scale = scale
        self.projection = projection
        self.buffer_size = buffer_size
        self.beta = beta
        self.shrink_first = shrink_first
        self.huber_delta = huber_delta
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice("sketch", self.sketch, SKETCHES)
        m = check_integer("sketch_size", self.sketch_size, 2)
        check_real("alpha0", self.alpha0, 0.0)
        super()._check_parameters()
        if self.curvature is not None:
            check_real("curvature", self.curvature, 0.0)
        check_rate(self.rate)
        if self.sketch in ROOTS and isinstance(self.rate, str):
            raise ValueError(f"sketch={self.sketch!r} needs a number as rate, such as 0.1, got {self.rate!r}.")
        check_real("scale", self.scale, 0.0, open_low=True)
        check_real("beta", self.beta, 0.0, 1.0, open_low=True)
        check_choice("shrink_first", self.shrink_first, (True, False))
        if self.random_state is not None:
            check_integer("random_state", self.random_state, 0)
        if self.buffer_size is not None and check_integer("buffer_size", self.buffer_size, 1) < m:
            raise ValueError(f"buffer_size must be at least sketch_size={m}, got {self.buffer_size}.")

    def _keeps_sparse(self, d: int) -> bool:
        return self.sketch in ("rp", "oja") or d > NARROW

    def _plan(self, d: int) -> tuple[type[Any], tuple[Any, ...]]:
        m = d + 1 if self.sketch == "full" else int(self.sketch_size)
        mu = (
            LOSSES[self.loss].curvature(self.bound, delta=self.huber_delta)
            if self.curvature is None
            else self.curvature
        )
        rate, power = rate_and_power(self.rate)
        settings = self._settings(
            mu=float(mu),
            rate=float(self.scale) * rate,
            power=power,
            alpha0=float(self.alpha0),
            shrink_first=bool(self.shrink_first) or self.sketch in ROOTS,
            shrunk=shrunk_count(m, float(self.beta)) if self.sketch == "pfd" else m,
            added=ADDED.get(self.sketch, 0.0),
            root=ROOTS.get(self.sketch, 0),
        )
        if self.sketch == "rp":
            return ProjectionState, (settings, d, m, np.random.default_rng(self.random_state))
        if self.sketch == "oja":
            return OjaState, (settings, d, min(m, d), np.random.default_rng(self.random_state))
        rows = m if self.sketch in ROOTS else 2 * m
        if self.buffer_size is not None and self.sketch not in ("full", *ROOTS):
            rows = self.buffer_size
        return NewtonState, (settings, d, m, rows)

    @property
    def alpha_(self) -> float:
        """The multiple of the identity in H: alpha0 plus what "rfd", "scfd" and "s-adagrad" added."""
        self._require_rows()
        state: Any = self._state
        return float(state.alpha)


class AdaGrad(PaperLearner):
    r"""ADAGRAD with a diagonal matrix (Duchi et al. 2011), as run by Luo et al. 2019, Section 6.

    .. math:: S_i \leftarrow S_i + g_i^2, \quad h_i = \sqrt{\alpha_0 + S_i}, \quad w_i \leftarrow w_i - g_i / h_i

    Each step ends with the projection onto \|w'x\| <= C in the norm of diag(h). The cost of a row is proportional to
    its number of non-zeros.

    Parameters
    ----------
    alpha0 : float, default=1.0
        Initial value of every diagonal entry, at least 0.
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
        Loss of a margin and a label.
    bound : float, default=1.0
        C, the largest absolute margin.
    projection : {"current", "next", None}, default="current"
        Row whose margin the projection bounds. See `OnlineNewton`.
    huber_delta : float, default=1.0
        Margin error at which the Huber loss becomes linear.

    See Also
    --------
    OnlineGradientDescent : Gradient descent with one learning rate for all features.
    OnlineNewton : Newton steps with a sketched Hessian.

    Examples
    --------
    >>> import numpy as np
    >>> learner = AdaGrad(alpha0=1.0)
    >>> learner.learn(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1.0, 1.0])).round(3)
    array([0.   , 0.894])
    """

    def __init__(
        self,
        alpha0: float = 1.0,
        *,
        loss: str = "squared",
        bound: float = 1.0,
        projection: Literal["current", "next"] | None = "current",
        huber_delta: float = 1.0,
    ):
        self.alpha0 = alpha0
        self.loss = loss
        self.bound = bound
        self.projection = projection
        self.huber_delta = huber_delta

    def _check_parameters(self) -> None:
        check_real("alpha0", self.alpha0, 0.0)
        super()._check_parameters()

    def _plan(self, d: int) -> tuple[type[Any], tuple[Any, ...]]:
        return AdaGradState, (self._settings(alpha0=float(self.alpha0)), d)


class OnlineGradientDescent(PaperLearner):
    r"""Online gradient descent (Zinkevich 2003): w <- w - eta_t g, then the nearest point with \|w'x\| <= C.

    Parameters
    ----------
    rate : {"1/t", "1/sqrt(t)"} or float, default="1/sqrt(t)"
        Learning rate eta_t before `scale` is applied. A float is a constant rate.
    scale : float, default=1.0
        Factor of the learning rate.
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
        Loss of a margin and a label.
    bound : float, default=1.0
        C, the largest absolute margin.
    projection : {"current", "next", None}, default="current"
        When to project. See `OnlineNewton`.
    huber_delta : float, default=1.0
        Margin error at which the Huber loss becomes linear.

    See Also
    --------
    AdaGrad : Gradient steps with one learning rate for each feature.
    OnlineNewton : Newton steps with a sketched Hessian.

    Examples
    --------
    >>> import numpy as np
    >>> learner = OnlineGradientDescent(0.25)
    >>> learner.learn(np.array([[1.0], [1.0], [1.0]]), np.array([1.0, 1.0, 1.0]))
    array([0.  , 0.5 , 0.75])
    """

    def __init__(
        self,
        rate: str | float = "1/sqrt(t)",
        *,
        scale: float = 1.0,
        loss: str = "squared",
        bound: float = 1.0,
        projection: Literal["current", "next"] | None = "current",
        huber_delta: float = 1.0,
    ):
        self.rate = rate
        self.scale = scale
        self.loss = loss
        self.bound = bound
        self.projection = projection
        self.huber_delta = huber_delta

    def _check_parameters(self) -> None:
        check_rate(self.rate)
        check_real("scale", self.scale, 0.0, open_low=True)
        super()._check_parameters()

    def _plan(self, d: int) -> tuple[type[Any], tuple[Any, ...]]:
        rate, power = rate_and_power(self.rate)
        return DescentState, (self._settings(rate=float(self.scale) * rate, power=power), d)

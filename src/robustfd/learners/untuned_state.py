"""The state of an untuned learner: its experts, which the core holds, and the first rows while they are few."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._core import Untuned
from robustfd.learners import exact, feature_stats, low_rank, mixture
from robustfd.learners.exact import Exact, padded
from robustfd.learners.feature_stats import FEATURE, TOTALS, Features
from robustfd.learners.low_rank import LowRank
from robustfd.learners.mixture import TARGETS, Mixture, NumberLoss

Floats = NDArray[np.float64]
Form = Literal["diagonal", "exact", "sketch"]

FIRST = 64  # until this number of rows, all rows are learned again whenever their number doubles
PRIOR, PRIOR_OF_NUMBERS = 3 / 16, 1 / 2  # a0
TWO_MEMORIES = 64  # up to this number of features, the exact Hessian has a fast memory as well
OFFER_EXACT = 256  # up to this number of features, an exact Hessian may pay off

# Learning rates of the experts, and whether they are linear: first the slow experts, then the fast ones.
RATES = np.array([[0.25, 1, 4, 16, 64, 256, 1, 16], [0.25, 1, 4, 16, 1, 4, 16, 64]])
LINEAR = np.array([[0.0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]])
FEW = [1, 2, 4, 6]  # with more than two classes, only one expert of each pair is used to save time
RATES_OF_NUMBERS = 4.0 ** np.array([np.arange(-2, 6), np.arange(-3, 5)])


class Experts(NamedTuple):
    """Views of the arrays of all experts, which are empty for forms of the Hessian that are not in use."""

    features: Features
    mix: Mixture
    weights: NDArray[np.float32]  # (d + 1, memories outputs L), of the diagonal experts
    exact: Exact
    low_rank: LowRank


# The arrays of each part in the core, in the order of its fields.
NAMES = {
    "features": ("table", "totals", "centred", "centre"),
    "mix": ("rate", "linear", "fast", "share", "plain", "follow", "trace", "targets"),
    "exact": ("inverse", "past", "block", "exact_weights"),
    "low_rank": ("u", "diagonal", "low_weights", "along", "sketch", "lam", "buffer", "filled"),
}
RECORDS = {"table": FEATURE, "totals": TOTALS, "targets": TARGETS}  # arrays of records, which are rows in the core


def experts_of(core: Untuned) -> Experts:
    """Return views of the arrays of the core."""
    arrays = core.arrays()
    for name, kind in RECORDS.items():
        arrays[name] = arrays[name].view(kind)[:, 0]
    parts = {part: [arrays[name] for name in names] for part, names in NAMES.items()}
    return Experts(
        Features(*parts["features"]),
        Mixture(*parts["mix"]),
        arrays["weights"],
        Exact(*parts["exact"]),
        LowRank(*parts["low_rank"]),
    )


def changed_arrays(old: Experts | None, new: Experts) -> dict[str, Any]:
    """Return the arrays of `new` that are not the same objects as those of `old`, by their names in the core."""
    arrays: dict[str, Any] = {}
    if old is None or old.weights is not new.weights:
        arrays["weights"] = np.ascontiguousarray(new.weights)
    for part, names in NAMES.items():
        before = [None] * len(names) if old is None else getattr(old, part)
        for name, one, two in zip(names, before, getattr(new, part), strict=True):
            if one is not two:
                arrays[name] = np.ascontiguousarray(two)
                if name in RECORDS:
                    arrays[name] = arrays[name].view(np.float64).reshape(len(two), -1)
    return arrays


class ExpertState:
    """The experts, the first rows, and the numbers of rows at which events happen."""

    def __init__(
        self,
        d: int,
        outputs: int,
        *,
        sketch: int | None = None,
        loss: NumberLoss | None = None,
        share: float = 1.0,
    ):
        """Start with d features; `share` is the share of the prior, below 1 for parts that will be merged."""
        self.d, self.outputs, self.sketch, self.loss = d, outputs, sketch, loss
        self.first = FIRST  # number of first rows, which are learned again; 0 if they are not stored
        self.entries = 0  # the largest number of entries of a row
        self.kept: list[tuple[Any, Floats, Floats]] = []  # the first rows, unscaled
        self.aside: list[tuple[Any, Floats, Floats]] = []  # rows to learn from when all parts are merged
        self.form: Form = "diagonal"
        self.size = 0  # rows of the sketch
        self.renew_at = self.look_at = 0
        self.renewed_at = 0
        self.gain = 0.0
        self.core = Untuned()
        self._experts: Experts | None = None  # views of the arrays of the core
        self.experts = self.fresh_experts(feature_stats.start(d, prior=share * self.prior(), by_density=loss is None))
        self.count = self.experts.mix.plain.shape[1] // 2  # experts in each memory, for each output

    def prior(self) -> float:
        """Return a0."""
        return PRIOR if self.loss is None else PRIOR_OF_NUMBERS

    @property
    def share(self) -> float:
        """Share of the prior, below 1 for parts that will be merged."""
        return float(self.experts.features.totals["prior"][0]) / self.prior()

    def fresh_experts(self, features: Features, before: Mixture | None = None, weights: Any = None) -> Experts:
        """Return new experts for these features, which continue the trace of the mixture `before`.

        `weights` is an array of zeros to reuse if it has the right shape.
        """
        rates, linear = self._lanes()
        mix = mixture.start(self.outputs, rates, linear, loss=self.loss)
        if before is not None:
            mix = mix._replace(trace=before.trace)
            mix.targets["stride"] = before.targets["stride"]
        count = rates.shape[1]
        width = 2 * padded(self.outputs * count)
        if weights is None or weights.shape[1] != width:
            weights = np.zeros((self.d + 1, width), np.float32)
        none = exact.start(0, 0, self.outputs, count), low_rank.start(0, 0, self.outputs, count)
        return Experts(features, mix, weights, *none)

    def _lanes(self) -> tuple[Floats, Floats]:
        """Return the learning rates of slow and fast experts, and whether they are linear."""
        if self.loss is not None:
            return RATES_OF_NUMBERS, np.ones_like(RATES_OF_NUMBERS)
        if self.outputs == 1:
            return RATES, LINEAR
        return RATES[:, FEW], LINEAR[:, FEW]

    @property
    def seen(self) -> int:
        """The number of rows so far."""
        return self.core.seen

    @seen.setter
    def seen(self, rows: int) -> None:
        self.core.seen = rows

    @property
    def experts(self) -> Experts:
        """Views of the arrays of the core. Assigning to it replaces the arrays that are not such views by copies."""
        if self._experts is None:
            self._experts = experts_of(self.core)
        return self._experts

    @experts.setter
    def experts(self, new: Experts) -> None:
        self.core.replace(changed_arrays(self._experts, new))
        self._experts = None

    def keep(self, rows: int, features: NDArray[np.int32] | None) -> Any:
        """Return what `undo` needs to forget the next rows, which have these features (None for all)."""
        numbers = vars(self) | {"kept": list(self.kept), "aside": list(self.aside)}
        return numbers, self.seen, self.core.keep(rows, features)

    def undo(self, kept: Any) -> None:
        """Restore the state at the time of `keep`."""
        numbers, seen, arrays = kept
        self.core.undo(arrays)
        self.__dict__.update(numbers)
        self.seen, self._experts = seen, None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_experts": None}  # a copy has its own arrays

    def memories(self, form: Form) -> int:
        """Return the number of memories of experts with this form: 1 is slow only, 2 is slow and fast."""
        return {"diagonal": 0, "sketch": 1, "exact": 2 if self.d <= TWO_MEMORIES else 1}[form]

    def diagonal_weights(self) -> Floats:
        """Return the weights (features, outputs, 2 L) of the diagonal experts, for scaled features."""
        w, half = self.experts.weights.astype(np.float64), self.experts.weights.shape[1] // 2
        used = self.outputs * self.count
        parts = [w[:, m * half : m * half + used].reshape(len(w), self.outputs, self.count) for m in (0, 1)]
        return np.concatenate(parts, axis=2)

    def set_diagonal_weights(self, out: Any, weights: Floats) -> Floats:
        """Fill `out` with the diagonal experts' part of weights (features, outputs, experts); return the other part.

        The other part has shape (features, memories outputs L), as in the exact and the sketched Hessian.
        """
        n, half, used = len(weights), out.shape[1] // 2, self.outputs * self.count
        parts = weights.reshape(n, self.outputs, -1, self.count).transpose(0, 2, 1, 3)
        for memory in (0, 1):
            out[:, memory * half : memory * half + used] = parts[:, memory].reshape(n, -1)
        return np.ascontiguousarray(parts[:, 2:].reshape(n, -1))

    def all_weights(self) -> Floats:
        """Return the weights (features, outputs, experts) of all experts, for scaled features."""
        e, w = self.experts, self.diagonal_weights()
        if self.form == "diagonal":
            return w
        better = e.exact.weights if self.form == "exact" else e.low_rank.weights + e.low_rank.u @ e.low_rank.along
        parts = better.reshape(len(w), -1, self.outputs, self.count).transpose(0, 2, 1, 3)
        return np.concatenate([w, parts.reshape(len(w), self.outputs, -1)], axis=2)

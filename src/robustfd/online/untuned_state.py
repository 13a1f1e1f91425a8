"""The state of an untuned learner: its experts, their scratch memory, and the first rows while they are few."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd.online import exact, experts, feature_stats, low_rank, mixture
from robustfd.online.experts import Diagonal, Experts
from robustfd.online.feature_stats import Features
from robustfd.online.lanes import padded
from robustfd.online.mixture import Mixture, NumberLoss
from robustfd.online.scratch import Work, work_for

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


class Pointers(NamedTuple):
    """Pointers to the experts and the scratch memory, for compiled loops."""

    shared: Any
    whole: Any
    low: Any
    work: Any


class Held(NamedTuple):
    """Pointers with the records they point to, which must stay alive."""

    pointers: Pointers
    experts: Experts
    work: Work
    sparse: bool


class ExpertState:
    """The experts, their scratch memory, the first rows, and the numbers of rows at which events happen."""

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
        self.first = FIRST  # number of first rows, which are learned again; 0 if a file lacks them
        self.seen = self.entries = 0  # number of rows, and the largest number of entries of a row
        self.kept: list[tuple[Any, Floats, Floats]] = []  # the first rows, unscaled
        self.aside: list[tuple[Any, Floats, Floats]] = []  # rows to learn from when all parts are merged
        self.form: Form = "diagonal"
        self.size = 0  # rows of the sketch
        self.renew_at = self.look_at = 0
        self.renewed_at = 0
        self.gain = 0.0
        self._held: Held | None = None
        self.experts = self.fresh_experts(feature_stats.start(d, prior=share * self.prior(), by_density=loss is None))
        self.count = self.experts.mix.plain.shape[1] // 2  # experts in each memory, for each output
        self.allocate_work()

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
            weights = feature_stats.aligned(self.d + 1, np.float32, width)
        none = exact.start(0, 0, self.outputs, count), low_rank.start(0, 0, self.outputs, count)
        return Experts(features, mix, weights, *none)

    def _lanes(self) -> tuple[Floats, Floats]:
        """Return the learning rates of slow and fast experts, and whether they are linear."""
        if self.loss is not None:
            return RATES_OF_NUMBERS, np.ones_like(RATES_OF_NUMBERS)
        if self.outputs == 1:
            return RATES, LINEAR
        return RATES[:, FEW], LINEAR[:, FEW]

    def allocate_work(self) -> None:
        """Allocate scratch memory for rows of `entries` entries."""
        self.work = self.work_for(self.entries)

    def work_for(self, entries: int) -> Work:
        """Return scratch memory for rows of at most `entries` entries."""
        e = self.experts
        direction_size = max(e.exact.block.shape[1], len(e.low_rank.lam))
        return work_for(e.mix, entries + len(e.features.centred), e.weights.shape[1], direction_size)

    def pointers(self, *, sparse: bool) -> Pointers:
        """Return pointers to the experts and the scratch memory, cached until one of the two is replaced.

        The pointer to a better Hessian that is unlikely to be used is None, so that no loops are compiled for it.
        """
        held = self._held
        if held is None or held.experts is not self.experts or held.work is not self.work or held.sparse != sparse:
            e = self.experts
            shared = experts.DIAGONAL.pointers(Diagonal(e.features, e.mix, e.weights))
            whole = experts.EXACT.pointers(e.exact) if self.sketch is None and self.d <= OFFER_EXACT else None
            sketched = self.sketch is None and self.d > OFFER_EXACT and not sparse
            in_use = self.sketch or sketched or len(e.low_rank.diagonal) > 0
            low = experts.LOW_RANK.pointers(e.low_rank) if in_use else None
            held = Held(Pointers(shared, whole, low, experts.WORK.pointers(self.work)), e, self.work, sparse)
            self._held = held
        return held.pointers

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_held": None}  # a copy has its own arrays, so the addresses would be wrong

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

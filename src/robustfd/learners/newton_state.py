"""The state of the methods that process rows in blocks: RFD-SON, FD-SON, PFD-SON and FULL-ON."""

import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

import robustfd._core as _core
from robustfd._container import Document, Tensors
from robustfd.learners.rows import GROWTH, LARGEST_NUMBER, Floats, as_rows
from robustfd.learners.snapshot import Parts
from robustfd.learners.states import CoreState, Settings, all_finite, largest
from robustfd.linalg.decompose import shrink_stack
from robustfd.linalg.threads import one_blas_thread

RUN_ROWS = 256  # approximate number of rows of a run of sparse rows
SAVED = 8  # numbers of a row's effect that later rows use
C2, ALONG_N = 0, 3  # two of them: the weight c^2 of the row in H, and the part of its step along N
HUGE_ROWS = 2  # `extreme`: the rows themselves are huge or tiny
TRIANGLES = {"gram": np.tril, "n": np.triu, "k": np.triu}  # the part of an array that is in use


class NewtonState(CoreState):
    """The current block of rows, and the basis that holds w and B (block.hpp and run.hpp of the core)."""

    def __init__(self, settings: Settings, d: int, m: int, rows: int, *, sparse: bool):
        core = _core.Newton(_core.PaperSettings(*settings), d, m, rows, sparse, RUN_ROWS)
        super().__init__(settings, core, sparse=sparse)
        self.sizes = m, rows

    @property
    def alpha(self) -> float:
        """The multiple of the identity in H."""
        return float(self.core.state.alpha)

    def is_sound(self) -> bool:
        """Return whether all numbers are finite, and leave space for ordinary rows.

        Ordinary rows are accepted whenever the numbers stay finite, however large they become. For example, a model
        that has only seen rows of size 1e-100 has huge weights, and must be able to learn from ordinary rows.
        """
        if self.core.state.overflowed:
            return False
        if not self.core.extreme:
            return True
        with np.errstate(all="ignore"):
            arrays = [*self.pack()[1].values(), self.weights()]
        return all_finite(arrays) and (self.core.extreme != HUGE_ROWS or self._grew_little())

    def _grew_little(self) -> bool:
        """Return whether the Hessian and the weights are not huge, or have grown by a moderate factor."""
        after = self._magnitudes()
        if max(after) <= LARGEST_NUMBER:
            return True
        before = copy.deepcopy(self)
        before.rollback()
        # b is 0 before the first non-zero row, and then any growth is accepted.
        return all(
            a <= LARGEST_NUMBER or b == 0.0 or a <= GROWTH * b for a, b in zip(after, before._magnitudes(), strict=True)
        )

    def _magnitudes(self) -> tuple[float, float]:
        """Return the largest number in the Hessian (eigenvalues, rows, their contributions) and in the weights."""
        arrays = self.pack()[1]
        with np.errstate(over="ignore"):
            added = arrays["rows"][:, C2] * np.diagonal(arrays["gram"])
        return largest(arrays["gram"], arrays["lam"], added), largest(self.weights())

    def widen(self, d: int) -> None:
        """Allocate memory for d features; only for sparse rows."""
        if d > self.d:
            self.core.widen(max(d, 2 * self.d))

    def multiply_weights(self, factor: float) -> None:
        """Multiply w by a factor."""
        self.core.multiply_weights(factor)

    # -- reading

    def weights(self, features: Any = None) -> Floats:
        """Return w, or its entries for some features."""
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks that w is finite
            return np.asarray(self.core.state.factor * self.core.combine(1.0, *self.core.steps(), features))

    def margins(self, x: Any) -> Floats:
        """Return w'x of dense or sparse rows."""
        if self.sparse and sp.issparse(x) and x.nnz < x.shape[1]:  # only the features that occur
            x = as_rows(x, sparse=True)
            features, place = np.unique(x.indices, return_inverse=True)
            x = sp.csr_array((x.data, place, x.indptr), shape=(x.shape[0], len(features)))
            return np.asarray(x @ self.weights(features))
        return super().margins(x)

    # -- merging: w is the mean weighted by numbers of rows, and H covers the rows of both
    #
    # Unlike in the untuned learner, H sums squared gradients, so the worse of two learners has the larger Hessian. For
    # this reason H does not weight the mean of w. The rows of both sketches and of both blocks are shrunk once.

    @one_blas_thread()
    def merged(self, other: "NewtonState", vote: Floats) -> "NewtonState":
        """Return the merged state of two states with the same settings; `vote` weights the mean of their w."""
        states, d = (self, other), max(self.d, other.d)
        if self.d == other.d and (self._is_fresh() or other._is_fresh()):
            return copy.deepcopy(other if self._is_fresh() else self)
        w = vote @ np.array([_padded(state.weights(), d) for state in states])
        rows = np.vstack([_padded(state.hessian_rows(), d) for state in states])
        return self._sketched(w, rows, states, 1.0, sum(state.core.state.seen for state in states))

    @one_blas_thread()
    def fraction(self, k: int, i: int) -> "NewtonState":
        """Return part i of k, with the same weights and a k-th of H."""
        if self._is_fresh() or k == 1:
            return copy.deepcopy(self)
        seen = (self.core.state.seen + k - 1 - i) // k
        return self._sketched(self.weights(), self.hessian_rows() / np.sqrt(k), (self,), 1.0 / k, seen)

    def _is_fresh(self) -> bool:
        """Return whether the state has no rows, neither learned nor from a split."""
        return self.core.state.shrinks == 0 and self.core.state.filled == 0

    def hessian_rows(self) -> Floats:
        """Return the rows whose outer products add up to H - alpha I: those of B and of the current block."""
        views, n = self.arrays, self.core.state.filled
        r = len(views["lam"])
        picked = np.diag(np.append(np.ones(r), np.sqrt(views["rows"][:n, C2])))
        return np.array([self.core.combine(0.0, each[:r].copy(), each[r:].copy()) for each in picked])

    def _sketched(self, w: Floats, rows: Floats, states: Any, scale: float, seen: int) -> "NewtonState":
        """Return a state with an empty block, the weights w, a sketch of these rows, and scaled sums of the states."""
        settings, (m, buffer), like = self.settings, self.sizes, [each.core.state for each in states]
        shrunk = shrink_stack(rows[:0], np.zeros(0), rows[np.any(rows != 0, axis=1)], m, settings.shrunk, solver="svd")
        new = NewtonState(settings, len(w), m, buffer, sparse=self.sparse)
        state, views, kept = new.core.state, new._stored(), len(shrunk.lam)
        views["basis"][:, 0], views["basis"][:, 1 : 1 + kept] = w, shrunk.rows.T
        views["lam"][:kept] = shrunk.lam
        growth = sum(each.alpha - settings.alpha0 for each in like) * scale + settings.added * shrunk.delta
        state.alpha, state.delta = settings.alpha0 + growth, shrunk.delta
        state.delta_sum = sum(each.delta_sum for each in like) * scale + shrunk.delta
        state.seen, state.shrinks = seen, 1 + sum(each.shrinks for each in like)
        state.careful = state.alpha == 0.0 or any(each.careful for each in like)
        new._count_ranks()
        return new

    # -- snapshots (docs/snapshot-format.md)

    def _sizes(self) -> tuple[int, ...]:
        return self.d, *self.sizes

    def _stored(self, number: int = 0, rows: int = 0) -> dict[str, Any]:
        """Return what a snapshot holds of each array, as views. Sparse rows have so many `rows` in run `number`."""
        state, views = self.core.state, self.arrays
        n = state.filled
        stored = {
            "products": views["products"][:n],
            "gram": views["gram"][:n, :n],
            "n": views["n"][:n, :n],
            "rows": views["rows"][:n, :SAVED],
            "lam": views["lam"],
        }
        if state.careful:
            stored["k"] = views["k"][:n, :n]
        if not self.sparse:
            return stored | {"basis": views["basis"].T, "buffer": views["buffer"][:n]}
        return stored | {
            "basis": views["basis"],
            "age": views["age"],
            "history": views["history"][:number],
            "run.coefficients": views["coefficients"][: len(views["lam"]) + rows - n],  # of rows before the block
        }

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        state = self.core.state
        if state.overflowed:
            raise OverflowError("The weights have overflowed, so the learner cannot be saved. Make a new learner.")
        run = (self.core.run.number, self.core.run.rows) if self.sparse else ()
        arrays = {
            name: TRIANGLES[name](view) if name in TRIANGLES else np.array(view, order="C")
            for name, view in self._stored(*run).items()
        }
        arrays["scalars"] = np.array([state.alpha, state.delta_sum, state.delta])
        if self.sparse:
            names = "run.value", "run.row", "run.where"
            arrays |= dict(zip(names, self.core.entries(), strict=True))
            arrays |= {f"run.{name}": self.arrays[name].copy() for name in ("feature", "gathered")}
        numbers = {
            "sparse": bool(self.sparse),
            "seen": state.seen,
            "shrinks": state.shrinks,
            "careful": state.careful,
            "factor": state.factor,
        }
        return numbers, arrays

    @classmethod
    def unpack(cls, parts: Parts, settings: Settings, d: int, m: int, rows: int, *, sparse: bool) -> Self:
        """Return the state in a snapshot of a learner with these settings and sizes."""
        if parts.shape("basis", 2) != (d, m):
            raise ValueError(f"the basis has shape {parts.shape('basis', 2)}, expected {(d, m)}")
        n, seen, shrinks = parts.shape("products", 2)[0], parts.count("seen"), parts.count("shrinks")
        if (most := rows - (m - 1 if shrinks else 0)) <= n:
            raise ValueError(f"the block has {n} rows, expected fewer than {most}")
        self = cls(settings, d, m, rows, sparse=sparse)
        state = self.core.state
        state.seen, state.shrinks, state.filled, state.careful = seen, shrinks, n, parts.flag("careful")
        state.alpha, state.delta_sum, state.delta = parts.array("scalars", 3, least=0.0)
        if state.alpha == 0.0 and (n or shrinks) and not state.careful:
            raise ValueError("alpha is zero, but K is missing")
        state.factor = parts.number("factor")
        if state.factor == 0.0:
            raise ValueError("the factor of the weights is zero")
        number, run_rows = 0, 0
        if sparse:
            number, run_rows = parts.shape("history", 3)[0], parts.shape("run.coefficients", 2)[0] - (m - 1) + n
        limits: dict[str, Any] = {"lam": {"least": 0.0}, "age": {"dtype": np.uint8, "most": number}}
        for name, view in self._stored(number, run_rows).items():
            view[...] = parts.array(name, *view.shape, **limits.get(name, {}))
        self._count_ranks()
        if sparse:  # the core checks everything that it uses as an index
            features, entries = parts.shape("run.feature", 1)[0], parts.shape("run.value", 1)[0]
            feature = parts.array("run.feature", features, dtype=np.int32)
            row, where = (parts.array(name, entries, dtype=np.int32) for name in ("run.row", "run.where"))
            gathered, value = parts.array("run.gathered", features, m), parts.array("run.value", entries)
            self.core.restore_run(number, run_rows, feature, gathered, value, row, where)
        parts.close()
        return self

    def _count_ranks(self) -> None:
        """Count the dimensions of B and of the rows of the block."""
        state, views = self.core.state, self.arrays
        lam, effects = views["lam"], views["rows"][: state.filled]
        added = np.count_nonzero((effects[:, C2] > 0) & (effects[:, ALONG_N] != 0))
        state.rank = int(np.count_nonzero(lam) + added)
        state.span = int(np.count_nonzero(lam > state.alpha) + added)


def _padded(array: Floats, d: int) -> Floats:
    """Return an array (..., features) padded to d features."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, d - array.shape[-1])])

"""The state of a sketched Newton learner: settings, and a learner of the compiled core, which owns the arrays."""

import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

import robustfd._core as _core
from robustfd._container import Document, Tensors
from robustfd.learners import ball, newton_merging
from robustfd.learners.rows import GROWTH, LARGEST_NUMBER, Floats, as_rows
from robustfd.learners.settings import BALL, NEXT, Settings
from robustfd.learners.snapshot import Parts

RUN_ROWS = 256  # approximate number of rows of a run of sparse rows
RUNS = 128  # runs after which all features are brought up to date
SAVED = 9  # numbers of a row's effect that later rows use
HUGE_ROWS = 2  # `extreme`: the rows themselves are huge or tiny


class NewtonState:
    """The state of the methods that process rows in blocks: RFD-SON, FD-SON, PFD-SON and FULL-ON."""

    def __init__(self, settings: Settings, d: int, m: int, rows: int, *, sparse: bool):
        self.settings, self.sizes, self.sparse = settings, (m, rows), sparse
        self.core = _core.Newton(settings.compiled(), d, m, rows, sparse, RUN_ROWS)

    @property
    def checks_rows(self) -> bool:
        """Whether `learn_few` may be used."""
        return not self.sparse and self.settings.domain != BALL

    @property
    def d(self) -> int:
        """Number of features for which memory is allocated."""
        return int(self.core.d)

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays of the learner, as views that are valid until it learns again."""
        arrays: dict[str, Any] = self.core.arrays()
        return arrays

    @property
    def alpha(self) -> float:
        """The multiple of the identity in H."""
        return float(self.core.state.alpha)

    # -- learning

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats | None) -> int:
        """Learn from rows and record their losses; return the number of rows before an overflow."""
        rows = (x.data, x.indices, x.indptr) if self.sparse else x
        if self.settings.domain == BALL:
            return self._learn_in_ball(rows, y, weight, margins, progress)
        return int(self.core.learn(rows, y, weight, margins, progress))

    def learn_few(self, x: Floats, y: Floats, margins: Floats, progress: Floats) -> bool:
        """Learn from a few dense rows; return False, without a change, if they need a closer look."""
        return bool(self.core.learn_few(x, y, margins, progress))

    def _learn_in_ball(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats | None) -> int:
        """Implement `learn` for the ball: one row at a time, with a projection after or before each step."""
        core, state = self.core, self.core.state
        project_next, shrink_first = self.settings.projection == NEXT, self.settings.shrink_first
        for i in range(len(y)):
            if project_next:
                ball.project(core, self.settings.bound)
            one = slice(i, i + 1)
            row = (x[0], x[1], x[2][i : i + 2]) if self.sparse else x[one]
            if not core.step(row, y[one], weight[one], margins[one], progress):
                return i
            full = core.is_full
            if not project_next and not (full and shrink_first):
                ball.project(core, self.settings.bound)
            if full:
                before = ball.gram_of(core)
                if not core.end_block():
                    return i
                self.arrays["overlaps"][:] = ball.products_after(before, *core.last_change())
                if not project_next and shrink_first:
                    ball.project(core, self.settings.bound)
            if not np.isfinite(state.factor):  # the projection overflowed
                return i
        return len(y)

    # -- all rows of a call, or none

    def begin(self) -> None:
        """Begin a call that `rollback` can revert."""
        self.core.begin()

    def commit(self) -> None:
        """End the call."""
        self.core.commit()

    def rollback(self) -> None:
        """Revert everything since `begin`."""
        self.core.rollback()

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
            arrays = self.pack()[1] | {"w": self.weights()}
        if not all(bool(np.isfinite(each).all()) for each in arrays.values()):
            return False
        return self.core.extreme != HUGE_ROWS or self._grew_little()

    def _grew_little(self) -> bool:
        """Return whether the Hessian and the weights are not huge, or have grown by a moderate factor."""
        after = self._sizes()
        if max(after) <= LARGEST_NUMBER:
            return True
        before = copy.deepcopy(self)
        before.rollback()
        # b is 0 before the first non-zero row, and then any growth is accepted.
        return all(
            a <= LARGEST_NUMBER or b == 0.0 or a <= GROWTH * b for a, b in zip(after, before._sizes(), strict=True)
        )

    def _sizes(self) -> tuple[float, float]:
        """Return the largest number in the Hessian (eigenvalues, rows, their contributions) and in the weights."""
        arrays = self.pack()[1]
        with np.errstate(over="ignore"):
            added = arrays["rows"][:, 0] * np.diagonal(arrays["gram"])
        hessian = max(float(np.abs(each).max(initial=0.0)) for each in (arrays["gram"], arrays["lam"], added))
        return hessian, float(np.abs(self.weights()).max(initial=0.0))

    def widen(self, d: int) -> None:
        """Allocate memory for d features; only for sparse rows."""
        if d > self.d:
            self.core.widen(max(d, 2 * self.d))

    def multiply_weights(self, factor: float) -> None:
        """Multiply w by a factor."""
        self.core.multiply_weights(factor)

    # -- merging

    def merged(self, other: "NewtonState", vote: Floats) -> "NewtonState":
        """Return the merged state of two states with the same settings; `vote` weights the mean of their w."""
        return newton_merging.merged(self, other, vote)

    def fraction(self, k: int, i: int) -> "NewtonState":
        """Return part i of k, with the same weights and a k-th of H."""
        return newton_merging.fraction(self, k, i)

    # -- reading

    def weights(self) -> Floats:
        """Return w."""
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks that w is finite
            return np.asarray(self.core.state.factor * self.core.combine(1.0, *self.core.steps()))

    def margins(self, x: Any) -> Floats:
        """Return w'x of dense or sparse rows."""
        if self.sparse and sp.issparse(x) and x.nnz < x.shape[1]:  # only the features that occur
            x = as_rows(x, sparse=True)
            features, place = np.unique(x.indices, return_inverse=True)
            of_b, of_x = self.core.steps()
            w = self.core.state.factor * self.core.combine(1.0, of_b, of_x, features)
            return np.asarray(sp.csr_array((x.data, place, x.indptr), shape=(x.shape[0], len(features))) @ w)
        return np.asarray(x @ self.weights())

    # -- copies and snapshots (docs/snapshot-format.md)

    def __deepcopy__(self, memo: Any) -> Self:
        new = type(self).__new__(type(self))
        vars(new).update(vars(self) | {"core": self.core.copy()})
        return new

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "core"} | {"d": self.d, "of": self.pack()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        numbers, arrays = state["of"]
        parts = Parts({name: numbers[name] for name in numbers if name != "sparse"}, dict(arrays), "")
        vars(self).update(
            vars(self.unpack(parts, state["settings"], state["d"], *state["sizes"], sparse=state["sparse"]))
        )

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        state, views = self.core.state, self.arrays
        n = state.filled
        if state.overflowed:
            raise OverflowError("The weights have overflowed, so the learner cannot be saved. Make a new learner.")
        arrays = {
            "products": views["products"][:n].copy(),
            "gram": np.tril(views["gram"][:n, :n]),
            "n": np.triu(views["n"][:n, :n]),
            "rows": views["rows"][:n, :SAVED].copy(),
            "lam": views["lam"].copy(),
            "scalars": np.array([state.alpha, state.delta_sum, state.delta]),
            "ball": np.concatenate([[state.factor], views["ball"], views["overlaps"]]),
        }
        if state.careful:
            arrays["k"] = np.triu(views["k"][:n, :n])
        numbers = {
            "sparse": bool(self.sparse),
            "seen": state.seen,
            "shrinks": state.shrinks,
            "careful": state.careful,
        }
        return numbers, arrays | (self._pack_run(views, n) if self.sparse else _pack_dense(views, n))

    def _pack_run(self, views: dict[str, Any], n: int) -> Tensors:
        """Return the basis of sparse rows and its run, whose last n rows belong to the current block."""
        run = self.core.run
        value, row, where = self.core.entries()
        return {
            "basis": views["basis"].copy(),
            "age": views["age"].copy(),
            "history": views["history"][: run.number].copy(),
            "run.coefficients": views["coefficients"][: len(views["lam"]) + run.rows - n].copy(),
            "run.feature": views["feature"].copy(),
            "run.gathered": views["gathered"].copy(),
            "run.where": where,
            "run.row": row,
            "run.value": value,
        }

    @classmethod
    def unpack(cls, parts: Parts, settings: Settings, d: int, m: int, rows: int, *, sparse: bool) -> "NewtonState":
        """Return the state in a snapshot of a learner with these settings and sizes."""
        if parts.shape("basis", 2) != (d, m):
            raise ValueError(f"the basis has shape {parts.shape('basis', 2)}, expected {(d, m)}")
        n, r, seen, shrinks = parts.shape("products", 2)[0], m - 1, parts.count("seen"), parts.count("shrinks")
        if (most := rows - (r if shrinks else 0)) <= n:
            raise ValueError(f"the block has {n} rows, expected fewer than {most}")
        self = cls(settings, d, m, rows, sparse=sparse)
        state, views = self.core.state, self.arrays
        state.seen, state.shrinks, state.filled = seen, shrinks, n
        views["products"][:n] = parts.array("products", n, m)
        views["gram"][:n, :n] = parts.array("gram", n, n)
        views["n"][:n, :n] = parts.array("n", n, n)
        views["rows"][:n, :SAVED] = effects = parts.array("rows", n, SAVED)
        views["lam"][:] = lam = parts.array("lam", r, least=0.0)
        state.alpha, state.delta_sum, state.delta = parts.array("scalars", 3, least=0.0)
        of_ball = parts.array("ball", 2 * m)
        state.factor, views["ball"][:], views["overlaps"][:] = of_ball[0], of_ball[1:m], of_ball[m:]
        if state.factor == 0.0:
            raise ValueError("the factor of the weights is zero")
        state.careful = parts.flag("careful")
        if state.careful:
            views["k"][:n, :n] = parts.array("k", n, n)
        elif state.alpha == 0.0 and (n or shrinks):
            raise ValueError("alpha is zero, but K is missing")
        added = np.count_nonzero((effects[:, 0] > 0) & (effects[:, 3] != 0))  # c^2 and along_n
        state.rank = int(np.count_nonzero(lam) + added)
        state.span = int(np.count_nonzero(lam > state.alpha) + added)
        if sparse:
            self._unpack_run(parts, views)
        else:
            views["basis"][:] = parts.array("basis", d, m).T
            views["buffer"][:n] = parts.array("buffer", n, d)
        parts.close()
        return self

    def _unpack_run(self, parts: Parts, views: dict[str, Any]) -> None:
        """Restore the basis of sparse rows and its run; the numbers of the block are already restored."""
        (d, m), n = views["basis"].shape, self.core.state.filled
        number, have = parts.shape("history", 3)[0], parts.shape("run.coefficients", 2)[0]
        features, entries = parts.shape("run.feature", 1)[0], parts.shape("run.value", 1)[0]
        rows, left = have - (m - 1) + n, self.sizes[1] - (m - 1 if self.core.state.shrinks else 0) - n
        if number >= RUNS or have < m - 1 or rows + left > self.core.run_left or features > min(entries, d):
            raise ValueError(f"run {number} of {rows} rows with {entries} entries of {features} features")
        views["basis"][:] = parts.array("basis", d, m)
        views["age"][:] = parts.array("age", d, dtype=np.uint8, most=number)
        views["history"][:number] = parts.array("history", number, m - 1, m)
        views["coefficients"][:have] = parts.array("run.coefficients", have, m)
        feature = parts.array("run.feature", features, dtype=np.int32, least=0, most=d - 1)
        where = parts.array("run.where", entries, dtype=np.int32, least=0, most=features - 1)
        row = parts.array("run.row", entries, dtype=np.int32, least=0, most=rows - 1)
        gathered, value = parts.array("run.gathered", features, m), parts.array("run.value", entries)
        self.core.restore_run(number, rows, feature, gathered, value, row, where)


def _pack_dense(views: dict[str, Any], n: int) -> Tensors:
    """Return the basis of dense rows and the rows of the block."""
    return {"basis": views["basis"].T.copy(), "buffer": views["buffer"][:n].copy()}

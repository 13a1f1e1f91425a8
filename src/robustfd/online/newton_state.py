"""The state of a sketched Newton learner: the current block of rows, and the basis that holds w and B."""

import copy
from typing import Any

import numpy as np

from robustfd._compile import entry
from robustfd._container import Document, Tensors
from robustfd.linalg.eigen import MIN_ROWS_TO_COMPILE, routines
from robustfd.online import ball, newton_merging
from robustfd.online import block as blocks
from robustfd.online.block import (
    EXTREME_ROWS,
    OVERFLOW,
    PLACE,
    SAFE,
    Block,
    counts_of,
    open_block,
    rows_in_block,
    state_of,
    step_rows,
)
from robustfd.online.dense_basis import DenseBasis
from robustfd.online.rows import GROWTH, LARGEST_NUMBER, Batch, Extent, Floats
from robustfd.online.settings import BALL, NEXT, Settings
from robustfd.online.shrink import end_block, open_change
from robustfd.online.snapshot import Parts
from robustfd.online.sparse_basis import SparseBasis

_step_rows, _end_block = entry(step_rows), entry(end_block)

# The fields of ROW that later rows use, in the order of snapshots. The other fields are scratch.
SAVED = ("c2", "step", "along_k", "along_n", "one_n", "kk", "kn", "nn", "extra")


class NewtonState:
    """The state of the methods that process rows in blocks: RFD-SON, FD-SON, PFD-SON and FULL-ON."""

    def __init__(self, settings: Settings, d: int, m: int, rows: int, *, sparse: bool):
        shrink_first = True if settings.shrink_first else None
        self.settings, self.long_stream = settings, False
        self.later = rows - (m - 1)  # rows of a block after the first
        self.memory = blocks.start(settings, d, m, rows, 0 if sparse else DenseBasis.size(d, m, rows))
        self.numbers = blocks.numbers(self.memory)
        self.basis: DenseBasis | SparseBasis = (
            SparseBasis(d, m, rows, shrink_first) if sparse else DenseBasis(d, shrink_first)
        )

    @property
    def sparse(self) -> bool:
        """Whether `learn` expects sparse rows instead of dense ones."""
        return self.basis.sparse

    @property
    def checks_rows(self) -> bool:
        """Whether `learn` itself checks that the rows of a small batch are finite."""
        return not self.basis.sparse and self.settings.domain != BALL

    @property
    def d(self) -> int:
        """Number of features for which memory is allocated."""
        return self.basis.d

    @property
    def block(self) -> Block:
        """The block as arrays."""
        return open_block.py_func(self.memory)

    @property
    def alpha(self) -> float:
        """The multiple of the identity in H."""
        return float(state_of(self.memory).alpha)

    # -- learning

    def expect(self, rows: int) -> None:
        """Prepare for this number of rows: with many rows, compiling the eigensolver pays off."""
        self.long_stream = self.long_stream or int(counts_of(self.memory)[PLACE["seen"]]) + rows > MIN_ROWS_TO_COMPILE

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats) -> int:
        """Learn from rows and record their losses; return the number of rows before an overflow.

        A negative result means that nothing has changed: -1 if a row is not finite, NEEDS_COPY if `keep` must be called
        first.
        """
        if not self.long_stream:
            self.expect(len(y))
        if self.settings.domain == BALL:
            return self._learn_in_ball(x, Batch(y, weight, margins), progress)
        return self.basis.learn(routines(self.long_stream), self.memory, x, y, weight, margins, progress)

    def _learn_in_ball(self, x: Any, batch: Batch, progress: Floats) -> int:
        """Implement `learn` for the ball: one row at a time, with a projection after or before each step."""
        block, address = self.block, routines(self.long_stream)
        project_next, shrink_first = self.settings.projection == NEXT, bool(self.settings.shrink_first)
        for i in range(len(batch.y)):
            if project_next:
                self._project(block)
            self.basis.add_row(address, block, x, i)
            if _step_rows(block, batch, progress, i, 1) == 0:
                return i
            full = block.state[0].filled == rows_in_block.py_func(block)
            if not project_next and not (full and shrink_first):
                self._project(block)
            if full:
                before, change = ball.gram_of(block), open_change.py_func(block)
                if not _end_block(address, block, change, self.basis.shrink_first):
                    return i
                block.overlaps[:] = ball.products_after(before, change)
                self.basis.change(address, block, change)
                if not project_next and shrink_first:
                    self._project(block)
            if not np.isfinite(block.state[0].factor):  # the projection overflowed
                return i
        return len(batch.y)

    def _project(self, block: Block) -> None:
        """Project w onto the ball, and multiply the stored weights by their factor if it has become small."""
        if ball.project(block):
            factor = block.state[0].factor
            self.basis.multiply_weights(block, factor)
            block.products[:, 0] *= factor
            block.overlaps[:] *= factor
            block.overlaps[0] *= factor
            block.state[0].factor = 1.0

    # -- all rows of a call, or none

    def keep(self, extent: Extent) -> Any:
        """Return the copies that `undo` needs to revert rows of this extent."""
        counts, in_ball = counts_of(self.memory), self.settings.domain == BALL
        rows = self.later if counts[PLACE["shrinks"]] > 0 else int(counts[PLACE["buffer"]])
        ends_block = bool(counts[PLACE["filled"]] + extent.rows >= rows)
        if in_ball:  # a projection changes all weights
            extent = extent._replace(features=None)
        # Rows that do not end the block are appended to it and otherwise change only these numbers.
        parts = (slice(None),) if ends_block or in_ball else self.numbers
        kept = (
            [(part, self.memory[part].copy()) for part in parts],
            self.basis.keep(extent, ends_block),
            self.long_stream,
        )
        counts[PLACE["kept"]] = 1
        return kept

    def is_sound(self, kept: Any) -> bool:
        """Return whether all numbers that changed since `keep` are finite, and leave space for ordinary rows.

        Ordinary rows are accepted whenever the numbers stay finite, however large they become. For example, a model
        that has only seen rows of size 1e-100 has huge weights, and must be able to learn from ordinary rows.
        """
        counts = counts_of(self.memory)
        if counts[PLACE["status"]] == OVERFLOW:
            return False
        if counts[PLACE["extreme"]] == SAFE:
            return True
        with np.errstate(all="ignore"):
            arrays = self.pack()[1] | {"w": self.weights()}
        if not all(bool(np.isfinite(each).all()) for each in arrays.values()):
            return False
        return counts[PLACE["extreme"]] != EXTREME_ROWS or self._grew_little(kept)

    def _grew_little(self, kept: Any) -> bool:
        """Return whether the Hessian and the weights are not huge, or have grown by a moderate factor."""
        after = self._sizes()
        if max(after) <= LARGEST_NUMBER:
            return True
        now = copy.deepcopy((self.memory, self.basis))
        self._restore(kept)
        before = self._sizes()
        self.memory[:], self.basis = now
        # b is 0 before the first non-zero row, and then any growth is accepted.
        return all(a <= LARGEST_NUMBER or b == 0.0 or a <= GROWTH * b for a, b in zip(after, before, strict=True))

    def _sizes(self) -> tuple[float, float]:
        """Return the largest number in the Hessian (eigenvalues, rows, their contributions) and in the weights."""
        arrays = self.pack()[1]
        with np.errstate(over="ignore"):
            added = arrays["rows"][:, SAVED.index("c2")] * np.diagonal(arrays["gram"])
        hessian = max(float(np.abs(each).max(initial=0.0)) for each in (arrays["gram"], arrays["lam"], added))
        return hessian, float(np.abs(self.weights()).max(initial=0.0))

    def release(self) -> None:
        """Mark the end of the rows for which `keep` was called."""
        counts = counts_of(self.memory)
        counts[PLACE["kept"]], counts[PLACE["extreme"]] = 0, SAFE

    def undo(self, kept: Any) -> None:
        """Restore the state from the result of `keep`."""
        self._restore(kept)
        self.long_stream = kept[2]

    def _restore(self, kept: Any) -> None:
        """Restore the memory and the basis from the result of `keep`."""
        parts, of_basis, _ = kept
        for part, numbers in parts:
            self.memory[part] = numbers
        self.basis.undo(of_basis)

    def widen(self, d: int) -> None:
        """Allocate memory for d features; only for sparse rows."""
        if d > self.d:
            assert isinstance(self.basis, SparseBasis)
            self.basis.widen(max(d, 2 * self.d))
            state_of(self.memory).features = self.d

    def multiply_weights(self, factor: float) -> None:
        """Multiply w by a factor."""
        ball.multiply_weights(self.block, factor)

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
        block = self.block
        return self.basis.weights(routines(self.long_stream), block, ball.steps_of(block))

    def margins(self, x: Any) -> Floats:
        """Return w'x of dense or sparse rows."""
        block = self.block
        return self.basis.margins(routines(self.long_stream), block, ball.steps_of(block), x)

    # -- snapshots (docs/snapshot-format.md)

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        block = self.block
        state = block.state[0]
        n, careful = int(state.filled), bool(state.careful)
        if state.status == OVERFLOW:
            raise OverflowError("The weights have overflowed, so the learner cannot be saved. Make a new learner.")
        arrays = {
            "products": block.products[:n],
            "gram": np.tril(block.gram[:n, :n]),
            "n": np.triu(block.n[:n, :n]),
            "rows": np.column_stack([block.rows[name][:n] for name in SAVED]),
            "lam": block.lam,
            "scalars": np.array([state.alpha, state.delta_sum, state.delta]),
            "ball": np.concatenate([[state.factor], block.ball, block.overlaps]),
        }
        if careful:
            arrays["k"] = np.triu(block.k[:n, :n])
        numbers = {
            "sparse": bool(self.sparse),
            "seen": int(state.seen),
            "shrinks": int(state.shrinks),
            "careful": careful,
        }
        return numbers, arrays | self.basis.pack(block)

    @classmethod
    def unpack(cls, parts: Parts, settings: Settings, d: int, m: int, rows: int, *, sparse: bool) -> "NewtonState":
        """Return the state in a snapshot of a learner with these settings and sizes."""
        if parts.shape("basis", 2) != (d, m):
            raise ValueError(f"the basis has shape {parts.shape('basis', 2)}, expected {(d, m)}")
        self = cls(settings, d, m, rows, sparse=sparse)
        block, n, r = self.block, parts.shape("products", 2)[0], m - 1
        state = block.state[0]
        state.seen, state.shrinks = parts.count("seen"), parts.count("shrinks")
        if (most := rows - (r if state.shrinks else 0)) <= n:
            raise ValueError(f"the block has {n} rows, expected fewer than {most}")
        state.filled = n
        block.products[:n] = parts.array("products", n, m)
        block.gram[:n, :n] = parts.array("gram", n, n)
        block.n[:n, :n] = parts.array("n", n, n)
        for name, column in zip(SAVED, parts.array("rows", n, len(SAVED)).T, strict=True):
            block.rows[name][:n] = column
        block.lam[:] = parts.array("lam", r, least=0.0)
        state.alpha, state.delta_sum, state.delta = parts.array("scalars", 3, least=0.0)
        of_ball = parts.array("ball", 2 * m)
        state.factor, block.ball[:], block.overlaps[:] = of_ball[0], of_ball[1:m], of_ball[m:]
        if state.factor == 0.0:
            raise ValueError("the factor of the weights is zero")
        state.careful = parts.flag("careful")
        if state.careful:
            block.k[:n, :n] = parts.array("k", n, n)
        elif state.alpha == 0.0 and (n or state.shrinks):
            raise ValueError("alpha is zero, but K is missing")
        added = np.count_nonzero((block.rows["c2"][:n] > 0) & (block.rows["along_n"][:n] != 0))
        state.rank = np.count_nonzero(block.lam) + added
        state.span = np.count_nonzero(block.lam > state.alpha) + added
        self.basis.unpack(block, parts)
        parts.close()
        return self

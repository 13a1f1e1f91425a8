"""RP-SON: Newton steps with a Hessian from a random projection (Luo et al. 2016)."""

import copy
import json
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

import robustfd._core as _core
from robustfd._container import Document, Tensors
from robustfd.learners.rows import Floats
from robustfd.learners.settings import Settings
from robustfd.learners.single_row import RowState
from robustfd.learners.snapshot import Parts


class ProjectionState(RowState):
    """The state of RP-SON, with the generator of its random numbers. The weights are w = v + B'c."""

    shapes = {"v": "d", "bt": "dm", "c": "m", "gram": "mm"}

    def __init__(self, settings: Settings, d: int, m: int, generator: np.random.Generator, *, sparse: bool):
        super().__init__(settings, self._new_core(settings, d, m), sparse=sparse)
        self.generator = generator
        self.before: Any = None  # the state of the generator at the beginning of a call

    @classmethod
    def _new_core(cls, settings: Settings, d: int, m: int) -> Any:
        return _core.RandomProjection(settings.compiled(), d, m)

    def _normal(self, rows: int) -> Floats:
        return self.generator.standard_normal((rows, self.core.m))

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats | None) -> int:
        """Learn from rows and record their losses; return the number of rows before an overflow."""
        rows = (x.data, x.indices, x.indptr) if sp.issparse(x) else x
        return int(self.core.learn(rows, y, weight, margins, progress, self._normal(len(y))))

    def learn_few(self, x: Floats, y: Floats, margins: Floats, progress: Floats) -> bool:
        """Learn from a few dense rows; return False, without a change, if they need a closer look."""
        before = self.generator.bit_generator.state
        if self.core.learn_few(x, y, margins, progress, self._normal(len(y))):
            return True
        self.generator.bit_generator.state = before
        return False

    def begin(self) -> None:
        """Begin a call that `rollback` can revert."""
        super().begin()
        self.before = self.generator.bit_generator.state

    def commit(self) -> None:
        """End the call."""
        super().commit()
        self.before = None

    def rollback(self) -> None:
        """Revert everything since `begin`."""
        super().rollback()
        if self.before is not None:
            self.generator.bit_generator.state = self.before
            self.before = None

    def weights(self) -> Floats:
        """Return w."""
        arrays = self.arrays
        return np.asarray(arrays["v"] + arrays["bt"] @ arrays["c"])

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        bt = self.arrays["bt"] + other["bt"]  # the projection of all rows, since each row has its own random numbers
        return {"v": w, "bt": bt, "c": np.zeros(bt.shape[1]), "gram": bt.T @ bt}

    def fraction(self, k: int, i: int) -> Self:
        """Return part i of k, with the same weights and an independent random sequence."""
        part = super().fraction(k, i)
        if i > 0:  # jump far ahead in the sequence, so that the parts do not overlap
            bits: Any = part.generator.bit_generator
            part.generator = np.random.Generator(bits.jumped(i))
        return part

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        arrays = self.arrays
        return {"bt": arrays["bt"] / k, "c": arrays["c"] * k, "gram": arrays["gram"] / k**2}

    def __deepcopy__(self, memo: Any) -> Self:
        new = super().__deepcopy__(memo)
        new.generator = copy.deepcopy(self.generator)
        return new

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        numbers, arrays = super().pack()
        return numbers | {"generator": json.dumps(self.generator.bit_generator.state)}, arrays

    def _unpack_more(self, parts: Parts, *more: Any) -> None:
        self.generator = more[0]
        self.before = None
        self.generator.bit_generator.state = json.loads(parts.text("generator"))

"""Oja-SON: Newton steps with a Hessian from Oja's algorithm (Luo et al. 2016)."""

from typing import Any

import numpy as np

import robustfd._core as _core
from robustfd.learners.rows import Floats
from robustfd.learners.settings import Settings
from robustfd.learners.single_row import RowState


class OjaState(RowState):
    """The state of Oja-SON. The weights are w = v + Y'c, and V = F Y is orthonormal."""

    shapes = {"v": "d", "yt": "dk", "c": "k", "energy": "k", "f": "kk"}

    def __init__(self, settings: Settings, d: int, m: int, generator: np.random.Generator, *, sparse: bool):
        m = min(m, d)
        super().__init__(settings, self._new_core(settings, d, m), sparse=sparse)
        self.arrays["yt"][:] = np.linalg.qr(generator.standard_normal((d, m)))[0]

    @classmethod
    def _new_core(cls, settings: Settings, d: int, m: int) -> Any:
        return _core.Oja(settings.compiled(), d, m)

    def weights(self) -> Floats:
        """Return w."""
        arrays = self.arrays
        return np.asarray(arrays["v"] + arrays["yt"] @ arrays["c"])

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        models = (self.arrays, other)
        directions = [each["f"] @ each["yt"].T for each in models]
        rows = np.vstack([np.sqrt(each["energy"])[:, None] * v for each, v in zip(models, directions, strict=True)])
        # The iteration needs m directions, even those without energy.
        little = 1e-12 * max(float(np.abs(rows).max()), 1e-150) * directions[0]
        _, s, v = np.linalg.svd(np.vstack([rows, little]), full_matrices=False)
        m = len(directions[0])
        energy = np.where(s[:m] > 1e-9 * s[0], np.square(s[:m]), 0.0)
        return {"v": w, "yt": v[:m].T, "c": np.zeros(m), "energy": energy, "f": np.eye(m)}

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        return {"energy": self.arrays["energy"] / k}

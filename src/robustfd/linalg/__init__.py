"""Dense and sparse linear algebra on plain arrays: shrink rules, eigensolvers, linear operators, batch optima."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd.linalg.diagonal import LowRankPlusDiagonal
    from robustfd.linalg.operator import LowRankPlusIdentity
    from robustfd.linalg.optimum import frobenius_optimum, spectral_optimum

_HOMES = {
    "diagonal": ("LowRankPlusDiagonal",),
    "operator": ("LowRankPlusIdentity",),
    "optimum": ("frobenius_optimum", "spectral_optimum"),
}

__all__ = ["LowRankPlusDiagonal", "LowRankPlusIdentity", "frobenius_optimum", "spectral_optimum"]

__getattr__, __dir__ = lazily(__name__, _HOMES)

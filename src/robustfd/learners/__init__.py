"""Online learners that see each row once: sketched Newton methods, first-order baselines and their losses."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd.learners.losses import LOSSES, Loss
    from robustfd.learners.newton import AdaGrad, OnlineGradientDescent, OnlineNewton

_HOMES = {
    "losses": ("LOSSES", "Loss"),
    "newton": ("AdaGrad", "OnlineGradientDescent", "OnlineNewton"),
}

__all__ = ["AdaGrad", "LOSSES", "Loss", "OnlineGradientDescent", "OnlineNewton"]

__getattr__, __dir__ = lazily(__name__, _HOMES)

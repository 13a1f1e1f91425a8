"""Invalid rows.

The promise: a model rejects rows that it cannot learn, such as absurd numbers and wrong shapes, with ValueError,
TypeError or OverflowError. It then stays unchanged, byte for byte, and can continue learning.
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

import robustfd

SECONDS = 60.0
MODELS = (
    robustfd.SketchedNewtonClassifier(), robustfd.SketchedNewtonClassifier(3), robustfd.SketchedNewtonRegressor(),
    robustfd.RFDSONClassifier(3, alpha0=0.0, normalize_rows=False, fit_intercept=False), robustfd.RFDSONRegressor(3),
    robustfd.OnlineNewton("rfd", 3, alpha0=1.0), robustfd.OnlineNewton("oja", 3, alpha0=1.0, random_state=0),
    robustfd.OnlineNewton("rp", 3, alpha0=1.0, random_state=0), robustfd.OnlineNewton("full", alpha0=1.0),
    robustfd.AdaGrad(), robustfd.OnlineGradientDescent(), robustfd.RobustFrequentDirections(3),
    robustfd.DiagonalFrequentDirections(3), robustfd.RobustFrequentDirections(3, center=True),
    robustfd.OjaSketch(3, random_state=0), robustfd.ExactSecondMoment(),
)  # fmt: skip


def case(rng: np.random.Generator, folder: Path) -> str:
    """Train a model on good rows, then on bad rows, then on good rows."""
    model = clone(MODELS[int(rng.integers(len(MODELS)))])
    n, d = int(rng.choice([3, 20, 70])), int(rng.choice([3, 8]))
    x = rng.standard_normal((n, d))
    if not learns(model, x):
        return f"{type(model).__name__} cannot learn good rows"
    before, bad = model.to_bytes(), rng.standard_normal((int(rng.integers(1, 6)), d))
    kind = str(rng.choice(["nan", "infinity", "narrow", "wide", "text", "weight", "empty row", "deep", "labels"]))
    given: Any = bad
    weight: Any = None
    labels: Any = None
    if kind in ("nan", "infinity"):
        bad[int(rng.integers(len(bad))), int(rng.integers(d))] = np.nan if kind == "nan" else np.inf
    elif kind in ("narrow", "wide"):
        given = rng.standard_normal((3, d + (1 if kind == "wide" else -1)))
    elif kind == "text":
        given = [["a"] * d]
    elif kind == "weight":
        weight = np.full(len(bad), rng.choice([-1.0, np.nan, np.inf]))
    elif kind == "empty row":
        given = bad[:, :0]
    elif kind == "deep":
        given = bad[None]
    else:
        labels = np.full(len(bad), np.nan)
    if isinstance(given, np.ndarray) and given.ndim == 2 and rng.random() < 0.3:
        given = sp.csr_array(given)
    return f"{type(model).__name__} {try_rows(model, given, weight, before, x, kind, labels)}"


def try_rows(model: Any, given: Any, weight: Any, before: bytes, good: Any, kind: str, labels: Any = None) -> str:
    """Return whether rows were accepted or refused. The model must stay unchanged, or be able to continue.

    RP-SON and Oja-SON diverge on some ordinary rows. For RP-SON this depends on its random numbers, which change when
    rows are accepted. They may therefore refuse the good rows, but must then stay unchanged.
    """
    about = f"{model}: {kind}"
    try:
        _learn(model, given, weight, labels)
        outcome = "accepted"
    except (ValueError, TypeError, OverflowError) as error:
        outcome = "refused"
        assert model.to_bytes() == before, f"{about}: refused with {error}, and the model has changed"
    try:
        type(model).from_bytes(model.to_bytes())
        if getattr(model, "sketch", "") in ("rp", "oja"):
            after = model.to_bytes()
            assert learns(model, good) or model.to_bytes() == after, "it has changed"
        elif learns(type(model).from_bytes(before), good):  # some learners diverge on good rows
            _learn(model, good, None)
        model.to_bytes()
    except Exception as error:
        raise AssertionError(f"{about}: {outcome}, and then the model is unusable: {error!r}") from error
    return outcome


def learns(model: Any, x: Any) -> bool:
    """Return whether a model learns good rows without diverging."""
    try:
        _learn(model, x, None)
    except OverflowError:
        return False
    return True


def _learn(model: Any, x: Any, weight: Any, labels: Any = None) -> None:
    n = x.shape[0] if hasattr(x, "shape") else len(x)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) if labels is None else labels
    if hasattr(model, "learn"):
        model.learn(x, y, weight)
    elif hasattr(model, "learn_one") and hasattr(model, "predict_proba"):
        model.partial_fit(x, y, classes=[-1.0, 1.0], sample_weight=weight)
    else:
        model.partial_fit(x, y, sample_weight=weight)

"""A stream whose weights all change after 12,000 rows: progressive error, and the share of the models that forget.

`python examples/drift.py [picture.png]` draws docs/drift.png.
"""

import sys

import numpy as np

from robustfd import SketchedNewtonClassifier

rng = np.random.default_rng(0)
X, w = rng.standard_normal((20_000, 10)), rng.standard_normal((2, 10))
y = np.where(np.arange(20_000) < 12_000, X @ w[0], X @ w[1]) + 0.3 * rng.standard_normal(20_000) > 0

model = SketchedNewtonClassifier(shuffle=False).fit(X, y)
print(f"progressive error {model.progressive_error_:.3f}")
rows, share = model.drift_["rows"], model.drift_["share"]
print(f"the models that forget have most of the shares from row {rows[share > 0.5][0]:,} on")
model.plot_progress().figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "docs/drift.png", dpi=120)

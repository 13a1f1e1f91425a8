"""
Ridge regression in one pass
============================

`SketchedRidge` reads rows once and keeps a matrix of a fixed size. For a moderate number of features the solution is
that of scikit-learn's `Ridge`. For more it keeps a sketch, and warns if that is too small.
"""

# %%
# 3,000 features are too many for the exact matrix. A few directions have most of the variance.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from robustfd import SketchedRidge

rng = np.random.default_rng(0)
n, d = 4000, 3000
X = rng.standard_normal((n, 60)) / np.sqrt(np.arange(1, 61)) @ rng.standard_normal((60, d)) / 8
X += 0.02 * rng.standard_normal((n, d))
y = X @ rng.standard_normal(d) / 10 + 0.3 * rng.standard_normal(n)
train, test = slice(0, 3000), slice(3000, n)
exact = Ridge(alpha=100.0).fit(X[train], y[train]).score(X[test], y[test])

# %%
# Fit sketches of several sizes in batches. A sufficient size gives no warning.
sizes, scores, warned = [20, 40, 60, 80, 120, 160], [], []
for m in sizes:
    ridge = SketchedRidge(regularization=100.0, sketch_size=m)
    for start in range(0, 3000, 250):
        ridge.partial_fit(X[start : start + 250], y[start : start + 250])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores.append(ridge.score(X[test], y[test]))
    warned.append(bool(caught))

# %%
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.axhline(exact, color="black", lw=1, label="Ridge, all rows in memory")
ax.plot(sizes, scores, color="tab:blue")
for size, score, small in zip(sizes, scores, warned):
    ax.plot(size, score, "o", mfc="white" if small else "tab:blue", color="tab:blue")
ax.plot([], [], "o", color="tab:blue", label="SketchedRidge")
ax.plot([], [], "o", mfc="white", color="tab:blue", label="SketchedRidge, which warned")
ax.set(xlabel="rows of the sketch", ylabel="R² on new rows")
ax.grid(alpha=0.3)
ax.legend()

"""
Intervals over a stream whose noise jumps
=========================================

`SketchedNewtonRegressor(intervals=True)` predicts intervals that cover a given share of the targets. When the noise of
the stream jumps, the intervals follow within a few dozen rows.
"""

# %%
# The targets are linear in the features. The noise is five times as large in the second quarter, then small.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import SketchedNewtonRegressor

rng = np.random.default_rng(0)
n = 4000
X = rng.standard_normal((n, 4))
noise = np.repeat([1.0, 5.0, 0.5, 2.0], n // 4)
y = X @ [1.0, -2.0, 0.5, 1.5] + noise * rng.standard_normal(n)

# %%
# Each row is predicted before it is learned.
model = SketchedNewtonRegressor(intervals=True)
predicted, ends = np.full(n, np.nan), np.full((n, 2, 2), np.nan)
for i in range(n):
    if i > 1:
        predicted[i] = model.predict(X[i : i + 1])[0]
        ends[i] = model.predict_interval(X[i : i + 1], [0.5, 0.9])[0]
    model.partial_fit(X[i : i + 1], y[i : i + 1])

# %%
# Residuals, with the intervals of 50 and 90 % around them, and the coverage of windows of rows.
figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 6.5), layout="constrained", height_ratios=[3, 2])
rows = np.arange(n)
for k, (level, colour) in enumerate(((50, 0.45), (90, 0.2))):
    low, high = ends[:, :, k].T - predicted
    upper.fill_between(rows, low, high, color="tab:blue", alpha=colour, lw=0, label=f"{level} %")
upper.plot(rows, y - predicted, ".", color="black", markersize=1.5)
upper.set(xlabel="rows seen", ylabel="target minus prediction", xlim=(0, n), ylim=(-18, 18))
upper.legend(loc="upper right", ncols=2)
model.plot_coverage(lower)
for label, share in model.progressive_coverage_.items():
    print(f"{label:.0%} intervals covered {share:.1%} of all rows")

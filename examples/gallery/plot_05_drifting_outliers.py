"""
Outliers of a stream that drifts
================================

A value that is unusual today can be normal tomorrow. A detector with a window compares each row with recent rows only.
"""

# %%
# The levels of ten sensors drift slowly and independently, and 1 % of the rows are faulty.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import MahalanobisDetector

rng = np.random.default_rng(0)
n, d = 8000, 10
level = 6 * np.sin(np.linspace(0, 3 * np.pi, n)[:, None] * np.linspace(0.5, 1.5, d))
X = level + rng.standard_normal((n, d)) @ np.triu(rng.standard_normal((d, d))) * 0.4
faulty = rng.random(n) < 0.01
X[faulty] += rng.standard_normal((faulty.sum(), d)) * 1.5

# %%
# Score every row before it is learned, by all rows so far and by the last 500.
scores = {}
for name, detector in {"all rows": MahalanobisDetector(), "last 500 rows": MahalanobisDetector(window=500)}.items():
    detector.partial_fit(X[:200])
    scores[name] = np.zeros(n)
    for start in range(200, n, 50):
        scores[name][start : start + 50] = -detector.score_samples(X[start : start + 50])
        detector.partial_fit(X[start : start + 50])

# %%
# How many of the faults are among the 1 % of rows with the largest scores?
figure, axes = plt.subplots(2, 1, figsize=(7, 5), layout="constrained", sharex=True)
for ax, (name, score) in zip(axes, scores.items()):
    top = np.argsort(-score)[: faulty.sum()]
    ax.plot(score, ".", ms=2, color="tab:grey")
    ax.plot(np.flatnonzero(faulty), score[faulty], "o", ms=4, mfc="none", color="tab:red")
    ax.set(title=f"{name}: {faulty[top].mean():.0%} of the faults have the largest scores", ylabel="score")
    ax.set_yscale("symlog")
axes[1].set_xlabel("rows (red: faults)")

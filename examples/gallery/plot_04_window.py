"""
A window over a stream whose subspace turns
===========================================

`SlidingFrequentDirections` sketches the newest rows only. When the stream changes, the old rows drop out. The
certificate bounds the error of the window at any time.
"""

# %%
# The rows are close to a plane that turns slowly and jumps once.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import RobustFrequentDirections, SlidingFrequentDirections

rng = np.random.default_rng(0)
n, d, window = 6000, 60, 1000
angle = np.linspace(0, np.pi / 2, n) + (np.arange(n) > n // 2) * 1.0
X = 0.3 * rng.standard_normal((n, d))
X[:, 0] += 3 * np.cos(angle) * rng.standard_normal(n)
X[:, 1] += 3 * np.sin(angle) * rng.standard_normal(n)

# %%
# Compare three sketches with the exact matrix of the last 1000 rows: a window, all rows, and all rows with decay.
sketches = {
    "window": SlidingFrequentDirections(window, 30),
    "all rows": RobustFrequentDirections(30),
    "decay": RobustFrequentDirections(30, decay=1 - 2 / window),
}
rows, errors, certified = [], {name: [] for name in sketches}, []
for start in range(0, n, 200):
    for sketch in sketches.values():
        sketch.partial_fit(X[start : start + 200])
    rows.append(start + 200)
    newest = X[max(0, rows[-1] - window) : rows[-1]]
    exact = newest.T @ newest
    for name, sketch in sketches.items():
        scale = min(rows[-1], window) / sketch.weight_sum_  # as if each had as many rows
        errors[name].append(
            np.linalg.norm(exact - scale * sketch.second_moment().to_dense(), 2) / np.linalg.norm(exact, 2)
        )
    certified.append(sketches["window"].error_bound_ / np.linalg.norm(exact, 2))

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, values), colour in zip(errors.items(), ("tab:blue", "tab:grey", "tab:orange")):
    ax.plot(rows, values, color=colour, label=name)
ax.plot(rows, certified, "--", color="tab:blue", label="window, certified")
ax.axvline(n // 2, color="black", lw=0.5)
ax.annotate("the plane jumps", (n // 2, 0.9), xytext=(5, 0), textcoords="offset points")
ax.set(xlabel="rows", ylabel="error of the last 1000 rows' A'A", ylim=(0, 1))
ax.grid(alpha=0.3)
ax.legend()

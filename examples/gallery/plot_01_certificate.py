"""
Error against sketch size
=========================

A sketch reports a bound on its own error. This example compares the bound with the true error for several sketch sizes.
"""

# %%
# The rows have 300 columns, and the singular values of A fall like 1 / i.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import FrequentDirections, RobustFrequentDirections

rng = np.random.default_rng(0)
A = rng.standard_normal((5000, 300)) / np.arange(1, 301)
exact = A.T @ A
largest = np.linalg.eigvalsh(exact)[-1]

# %%
# For each size, sketch the rows and compute the true error. This needs the exact d x d matrix, which is too large for
# most real streams.
sizes = np.array([5, 10, 20, 40, 80])
errors, bounds = {}, {}
for kind in (FrequentDirections, RobustFrequentDirections):
    sketches = [kind(m).fit(A) for m in sizes]
    gaps = [np.linalg.norm(exact - s.second_moment().to_dense(), 2) for s in sketches]
    errors[kind.__name__] = np.array(gaps) / largest
    bounds[kind.__name__] = np.array([s.error_bound_ for s in sketches]) / largest

# %%
# The certified bound holds for every size. The robust sketch has half the error of the plain one.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, colour in zip(errors, ("tab:grey", "tab:blue")):
    ax.loglog(sizes, bounds[name], "--", color=colour, label=f"{name}, certified")
    ax.loglog(sizes, errors[name], "o-", color=colour, label=f"{name}, true error")
ax.set(xlabel="rows of the sketch", ylabel="spectral error / largest eigenvalue", xticks=sizes, xticklabels=sizes)
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.legend()

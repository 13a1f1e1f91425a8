"""
Curves and interactions
=======================

A linear learner cannot follow a wave, or two columns that act together. With `expand="trees"` it can, in the same
single pass.
"""

# %%
# The target is a wave of the first column, plus the product of the next two.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import SketchedNewtonRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (6000, 5))
y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(6000)
linear = SketchedNewtonRegressor(random_state=0).fit(X[:5000], y[:5000])
trees = SketchedNewtonRegressor(expand="trees", random_state=0).fit(X[:5000], y[:5000])
for name, model in (("linear", linear), ("trees", trees)):
    print(f"{name}: R2 {model.score(X[5000:], y[5000:]):.2f}")

# %%
# The shares of columns, and of pairs of columns, in the gains of all splits: columns 1 and 2 act together.
gains = trees.interactions_
print("columns:", {name: round(gain, 2) for name, gain in gains.items() if isinstance(name, int)})
print("pairs:", {name: round(gain, 2) for name, gain in gains.items() if isinstance(name, tuple) and gain > 0.05})

# %%
# What the first two columns add to the predictions of new rows. The effect of the second one depends on the third.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
trees.plot_effect(X[5000:], 0, ax=axes[0])
trees.plot_effect(X[5000:], 1, ax=axes[1])
axes[1].set_ylabel("")
plt.show()

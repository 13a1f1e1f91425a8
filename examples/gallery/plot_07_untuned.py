"""
A learner with nothing to tune, against a sweep
===============================================

`SGDClassifier` needs a good learning rate. `SketchedNewtonClassifier` has no learning rate.
"""

# %%
# One pass over the digits. Each row is predicted before it is learned.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from robustfd import SketchedNewtonClassifier

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order], y[order]


def errors(model):
    """Return the share of errors so far, each row predicted before it is learned."""
    wrong = []
    for start in range(0, len(y), 20):
        rows, labels = X[start : start + 20], y[start : start + 20]
        wrong.extend(model.predict(rows) != labels if start else np.ones(len(labels), bool))
        model.partial_fit(rows, labels, classes=np.arange(10))
    return np.cumsum(wrong) / np.arange(1, len(wrong) + 1)


# %%
# Eight learning rates, on scaled pixels, and one learner without any.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
X_raw, X = X, X / 16.0
for rate in np.logspace(-4, 1, 8):
    curve = errors(SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=0))
    ax.plot(curve, color="tab:grey", alpha=0.6, lw=1)
    ax.annotate(f"{rate:.2g}", (len(curve), curve[-1]), fontsize=7, va="center", color="grey")
X = X_raw
curve = errors(SketchedNewtonClassifier())
ax.plot(curve, color="tab:blue", lw=2.5)
ax.annotate(
    f"untuned, {curve[-1]:.1%}", (len(curve), curve[-1]), xytext=(22, -3), textcoords="offset points", color="tab:blue"
)
ax.set(xlabel="rows", ylabel="errors so far", ylim=(0, 0.4), xlim=(0, 2300), title="grey: SGD with its learning rate")
ax.grid(alpha=0.3)

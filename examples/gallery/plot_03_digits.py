"""
Principal components of digits, from a stream
=============================================

`SketchedPCA` accepts rows in batches of any size. Its variances come with certified intervals, and its memory does not
grow with the number of rows.
"""

# %%
# Images of digits, a hundred at a time.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from robustfd import SketchedPCA

X, y = load_digits(return_X_y=True)
pca = SketchedPCA(n_components=20, sketch_size=24)
for start in range(0, len(X), 100):
    pca.partial_fit(X[start : start + 100])
print(f"20 of 64 components explain {pca.explained_variance_ratio_.sum():.1%} of the variance")

# %%
# The components as images, and digits before and after they were reduced to 20 numbers.
again = pca.inverse_transform(pca.transform(X[:10]))
figure, axes = plt.subplots(3, 10, figsize=(9, 3), layout="constrained")
for row, (images, name) in zip(axes, [(pca.components_, "component"), (X, "digit"), (again, "from 20")]):
    for ax, image in zip(row, images):
        ax.imshow(image.reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)

# %%
# Each variance of the exact covariance is certainly within its interval.
exact = np.linalg.eigvalsh(np.cov(X.T))[::-1][:20]
low, high = pca.explained_variance_interval_.T
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.vlines(np.arange(1, 21), low, high, lw=6, alpha=0.4, label="certified interval")
ax.plot(np.arange(1, 21), exact, "k.", label="exact")
ax.set(xlabel="component", ylabel="variance", yscale="log", xticks=[1, 5, 10, 15, 20])
ax.legend()

"""
The stream that defeats the greedy sketch
=========================================

A greedy sketch keeps the largest directions and discards the rest. Frequent Directions also reduces the directions that
it keeps. This stream shows the difference: the most important direction arrives in small pieces, and the greedy sketch
discards each piece (Luo et al. 2019, Appendix F).
"""

# %%
# Four large rows come first. Then many rows in a new direction follow, each slightly shorter than the stored rows.
# Together they are by far the largest direction.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import GreedySketch, RobustFrequentDirections

m, late = 5, 600
large = 10.0 * np.eye(4, 20)
small = np.zeros((late, 20))
small[:, 10] = 9.9
stream = np.vstack([large, small])

# %%
# Feed both sketches row by row, and measure how much of the new direction they contain.
greedy, robust = GreedySketch(m, buffer_size=m), RobustFrequentDirections(m, buffer_size=m)
direction = np.eye(20)[10]
rows, truth, found = [], [], {"GreedySketch": [], "RobustFrequentDirections": []}
for start in range(0, len(stream), 20):
    batch = stream[start : start + 20]
    for sketch in (greedy, robust):
        sketch.partial_fit(batch)
        found[type(sketch).__name__].append(direction @ (sketch.second_moment() @ direction))
    rows.append(start + len(batch))
    truth.append(np.square(stream[: rows[-1], 10]).sum())

# %%
# The robust sketch follows the truth within its certificate.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(rows, truth, color="black", lw=4, alpha=0.25, label="truth")
ax.plot(rows, found["RobustFrequentDirections"], color="tab:blue", label="RobustFrequentDirections")
ax.plot(rows, found["GreedySketch"], color="tab:red", label="GreedySketch")
ax.set(xlabel="rows", ylabel="squared length along the new direction")
ax.grid(alpha=0.3)
ax.legend()
print(
    f"error of the robust sketch: {truth[-1] - found['RobustFrequentDirections'][-1]:.0f}, "
    f"certified: {robust.error_bound_:.0f}; error of the greedy one: {truth[-1] - found['GreedySketch'][-1]:.0f}"
)

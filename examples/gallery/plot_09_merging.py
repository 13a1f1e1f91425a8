"""
Sketches of many shards, merged
===============================

Sketch each shard where it is stored, and merge the sketches. The certificate of the merged sketch holds for all rows.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from robustfd import RobustFrequentDirections, merge

rng = np.random.default_rng(0)
A = rng.standard_normal((20_000, 200)) / np.sqrt(np.arange(1, 201))
exact = A.T @ A
largest = np.linalg.norm(exact, 2)

# %%
# The same rows in 1 to 256 shards.
shards = 2 ** np.arange(0, 9)
errors, bounds = [], []
for k in shards:
    parts = [RobustFrequentDirections(40).fit(rows) for rows in np.array_split(A, k)]
    whole = merge(parts)
    errors.append(np.linalg.norm(exact - whole.second_moment().to_dense(), 2) / largest)
    bounds.append(whole.error_bound_ / largest)

# %%
# More shards cost hardly any accuracy. Each shard sends 40 rows instead of thousands.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(shards, bounds, "--", color="tab:blue", label="certified")
ax.plot(shards, errors, "o-", color="tab:blue", label="true error")
ax.set_xscale("log", base=2)
ax.set(xlabel="shards", ylabel="error / largest eigenvalue", ylim=(0, None), xticks=shards, xticklabels=shards)
ax.grid(alpha=0.3)
ax.legend()

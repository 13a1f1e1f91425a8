"""Shared code of the Dask and Spark tests: rows in partitions of all sizes, true errors, the version of Java."""

import os
import re
import shutil
import subprocess
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

import robustfd


def java_version():
    """Return the major version of Java, or 0 without Java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        return 0
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', text)
    return int(found.group(1)) if found else 0


def sizes(n, k):
    """Return the sizes of k partitions of n rows. If k > 2, the second is empty and the last has one row."""
    if k <= 2:
        return np.diff(np.linspace(0, n, k + 1).astype(int)).tolist()
    first, *others = np.diff(np.linspace(0, n - 1, k - 1).astype(int)).tolist()
    return [first, 0, *others, 1]


def cut(x, k):
    """Return x in k partitions."""
    return [x[a:b] for a, b in pairwise(np.cumsum([0, *sizes(x.shape[0], k)]))]


def merged_here(estimator, blocks, targets=None, classes=None):
    """Learn and merge partitions one at a time with the public API, and return the model."""
    k = len(blocks)
    parts = estimator.split(k) if hasattr(estimator, "split") else [robustfd_copy(estimator) for _ in range(k)]
    for i, part in enumerate(parts):
        if blocks[i].shape[0] and targets is None:
            part.partial_fit(blocks[i])
        elif blocks[i].shape[0]:
            part.partial_fit(blocks[i], targets[i], **({} if classes is None else {"classes": classes}))
    return robustfd.merge(parts)


def log_of_a_bandit():
    """Return contexts, chosen arms, rewards and probabilities."""
    rng = np.random.default_rng(0)
    x, arm = rng.standard_normal((1200, 4)), rng.choice(["a", "b", "c"], 1200)
    return x, arm, ((x[:, 0] > 0) == (arm == "b")) * 1.0, np.full(1200, 1 / 3)


def bandit_here(blocks):
    """Learn and merge the partitions of a log one at a time, and return the bandit."""
    parts = robustfd.ContextualBandit(random_state=0).split(len(blocks))
    for part, (x, *log) in zip(parts, blocks, strict=True):
        if x.shape[0]:
            part.partial_fit(x, *log)
    return robustfd.merge(parts)


def robustfd_copy(estimator):
    return type(estimator)(**estimator.get_params())


def true_error(sketch, x):
    """Return ||A'A + alpha0 I - second_moment()||_2."""
    a = x.toarray() if sp.issparse(x) else x
    gram = a.T @ a + sketch.alpha0 * np.eye(a.shape[1])
    return np.abs(np.linalg.eigvalsh(gram - sketch.second_moment() @ np.eye(a.shape[1]))).max()


def assert_same(made, here):
    """Assert that two models are equal up to rounding errors, which depend on memory alignment."""
    assert made.n_samples_seen_ == here.n_samples_seen_
    if hasattr(here, "coef_"):
        np.testing.assert_allclose(made.coef_, here.coef_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(made.progressive_loss_, here.progressive_loss_, rtol=1e-9)
        return
    one, two = (each.second_moment() @ np.eye(each.n_features_in_) for each in (made, here))
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9 * np.abs(two).max())
    np.testing.assert_allclose(made.error_bound_, here.error_bound_, rtol=1e-6)

"""
A bandit on a drifting stream, beside greedy and epsilon
========================================================

A site shows one of six offers to each visitor and sees only whether that offer is taken. Tastes drift, and after every
1,000 visitors the offer that was taken least becomes the best. `ContextualBandit` has no exploration parameter. Beside
it are two policies over the same learners: one always shows the best offer so far, the other shows a random offer to
every tenth visitor.
"""

# %%
# The stream: what visitors take depends on five numbers, and changes.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import ContextualBandit

ROUNDS, OFFERS, FEATURES, PERIOD = 4000, 6, 5, 1000


def stream(seed):
    """Yield visitors, and the probability that they take each offer."""
    rng = np.random.default_rng(seed)
    tastes, appeal = rng.standard_normal((OFFERS, FEATURES)), rng.permutation(np.linspace(-3, 0, OFFERS))
    for t in range(ROUNDS):
        tastes += 0.01 * rng.standard_normal(tastes.shape)
        if t and t % PERIOD == 0:
            appeal[appeal.argmin()] = appeal.max() + 1
        x = rng.standard_normal(FEATURES)
        yield x, 1 / (1 + np.exp(-appeal - tastes @ x))


# %%
# Three ways to choose. All of them learn in the same way, from the offer that was shown.
def untuned(bandit, x, rng):
    """Draw from the probabilities of the bandit."""
    return bandit.choose_one(x)[0]


def greedy(bandit, x, rng):
    """Choose the offer with the best prediction."""
    return bandit.predict_one(x) or 0


def epsilon(bandit, x, rng):
    """Choose any offer in one of ten rounds."""
    return int(rng.integers(OFFERS)) if rng.random() < 0.1 else greedy(bandit, x, rng)


def lost(choose, seed):
    """Return the regret up to each round: the chance of the best offer minus that of the chosen one."""
    bandit, rng, regret = ContextualBandit(range(OFFERS), random_state=seed), np.random.default_rng(seed), []
    for x, chances in stream(seed):
        offer = choose(bandit, x, rng)
        bandit.learn_one(x, offer, float(rng.random() < chances[offer]))
        regret.append(chances.max() - chances[offer])
    return np.cumsum(regret)


# %%
# Greedy misses an offer that became better, until its other offers are worse than it remembers this one. Epsilon finds
# it, and pays for its random offers for ever. The bandit explores where its learners know little, which includes what
# they have forgotten. Single runs differ: greedy is lucky in some of them, and loses most in others. Where nothing
# changes and visitors differ much, greedy is hard to beat: they explore for it.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
policies = {"greedy": (greedy, "tab:grey"), "epsilon 0.1": (epsilon, "tab:orange"), "the bandit": (untuned, "tab:blue")}
for name, (choose, colour) in policies.items():
    runs = np.array([lost(choose, seed) for seed in range(8)])
    mean = runs.mean(axis=0)
    ax.plot(mean, color=colour, lw=2)
    ax.fill_between(np.arange(ROUNDS), runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.12, lw=0)
    ax.annotate(f" {name}, {mean[-1]:.0f}", (ROUNDS, mean[-1]), va="center", color=colour)
for change in range(PERIOD, ROUNDS, PERIOD):
    ax.axvline(change, color="tab:red", lw=0.8, ls=":")
title = "mean and range of eight runs; dotted: the worst offer becomes the best"
ax.set(xlabel="visitors", ylabel="expected takings lost", xlim=(0, 1.26 * ROUNDS), ylim=(0, None), title=title)
ax.grid(alpha=0.3)

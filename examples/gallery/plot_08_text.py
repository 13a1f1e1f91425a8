"""
Text without a vectoriser
=========================

You need no vocabulary and no vectoriser. A row is a dict of words, and new words can appear at any time. Afterwards the
model shows which words matter.
"""

# %%
# Generate reviews from words with and without a sentiment.
import matplotlib.pyplot as plt
import numpy as np

from robustfd import SketchedNewtonClassifier

rng = np.random.default_rng(0)
moods = {
    "superb": 3, "lovely": 2.5, "fresh": 1.5, "friendly": 1, "slow": -1, "cold": -1.5, "rude": -2.5, "awful": -3,
}  # fmt: skip
plain = [f"word{i}" for i in range(200)]
vocabulary = np.array([*moods, *plain])
chances = np.append(np.full(len(moods), 0.1 / len(moods)), np.full(len(plain), 0.9 / len(plain)))


def review():
    """Return a text and whether its author was happy."""
    words = rng.choice(vocabulary, size=rng.integers(8, 25), p=chances)
    return " ".join(words), sum(moods.get(word, 0.0) for word in words) + rng.normal(0.2, 0.3) > 0


# %%
# Each review is predicted first, then learned.
model = SketchedNewtonClassifier()
for _ in range(3000):
    text, happy = review()
    words = dict.fromkeys(text.split(), 1.0)
    model.learn_one(words, "happy" if happy else "unhappy")
print(f"{model.progressive_error_:.1%} errors so far, in {len(model.vocabulary_)} words")
print(model.predict_proba_one({"superb": 1.0, "slow": 1.0, "never": 1.0}))

# %%
# The weights of the words show the sentiment.
weights = model.coef_[0] * (1 if model.classes_[1] == "happy" else -1)
names = np.array(list(model.vocabulary_))
order = np.argsort(-np.abs(weights[: len(names)]))[:12][::-1]
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.barh(names[order], weights[order], color=np.where(weights[order] > 0, "tab:green", "tab:red"))
ax.set(xlabel="weight, positive for happy")

"""The two halves of docs/demo.png, which the landing page shows side by side, or stacked on a narrow screen."""

from pathlib import Path

import matplotlib.image as image

DOCS = Path(__file__).parent.parent

if __name__ == "__main__":
    whole = image.imread(DOCS / "demo.png")
    middle = whole.shape[1] // 2
    image.imsave(DOCS / "demo-sketch.png", whole[:, :middle])
    image.imsave(DOCS / "demo-learner.png", whole[:, middle:])

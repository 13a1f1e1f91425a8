"""The errors of `make demo`, which README quotes."""

from benchmarks.common import report
from examples import demo as example


def demo() -> None:
    """Measure the learners of the demo."""
    untuned, default, tried = example.measure_learners()
    report(
        "demo",
        [
            {"what": "SketchedNewtonClassifier", "value": 100 * untuned[-1], "unit": "%"},
            {"what": "SGDClassifier, default", "value": 100 * default[-1], "unit": "%"},
            {"what": "SGDClassifier, best rate", "value": 100 * min(each[-1] for each in tried.values()), "unit": "%"},
        ],
    )

"""The decay of an old row is accurate to a few ulps per newer row."""

from fractions import Fraction

import numpy as np

from robustfd.sketch._rows import Rows


def test_factors_have_the_rounding_errors_of_newer_rows_only():
    decay = np.random.default_rng(0).uniform(0.3, 0.9, 300)
    older, factors = Rows(np.zeros((300, 1)), np.ones(300), decay).decay_scales()
    exact = Fraction(1)
    for k, factor in enumerate([*factors[::-1], older]):
        off = abs(float(Fraction(float(factor)) ** 2 / exact - 1))
        assert off <= 4 * (k + 1) * np.finfo(float).eps
        if k < 300:
            exact *= Fraction(float(decay[::-1][k]))

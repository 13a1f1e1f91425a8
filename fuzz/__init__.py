"""Hostile use, at random: `make fuzz SECONDS=600`, or `python -m fuzz --seconds 600`.

One file a target. A target states a promise of the package, and a case of it is a number: the same number and seed
are always the same case. `python -m fuzz --only threads:17 --seed 0` runs one again, with the traceback.
"""

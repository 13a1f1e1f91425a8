"""Fuzz tests: `make fuzz SECONDS=600`, or `python -m fuzz --seconds 600`.

Each module is a target, which states a promise of the package. A case has a number, and the same number and seed always
give the same case. `python -m fuzz --only threads:17 --seed 0` runs one case again and prints the traceback.
"""

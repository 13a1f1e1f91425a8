"""Streaming sketches of A'A: the frequent-directions family, random projection, Oja, exact; merging; snapshots.

References that docstrings in this package cite:

- Chan, Golub and LeVeque 1983: Algorithms for computing the sample variance. Amer. Statist. 37.
- Desai, Ghashami and Phillips 2016: Improved practical matrix sketching with guarantees. IEEE TKDE 28.
- Ghashami, Liberty, Phillips and Woodruff 2016: Frequent directions: simple and deterministic matrix sketching. SIAM J.
  Comput. 45.
- Luo et al. 2016: Efficient second order online learning by sketching. NeurIPS 29.
- Luo et al. 2019: Robust frequent directions with application in online learning. J. Mach. Learn. Res. 20.
- Welford 1962: Note on a method for calculating corrected sums of squares and products. Technometrics 4.
- Yin et al. 2024: Optimal matrix sketching over sliding windows. VLDB.
"""

from robustfd._lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__)

"""Dense and sparse linear algebra on plain arrays: shrink rules, eigensolvers, linear operators, batch optima.

References that docstrings in this package cite:

- Demmel, Dhillon and Ren 1995: On the correctness of some bisection-like parallel eigenvalue algorithms in floating
  point arithmetic. Electron. Trans. Numer. Anal. 3.
- Demmel and Veselic 1992: Jacobi's method is more accurate than QR. SIAM J. Matrix Anal. Appl. 13.
- Desai, Ghashami and Phillips 2016: Improved practical matrix sketching with guarantees. IEEE TKDE 28.
- Dhillon and Parlett 2004: Multiple representations to compute orthogonal eigenvectors of symmetric tridiagonal
  matrices. Linear Algebra Appl. 387.
- Drmac and Veselic 2008: New fast and accurate Jacobi SVD algorithm I and II. SIAM J. Matrix Anal. Appl. 29.
- Golub and Van Loan 2013: Matrix Computations, 4th edition.
- Higham 2002: Accuracy and Stability of Numerical Algorithms, 2nd edition.
- Higham 2008: Functions of Matrices.
- Higham and Mary 2019: A new approach to probabilistic rounding error analysis. SIAM J. Sci. Comput. 41.
- Li and Zeng 1994: The Laguerre iteration in solving the symmetric tridiagonal eigenproblem, revisited. SIAM J. Sci.
  Comput. 15.
- Luo et al. 2019: Robust frequent directions with application in online learning. J. Mach. Learn. Res. 20.
- van der Sluis 1969: Condition numbers and equilibration of matrices. Numer. Math. 14.
"""

from robustfd._lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__)

"""Distributed learning with Dask (`robustfd.distributed.dask`) and Spark (`robustfd.distributed.spark`).

Both learn each partition independently and merge the models in a tree. The modules are imported lazily and need the
extras `robustfd[dask]` and `robustfd[spark]`.
"""

from robustfd._lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__, extras=("dask", "spark"))

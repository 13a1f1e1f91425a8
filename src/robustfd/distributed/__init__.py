"""Sketches and learners on the engines that people have: Dask (`robustfd.distributed.dask`) and Spark (`.spark`).

Each engine learns every partition by itself and merges the models as a tree. The modules are imported when they are
asked for, and need the extras `robustfd[dask]` and `robustfd[spark]`.
"""

from robustfd._lazy import lazily

__all__: list[str] = []

__getattr__, __dir__ = lazily(__name__, {}, extras=("dask", "spark"))

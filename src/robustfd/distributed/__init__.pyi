"""The public names of robustfd.distributed."""

from robustfd.distributed import dask as dask
from robustfd.distributed import spark as spark

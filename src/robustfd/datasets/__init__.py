"""Data sets of the paper and a few more. `load` downloads, checks and reads them."""

from robustfd.datasets._files import cache_folder
from robustfd.datasets._load import info, load, names
from robustfd.datasets.registry import Dataset, DatasetError, File, Split

__all__ = ["Dataset", "DatasetError", "File", "Split", "cache_folder", "info", "load", "names"]

"""What pytest does not collect: modules whose extra is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("river") else ["src/robustfd/river.py"]
if not find_spec("pyarrow"):
    names = ("_pyarrow", "_columns", "_convert", "_fields", "table", "csv", "arrow")
    collect_ignore += [f"src/robustfd/streams/{name}.py" for name in names]
collect_ignore += [] if find_spec("dask") else ["src/robustfd/distributed/dask.py"]
collect_ignore += [] if find_spec("pyspark") else ["src/robustfd/distributed/spark"]

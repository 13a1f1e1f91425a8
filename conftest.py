"""What pytest does not collect: modules whose extra is not installed. And which tests go to one process."""

from importlib.util import find_spec

import pytest

collect_ignore = [] if find_spec("river") else ["src/robustfd/river"]
if not find_spec("pyarrow"):
    names = ("columns", "table", "csv", "arrow", "frames")
    collect_ignore += [f"src/robustfd/streams/{name}.py" for name in names]
collect_ignore += [] if find_spec("dask") else ["src/robustfd/distributed/dask.py"]
collect_ignore += [] if find_spec("pyspark") else ["src/robustfd/distributed/spark"]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    """Give all tests of an engine to one process, which starts the engine once; other tests go by function.

    Scheduling takes time in proportion to the square of the number of groups.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneEngine(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return file if file.startswith("tests/distributed/") else nodeid.split("[")[0]

    config.option.loadscopereorder = False  # tests of a file stay together, so that its fixtures are made once
    return OneEngine(config, log)

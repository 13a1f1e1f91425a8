"""What pytest does not collect: modules whose extra is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("river") else ["src/robustfd/river.py"]

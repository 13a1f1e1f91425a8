"""What stands in every file of results: the machine, the versions, the date and the commit."""

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import robustfd


def about(*packages: str) -> dict[str, str]:
    """Return the machine, the versions of this library and of packages, the date and the commit."""
    return {
        "python": platform.python_version(),
        "robustfd": robustfd.__version__,
        **{name: version(name) for name in packages},
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "load before": LOAD,  # mean number of processes that ran or waited to run in the minute before this one
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": COMMIT,
    }


def _commit() -> str:
    """Return the commit of the code, "unknown" outside a checkout; "+" marks code that was not committed."""
    changed = _git("status", "--porcelain", "-uno", "--", "src", "benchmarks", ":!benchmarks/results")
    return _git("rev-parse", "--short", "HEAD") + "+" * (changed not in ("", "unknown"))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    """Return the output of a git command at the root of this checkout, or "unknown" if this is none."""
    root = Path(robustfd.__file__).parents[2]
    if not (root / ".git").exists():  # installed, perhaps within a checkout of something else
        return "unknown"
    try:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# Those of the moment when this process began, since files may be edited while it runs.
LOAD = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
COMMIT = _commit()

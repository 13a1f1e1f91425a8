"""Object files for a level of x86-64 share no inline functions with others: the linker would keep one copy of them."""

import shutil
import subprocess
from pathlib import Path

import pytest

BUILDS = Path(__file__).parents[2] / "build"
OBJECTS = sorted(BUILDS.glob("*/CMakeFiles/core_x86_64_v*.dir/**/*.o"))


@pytest.mark.skipif(not OBJECTS or shutil.which("nm") is None, reason="no object files, or no nm")
def test_object_files_of_levels_define_no_weak_functions():
    listed = subprocess.run(["nm", *OBJECTS], capture_output=True, text=True, check=True).stdout
    weak = {line.split()[-1] for line in listed.splitlines() if line.split()[-2:-1] in (["W"], ["w"], ["V"], ["u"])}
    assert not {name for name in weak if not name.startswith("DW.ref.")}

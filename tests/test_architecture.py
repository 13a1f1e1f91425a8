"""ARCHITECTURE.md names every file of src/, and no file that does not exist; its layers are those of import-linter."""

import re
import tomllib
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def listed_files():
    """Return the paths in the list of files, whose nesting is by indentation."""
    folders, files = {}, []
    for line in re.search(r"^```\n(src/.*?)^```", TEXT, re.DOTALL | re.MULTILINE).group(1).splitlines():
        depth, name = len(line) - len(line.lstrip()), line.split()[0]
        if name.endswith("/"):
            folders = {level: folder for level, folder in folders.items() if level < depth} | {depth: name}
        else:
            files.append("".join(folders[level] for level in sorted(folders) if level < depth) + name)
    return files


def test_every_file_is_listed_and_exists():
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".hpp", ".cpp")]
    there = {path.relative_to(ROOT).as_posix() for path in files if path.name != "__init__.py"}
    # A header and its source file have one line.
    there -= {path for path in there if path.endswith(".cpp") and path.removesuffix("cpp") + "hpp" in there}
    listed = listed_files()
    assert len(listed) == len(set(listed))
    assert sorted(there - set(listed)) == [] and sorted(set(listed) - there) == []


def test_files_in_the_text_exist():
    known = {path.relative_to(ROOT) for path in ROOT.glob("*/**/*.*") if ".venv" not in path.parts}
    for name in re.findall(r"[\w/]+\.(?:py|hpp|cpp)\b", TEXT.split("## The path of a row")[1]):
        parts = PurePosixPath(name).parts
        assert any(path.parts[-len(parts) :] == parts for path in known), name


def test_layers_are_those_of_import_linter():
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(re.findall(r"\w+", layer)) for layer in contract["layers"] if layer != "__main__"]
    names = set().union(*layers)
    drawing = re.search(r"\n\n((?:    .*\n)+)", TEXT).group(1).splitlines()
    # Names come first on a line; a description follows after at least four spaces.
    drawn = [{word for word in re.split(r"\s{4,}", line.strip())[0].split() if word in names} for line in drawing]
    assert drawn == layers

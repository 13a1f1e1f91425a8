"""The site has a page for every public name, and every page is in a table of contents."""

import re
from pathlib import Path

import robustfd

DOCS = Path(__file__).parent.parent / "docs"


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   (\w+)$", (DOCS / "api.rst").read_text(), re.MULTILINE)
    assert not set(robustfd.__all__) - set(listed)


def test_every_page_is_in_a_table_of_contents():
    pages = {path.stem for path in [*DOCS.glob("*.md"), *DOCS.glob("*.rst")]} - {
        "index",
        "sg_execution_times",
    }  # the second is generated
    listed = set()
    for path in DOCS.glob("*.md"):
        for toctree in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(), re.DOTALL):
            listed |= {line.strip() for line in toctree.splitlines()}
    assert not pages - listed

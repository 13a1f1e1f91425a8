"""The site has a page for every public name, and every page is in a table of contents."""

import inspect
import re
from pathlib import Path

import robustfd

DOCS = Path(__file__).parent.parent / "docs"


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   (\w+)$", (DOCS / "api.rst").read_text(), re.MULTILINE)
    assert not set(robustfd.__all__) - set(listed)


def test_every_page_is_in_a_table_of_contents():
    not_listed = {"index", "sg_execution_times"}  # older builds have left the second one behind
    pages = {path.stem for path in [*DOCS.glob("*.md"), *DOCS.glob("*.rst")]} - not_listed
    listed = set()
    for path in DOCS.glob("*.md"):
        for toctree in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(), re.DOTALL):
            listed |= {line.strip() for line in toctree.splitlines()}
    assert not pages - listed


def test_docstrings_link_to_pages():
    """A path such as docs/mathematics.md leads nowhere on the site; a role of Sphinx becomes a link."""
    for name in robustfd.__all__:
        public = getattr(robustfd, name)
        members = [getattr(public, each) for each in dir(public) if not each.startswith("_")]
        texts = [inspect.getdoc(each) or "" for each in [public, *members]]
        assert not re.findall(r"docs/\S+", " ".join(texts)), name

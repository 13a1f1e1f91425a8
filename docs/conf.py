"""How Sphinx builds the site: `make docs`."""

import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import robustfd

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
warnings.filterwarnings("ignore", message=".*is non-interactive.*")

REPOSITORY = "https://github.com/robustfd/robustfd"

project = "robustfd"
author = "the robustfd developers"
copyright = "2026, the robustfd developers"
version = release = robustfd.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx-mathjax-offline",  # MathJax from the site itself, not from a network
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "reproduction/*.md", "snippets"]
templates_path = ["_templates"]
root_doc = "index"

autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
intersphinx_mapping: dict[str, Any] = {}  # the site builds without a network
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
mathjax_path = "mathjax/tex-chtml.js"  # below _static, copied there by sphinx-mathjax-offline
suppress_warnings = ["config.cache"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "show_memory": False,
    "remove_config_comments": True,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib",),
    "write_computation_times": False,  # that page loads scripts from a network
}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "robustfd"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "github_url": REPOSITORY,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def read_source(app: Any, name: str, text: list[str]) -> None:
    """Make links that work in the repository work on the site, also those of included files."""
    if included := re.search(r"```\{include\} \.\./(\w+\.md)\n.*?```", text[0], re.DOTALL):
        path = Path(app.srcdir).parent / included[1]
        app.env.note_dependency(str(path))
        content = re.sub(r"^# Changelog\n", "", path.read_text())
        content = re.sub(r"\]\((?!http|#|docs/)([^)]+)\)", r"](../\1)", content)
        text[0] = text[0].replace(included[0], re.sub(r"\]\(docs/", "](", content))
    for page in ("architecture", "contributing", "changelog"):
        text[0] = text[0].replace(f"](../{page.upper()}.md", f"]({page}.md")
    text[0] = re.sub(r"\]\(\.\./([^)]+)\)", rf"]({REPOSITORY}/blob/main/\1)", text[0])


def skip_inherited(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip members that classes inherit from scikit-learn and River, which document them."""
    home = getattr(getattr(member, "fget", member), "__module__", None) or "robustfd"
    return True if not home.startswith("robustfd") else None


def copy_report(app: Any, error: Exception | None) -> None:
    """Copy the reproduction report, which is a complete HTML page, next to the pages that Sphinx wrote."""
    if error is None and app.builder.format == "html":
        shutil.copytree(Path(app.srcdir) / "reproduction", Path(app.outdir) / "reproduction", dirs_exist_ok=True)


def setup(app: Any) -> None:
    """Connect the functions of this file to events of Sphinx."""
    app.connect("source-read", read_source)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("build-finished", copy_report)

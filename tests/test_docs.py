"""The examples of README and docs/ run as they are, links lead somewhere, and names that pages mention exist."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.parts import java_version

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
NEEDS = {"from-river.md": "river", "from-vowpal-wabbit.md": "pyarrow", "tables.md": "pyarrow", "start.md": "pyarrow"}


def examples(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def promised(code):
    return set(re.findall(r"^# prints: (.*)$", code, flags=re.MULTILINE))


@pytest.mark.parametrize("code", examples(ROOT / "README.md"))
def test_each_example_of_the_readme_runs_alone_and_prints_what_it_says(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed and promised(code) <= set(printed)


# Two tests below run the examples of docs/command-line.md with its commands, and those on Dask and Spark.
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=() if page.stem == "start" else pytest.mark.slow)
        for page in PAGES
        if examples(page) and page.name not in ("command-line.md", "scaling.md")
    ],
)
def test_python_examples_run_and_print_what_they_say(page, tmp_path, monkeypatch, capsys):
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    monkeypatch.chdir(tmp_path)
    code = "\n".join(examples(page))
    exec(code, {})
    assert promised(code) <= set(capsys.readouterr().out.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("page", ["command-line", "from-vowpal-wabbit"])
def test_pages_with_commands_run_from_top_to_bottom(tmp_path, page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for kind, block in re.findall(r"^```(python|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        commands = "\n".join(re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE))
        shell = f'set -e; robustfd() {{ "{sys.executable}" -m robustfd "$@"; }}\n{commands}'
        program = [sys.executable, "-c", block] if kind == "python" else ["bash", "-c", shell]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, block + done.stderr


@pytest.mark.slow
def test_vowpal_wabbit_reads_the_logs_of_its_page(tmp_path, monkeypatch):
    """Its commands for bandits, beside ours, work too."""
    vowpalwabbit = pytest.importorskip("vowpalwabbit")
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "docs" / "from-vowpal-wabbit.md").read_text().split("## Contextual bandits")[1]
    exec(re.search(r"^```python\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE).group(1), {})
    for command in re.findall(r"^vw (.*)$", section, flags=re.MULTILINE):
        vowpalwabbit.Workspace(f"{command} --quiet").finish()
        assert "-p" not in command or len((tmp_path / "chances.txt").read_text().split()) == 2000


@pytest.mark.slow
def test_examples_on_dask_and_spark_run_and_print_what_they_say(tmp_path):
    """They run in a process of their own, because Spark keeps the folder and the environment of its first session."""
    pytest.importorskip("dask")
    pytest.importorskip("pyspark")
    if java_version() < 17:
        pytest.skip("Spark needs Java 17 or later")
    code = "\n".join(examples(ROOT / "docs" / "scaling.md"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert promised(code) <= set(done.stdout.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_that_is_not_run_is_marked(page):
    """Directives are for examples of other packages. Everything else is a plain block, which the test above runs."""
    blocks = re.findall(r"^```\{code-block\} \w+\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert all(block.startswith(":class: not-run\n") for block in blocks)


@pytest.mark.slow
def test_demo_shows_both_halves(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(ROOT / "examples" / "demo.py"))["main"]() == 0  # every certificate held
    untuned, default, best = re.search(
        r"are ([\d.]+)% .* has ([\d.]+)% .* and ([\d.]+)%", capsys.readouterr().out
    ).groups()
    assert float(untuned) < float(best) < float(default)
    assert (tmp_path / "demo.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["decision", "reproduction"])
def test_pictures_can_be_drawn(name):
    pytest.importorskip("matplotlib")
    assert (ROOT / "docs" / f"{name}.svg").exists()
    assert runpy.run_path(str(ROOT / "docs" / "pictures" / f"{name}.py"))["draw"]().axes


def test_the_readme_says_what_it_is_as_the_site_does():
    what = (ROOT / "docs" / "snippets" / "what.md").read_text()
    assert (ROOT / "README.md").read_text().startswith(f"# robustfd\n\n{what}\n")
    for page in ("index", "start"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert re.search(r"^# .*\n\n```\{include\} snippets/what.md\n```\n", text, re.MULTILINE)


def test_links_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *PAGES]:
        text = page.read_text()
        for target in re.findall(r"\]\((?!http)([^)#]+)\)|href=\"(?!http)([^\"#]+)\"", text):
            target = "".join(target).removeprefix("gallery/")
            places = (page.parent / target, ROOT / "examples" / "gallery" / target.replace(".rst", ".py"))
            assert target == "index.rst" or any(place.exists() for place in places), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ["paper.md", "errata.md"])
def test_tests_that_the_pages_on_the_paper_name_exist(page):
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", (ROOT / "docs" / page).read_text())
    assert named
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"


def test_every_theorem_and_algorithm_of_the_paper_has_its_place():
    text = (ROOT / "docs" / "paper.md").read_text()
    for number in range(1, 8):
        assert re.search(rf"Theorems? [\d, and]*{number}", text), number
    for number in range(1, 9):
        assert re.search(rf"Algorithms? [\d and]*{number}", text), number

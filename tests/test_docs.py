"""The examples of the README and the guide run as they stand."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def examples(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("code", examples("README.md"))
def test_each_example_of_the_readme_runs_alone_and_prints_what_it_says(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed and set(re.findall(r"^# prints: (.*)$", code, flags=re.MULTILINE)) <= set(printed)


@pytest.mark.parametrize("page", ["docs/guide.md", "docs/online-guide.md", "docs/datasets.md", "docs/scaling.md"])
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert examples(page)
    exec("\n".join(examples(page)), {})


def test_demo_shows_both_halves(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(ROOT / "examples" / "demo.py"))["main"]() == 0  # every certificate held
    untuned, default, best = re.search(
        r"are ([\d.]+)% .* has ([\d.]+)% .* and ([\d.]+)%", capsys.readouterr().out
    ).groups()
    assert float(untuned) < float(best) < float(default)
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_architecture_names_every_module():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for module in (ROOT / "src" / "robustfd").rglob("*.py"):
        named = module.name in text or module.parent.name == "estimators"
        assert named or module.name == "__init__.py", module

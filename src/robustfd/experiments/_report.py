"""The report: one self-contained HTML page with a light and a dark theme."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from robustfd.experiments._figures import Figure, inline, key
from robustfd.experiments._findings import Row, Status, Table, Verdict
from robustfd.experiments.colours import COLOURS

MARKS: dict[Status, str] = {"holds": "✓", "differs": "≠", "fails": "✗"}
WORDS = {"holds": "holds", "differs": "differs, with a reason", "fails": "does not hold"}


@dataclass(frozen=True)
class Section:
    """The results of one experiment."""

    name: str
    title: str
    claim: str
    rows: list[Row]
    verdicts: list[Verdict]
    figures: list[Figure]
    tables: list[Table]


def page(sections: Sequence[Section], about: dict[str, Any], failed: Sequence[str]) -> str:
    """Return the report as HTML."""
    style = (files(__package__) / "report.css").read_text("utf-8")
    body = "\n".join([_summary(sections, about, failed), *(_section(section) for section in sections), _footer(about)])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Robust Frequent Directions, reproduced</title>
<style>
{_colours()}
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _colours() -> str:
    light, dark = (" ".join(f"--{name}: {pair[place]};" for name, pair in COLOURS.items()) for place in (0, 1))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def _summary(sections: Sequence[Section], about: dict[str, Any], failed: Sequence[str]) -> str:
    """Return the top of the page: the title, and one line per experiment with its verdicts."""
    counts = Counter(verdict.status for section in sections for verdict in section.verdicts)
    data = ", ".join(f"{each['name']} ({each['rows']:,} × {each['features']:,})" for each in about["data"])
    tally = "".join(
        f'<li class="{status}"><b>{counts[status]}</b> {WORDS[status]}</li>' for status in MARKS if counts[status]
    )
    links = "".join(_link(section) for section in sections)
    quick = '<p class="note">Quick run: fewer sizes, orders and seeds than a full run.</p>' if about["quick"] else ""
    broken = ""
    if failed:
        items = "".join(f"<li>{escape(each)}</li>" for each in failed)
        broken = f'<div class="broken"><b>{len(failed)} cells failed and are missing below</b><ul>{items}</ul></div>'
    return f"""<header>
<h1>Robust Frequent Directions, reproduced</h1>
<p>The tables and figures of Luo, Chen, Zhang, Li and Zhang, <cite>Robust Frequent Directions with Application in Online
Learning</cite> (JMLR 2019), reproduced with robustfd {escape(about["versions"]["robustfd"])} on {escape(data)}.</p>
{quick}{broken}
<ul class="tally">{tally}</ul>
<ul class="contents">{links}</ul>
</header>"""


def _link(section: Section) -> str:
    """Return a line of the table of contents: a link to the section and a mark for each verdict."""
    marks = "".join(
        f'<i class="{each.status}" title="{escape(each.claim)}">{MARKS[each.status]}</i>' for each in section.verdicts
    )
    return f'<li><a href="#{section.name}">{escape(section.title)}</a> <span class="marks">{marks}</span></li>'


def _verdict(verdict: Verdict) -> str:
    reasons = "".join(f"<p class='reason'>{escape(line)}</p>" for line in verdict.reason.splitlines())
    found = escape(verdict.found[:1].upper() + verdict.found[1:])
    return (
        f'<li class="{verdict.status}">'
        f'<span class="mark" title="{WORDS[verdict.status]}">{MARKS[verdict.status]}</span>'
        f"<div><p><b>{escape(verdict.claim)}.</b> {found}.</p>{reasons}</div></li>"
    )


def _section(section: Section) -> str:
    figures = "\n".join(_figure(figure) for figure in section.figures)
    tables = "\n".join(_table(table) for table in section.tables)
    verdicts = "".join(_verdict(each) for each in section.verdicts)
    nothing = "" if section.rows else "<p class='note'>Nothing was run: these data sets do not have two classes.</p>"
    return f"""<section id="{section.name}">
<h2>{escape(section.title)}</h2>
<p class="claim">{escape(section.claim)}</p>
{nothing}<ul class="verdicts">{verdicts}</ul>
{figures}
{tables}
</section>"""


def _figure(figure: Figure) -> str:
    panels = "".join(
        f"<div class='panel'><h4>{escape(panel.title)}</h4>{svg}</div>"
        for panel, svg in zip(figure.panels, inline(figure))
    )
    legend = "".join(f"<span>{key(style)}{escape(style.label)}</span>" for style in figure.legend)
    inner = f"""<div class="legend">{legend}</div>
<div class="panels">{panels}</div>
<figcaption>{escape(figure.caption)}</figcaption>"""
    if figure.folded:
        return f"<details><summary>{escape(figure.title)}</summary><figure>{inner}</figure></details>"
    return f"<figure><h3>{escape(figure.title)}</h3>{inner}</figure>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    lines = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in table.rows)
    note = f"<p class='note'>{escape(table.note)}</p>" if table.note else ""
    return f"""<details class="table"{" open" if table.opened else ""}><summary>{escape(table.title)}</summary>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>{note}</details>"""


def _footer(about: dict[str, Any]) -> str:
    made = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    machine = about["machine"]
    return f"""<footer>
<p>Made {escape(about["began"])} in {about["seconds"]:,.0f} s with {escape(made)}, on {escape(machine["processor"])}
({machine["cores"]} cores, {about["jobs"]} processes of one BLAS thread each; {escape(machine["system"])}).</p>
<p>Protocol: squared loss, labels −1 and +1, C = 1, μ = 1/8, η = 1/t, no intercept, no scaling; one pass over the first
70 % of the rows, the others are test rows; α₀ is the best of 10⁻³ to 10⁶ on the test rows, as in the paper. Seeds of
random orders, RP and Oja start at 0. All numbers are in results.json and in one CSV file per section, next to this
page.</p>
</footer>"""

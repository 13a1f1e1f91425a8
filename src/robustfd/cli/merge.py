"""`robustfd merge`: sketches of parts of the rows into one of all."""

from pathlib import Path
from typing import Annotated

import typer

from robustfd.cli._guard import READ
from robustfd.cli._parameters import Output, Talk, command

Sketches = Annotated[
    list[Path],
    READ,
    typer.Argument(metavar="SKETCHES...", help="Files that `robustfd sketch` wrote.", show_default=False),
]


@command
def merge(sketches: Sketches, output: Output, *, talk: Talk) -> None:
    """Merge SKETCHES of parts of the rows into one sketch of all of them; certificates add up."""
    from robustfd.cli._models import load_model, require_folder, sketch_of
    from robustfd.cli._talk import tell
    from robustfd.cli.sketch import summary
    from robustfd.sketch.merging import merge as merged
    from robustfd.streams._names import names_in, with_names, without_names

    require_folder(output)
    parts, layouts = [], []
    for path in sketches:
        part, layout = load_model(path, "sketch")
        parts.append(part)
        layouts.append(layout)
        if without_names(layout or {}) != without_names(layouts[0] or {}):
            raise ValueError(f"{path} has other columns than {sketches[0]}: they were read differently.")
    result = merged(parts)
    layout = layouts[0]
    for other in layouts[1:]:
        layout = layout and with_names(layout, names_in(other or {}))
    result.save(output, notes={"layout": layout})
    tell(talk, summary(sketch_of(result)) | {"files": len(parts), "file": str(output)})

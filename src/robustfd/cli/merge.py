"""`robustfd merge`: sketches, or models, of parts of the rows into one of all."""

from pathlib import Path
from typing import Annotated, Any

import typer

from robustfd.cli._guard import READ
from robustfd.cli._parameters import Output, Talk, command

Parts = Annotated[
    list[Path],
    READ,
    typer.Argument(
        metavar="FILES...", help="Files that `robustfd sketch` wrote, or `robustfd train`.", show_default=False
    ),
]


@command
def merge(parts: Parts, output: Output, *, talk: Talk) -> None:
    """Merge sketches, or models, of parts of the rows into one of all of them; certificates of sketches add up."""
    from robustfd.cli._learning import about_learner
    from robustfd.cli._models import is_sketch, load_model_and_notes, require_folder, sketch_of
    from robustfd.cli._talk import tell
    from robustfd.cli.sketch import summary
    from robustfd.sketch.merging import merge as merged
    from robustfd.streams._names import names_in, with_names, without_names

    require_folder(output)
    models: list[Any] = []
    layouts: list[dict[str, Any] | None] = []
    said: list[Any] = []  # about empty fields
    for path in parts:
        model, layout, notes = load_model_and_notes(path)
        if models and type(model) is not type(models[0]):
            raise ValueError(f"{path} holds a {type(model).__name__}, and {parts[0]} a {type(models[0]).__name__}.")
        models.append(model)
        layouts.append(layout)
        said.append(notes.get("missing"))
        if without_names(layout or {}) != without_names(layouts[0] or {}) or said[-1] != said[0]:
            raise ValueError(f"{path} has other columns than {parts[0]}: they were read differently.")
    result = merged(models)
    layout = layouts[0]
    for other in layouts[1:]:
        layout = layout and with_names(layout, names_in(other or {}))
    result.save(output, notes={"layout": layout} | ({} if said[0] is None else {"missing": said[0]}))
    inner = sketch_of(result)
    about = summary(inner) if is_sketch(inner) else about_learner(result)
    tell(talk, about | {"files": len(models), "file": str(output)})

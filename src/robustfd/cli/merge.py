"""`robustfd merge`: sketches or models of parts of the rows, merged into one."""

from pathlib import Path
from typing import Annotated

from robustfd.cli._command import command
from robustfd.cli._file_use import READ
from robustfd.cli._options import ConsoleOptions, Output
from robustfd.cli._parameters import argument

Parts = Annotated[
    list[Path],
    READ,
    argument("FILES", help="Files from `robustfd sketch`, or from `robustfd train`."),
]


@command
def merge(parts: Parts, output: Output, *, console: ConsoleOptions) -> None:
    """Merge sketches or models of parts of the rows into one of all rows. Certified errors of sketches add up."""
    from robustfd.cli._console import print_result
    from robustfd.cli._files import require_writable
    from robustfd.cli._learners import learner_summary
    from robustfd.cli._models import is_sketch, load_file, sketch_of
    from robustfd.cli._sketches import sketch_summary
    from robustfd.sketch.merging import merge as merged
    from robustfd.streams.layout import names_in, with_names, without_names

    require_writable(output)
    loaded = [load_file(path) for path in parts]
    first = loaded[0]
    for path, each in zip(parts, loaded):
        if type(each.model) is not type(first.model):
            kinds = type(each.model).__name__, type(first.model).__name__
            raise ValueError(f"{path} holds a {kinds[0]}, and {parts[0]} a {kinds[1]}.")
        same_columns = without_names(each.layout or {}) == without_names(first.layout or {})
        if not same_columns or each.missing != first.missing:
            raise ValueError(f"{path} has other columns than {parts[0]}: they were read differently.")
    result, layout = merged([each.model for each in loaded]), first.layout
    for each in loaded[1:]:
        layout = layout and with_names(layout, names_in(each.layout or {}))
    result.save(output, notes={"layout": layout} | ({} if first.missing is None else {"missing": first.missing}))
    sketch = sketch_of(result)
    summary = sketch_summary(sketch) if is_sketch(sketch) else learner_summary(result)
    print_result(console, summary | {"files": len(loaded), "file": str(output)})

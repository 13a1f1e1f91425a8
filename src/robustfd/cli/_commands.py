"""All commands as one command line. A command is imported when it is used."""

from importlib import import_module

import click

from robustfd import __version__

EPILOG = (
    "Results go to standard output, everything else to standard error. Exit status: 0 success; 1 failure (data that "
    "cannot be read, a full disk, a damaged file); 2 wrong usage; 130 or 143 stopped by a signal, after saving the "
    "checkpoint."
)


class Commands(click.Group):
    """Streaming matrix sketches that certify their own error, and online learning without tuning."""

    def __init__(self, panels: dict[str, tuple[str, ...]]):
        super().__init__(
            "robustfd", help=self.__doc__, epilog=EPILOG, no_args_is_help=True, params=[_version_option()],
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )  # fmt: skip
        self._panels = panels

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [name for names in self._panels.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found = getattr(import_module(f"robustfd.cli.{cmd_name}"), cmd_name)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by panel."""
        for panel, names in self._panels.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(panel):  # the first paragraph of each
                formatter.write_dl([(name, (each.help or "").split("\n\n")[0]) for name, each in commands if each])


def _version_option() -> click.Option:
    def show(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            print(__version__)
            context.exit()

    return click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show,
                        help="Print the version.")  # fmt: skip

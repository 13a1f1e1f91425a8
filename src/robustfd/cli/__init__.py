"""The command `robustfd`: one file a command. Needs the extra `cli`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        sys.exit(f"robustfd: {error.name} is missing. The command needs an extra: pip install 'robustfd[cli]'")
    from robustfd.cli.reproduce import reproduce

    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(about)
    app.command()(reproduce)
    app()


def about() -> None:
    """Streaming matrix sketches that certify their own error, and online learning without tuning."""

"""`cellbed record`: record a live network, or be the other end.

All arguments go to the recorder as they are, `--help` too: it has one parser, and is a program without Python as well.
"""

from __future__ import annotations

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_AS_THEY_ARE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_AS_THEY_ARE, add_help_option=False)
def record(context: typer.Context) -> None:
    """Record a live network, or serve those who record."""
    import sys

    from cellbed._core import record as run

    sys.stdout.flush()
    raise typer.Exit(run(context.args))

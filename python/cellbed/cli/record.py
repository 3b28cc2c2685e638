"""`cellbed record`: record a live network, or serve recorders.

The recorder gets all arguments but the options of :mod:`cellbed.experiments.field`, which runs it below this process.
If nothing follows the recording, the recorder takes the place of this process.
"""

from __future__ import annotations

import os
import subprocess

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_VERBS = {"calibrate", "serve", "pack", "secret", "help"}
_SHOWING = {"--help", "-h", "--version", "-V"}
_AS_THEY_ARE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_AS_THEY_ARE, add_help_option=False)
def record(context: typer.Context) -> None:
    """Record a live network, or serve recorders."""
    from cellbed.experiments.field import HELP, record_in_field, take_options
    from cellbed.recordings.recorder import find_recorder

    # The program's first word is its name in messages.
    command = ["cellbed record", *(each for each in context.args if each != "--no-check")]
    if context.args in (["--help"], ["-h"]):
        subprocess.run(command, executable=find_recorder(), check=True)
        typer.echo(HELP)
        return
    if _VERBS.isdisjoint(context.args[:1]) and _SHOWING.isdisjoint(context.args):
        options, arguments = take_options(context.args)
        if not options.is_empty:
            raise typer.Exit(record_in_field(options, arguments, as_json="--json" in arguments))
    os.execv(find_recorder(), command)

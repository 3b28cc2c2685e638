"""`cellbed record`: record a live network, or serve recorders.

The recorder takes the place of this process with all arguments, including `--help`. Only `--for METHOD` is handled
here: like `--plan FILE`, the option selects packet trains, here the trains that a method of replay needs.
"""

from __future__ import annotations

import os

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_AS_THEY_ARE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_AS_THEY_ARE, add_help_option=False)
def record(context: typer.Context) -> None:
    """Record a live network, or serve recorders."""
    from cellbed.recordings.recorder import find_recorder

    # The program's first word is its name in messages.
    os.execv(find_recorder(), ["cellbed record", *_replace_plan(context.args)])


def _replace_plan(arguments: list[str]) -> list[str]:
    """Return the arguments with a plan in place of ``--for``, in a file that the recorder inherits."""
    found: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        option, equals, method = argument.partition("=")
        if option != "--for":
            found.append(argument)
            continue
        method = method if equals else next(rest, "")
        if method not in ("cellreplay", "conditional"):
            typer.echo(f"error: --for: {method!r} is no method of replay: write cellreplay or conditional", err=True)
            raise typer.Exit(2)
        if method == "conditional":
            from cellbed.recordings.conditional import conditional_plan

            plan = os.memfd_create("plan", 0)
            os.write(plan, conditional_plan().model_dump_json(exclude_none=True).encode())
            found += ["--plan", f"/dev/fd/{plan}"]
    return found

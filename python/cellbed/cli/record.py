"""`cellbed record`: record a live network, or serve recorders.

All arguments, including `--help`, are passed to the recorder, which also runs without Python. Only `--for METHOD` is
handled here: like `--plan FILE`, the option selects packet trains, here the trains that a method of replay needs.
"""

from __future__ import annotations

from contextlib import ExitStack

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_AS_THEY_ARE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_AS_THEY_ARE, add_help_option=False)
def record(context: typer.Context) -> None:
    """Record a live network, or serve recorders."""
    import sys

    from cellbed._core import record as run

    with ExitStack() as files:
        arguments = _with_plan(context.args, files)
        sys.stdout.flush()
        status = run(arguments)
    if "--help" in arguments and "serve" not in arguments:
        typer.echo(
            "\nReplay:\n      --for <METHOD>  Send the trains that a method of replay needs: conditional "
            "(in place of --plan) or cellreplay (default trains)"
        )
    raise typer.Exit(status)


def _with_plan(arguments: list[str], files: ExitStack) -> list[str]:
    """Return the arguments with a plan file in place of ``--for``. Closing `files` removes the plan file."""
    from cellbed_node.temporary import temporary_folder

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

            file = files.enter_context(temporary_folder()) / "plan.json"
            file.write_text(conditional_plan().model_dump_json(exclude_none=True), encoding="utf-8")
            found += ["--plan", str(file)]
    return found

"""The command ``cellbed``: registers the verbs and turns errors into sentences."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

VERBS = {
    "run": "Run a scenario and report where the time of each request went.",
    "report": "Rebuild the tables and the report of a run.",
    "compare": "Put runs beside each other.",
    "log": "Show or convert the packet log of a run.",
    "shell": "Run any program behind an emulated link.",
    "mahimahi": "Install commands that stand in for Mahimahi's.",
    "link": "See and change the links of what is running.",
    "evaluate": "Hold replays of a recorded network against the network itself.",
    "meter": "Show what the links of live runs and shells do.",
    "record": "Record a live network, or serve those who record.",
    "traces": "List, show and export traces and recordings.",
    "schema": "Print the JSON Schemas of scenarios and recordings.",
    "doctor": "Say what this machine has and lacks.",
    "grant": "Allow an ordinary user to run with limits (needs root).",
    "clean": "Put right what a killed run has left.",
}
"""The verbs and their first lines of help. Only the verb that is called is imported: start-up time counts."""


class Verbs(TyperGroup):
    """A command group whose members are imported when they are needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the verbs, in the order of :data:`VERBS`."""
        return list(VERBS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that `args` begin with; one that does not exist is answered by the nearest that does."""
        wrong = args[0]
        if wrong not in VERBS and wrong[:1] != "-" and not ctx.resilient_parsing:
            begun = [verb for verb in VERBS if verb.startswith(wrong)] if wrong else []
            near = begun or difflib.get_close_matches(wrong.lower(), VERBS, n=2)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(VERBS)}."
            ctx.fail(f"There is no verb '{wrong}'. {hint}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb called `cmd_name`; for the list of verbs in ``--help`` only its first line."""
        if cmd_name not in VERBS:
            return None
        if ctx.resilient_parsing or _is_help_for_all():
            return TyperCommand(cmd_name, help=VERBS[cmd_name])
        module = importlib.import_module(f"cellbed.cli.{cmd_name}")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        verb: Any = getattr(module, "app", None)
        if verb is not None:
            command = typer.main.get_command(verb)
            command.name = cmd_name
            return command
        app.command(cmd_name)(getattr(module, cmd_name))
        return typer.main.get_command(app)


app = typer.Typer(cls=Verbs, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        import cellbed

        print(f"cellbed {cellbed.__version__}")
        raise typer.Exit


@app.callback()
def cellbed_(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Print the version."),
) -> None:
    """A software testbed for applications on cellular networks.

    \b
    Start here:
      cellbed doctor                           is this machine ready?
      cellbed run scenarios/offload-lte.toml   run a scenario, see its report
      cellbed shell --up lte-suburban.up --down lte-suburban.down -- curl -sI https://example.org
    """


def _is_help_for_all() -> bool:
    return len(sys.argv) > 1 and sys.argv[1] in ("--help",)


def main() -> None:
    """Run the command line; a :class:`cellbed.errors.CellbedError` becomes one message and its exit status."""
    from cellbed.errors import CellbedError

    try:
        app(prog_name="cellbed")
    except CellbedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone, as in `cellbed … | head`; say nothing more to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)

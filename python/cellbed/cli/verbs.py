"""Groups of verbs that are imported when they are called: start-up time counts."""

from __future__ import annotations

import difflib
import importlib
import keyword
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


def group(package: str, verbs: dict[str, str]) -> type[TyperGroup]:
    """Return a command group of the modules in `package`.

    verbs: names, in the order in which they are listed, and the first line of each one's help. The verb ``some-thing``
    is the function ``some_thing`` of the module ``some_thing``, or the Typer application called ``app`` there; the verb
    ``import`` those of ``import_``.
    """

    class Verbs(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(verbs)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            wrong = args[0]
            if wrong not in verbs and wrong[:1] != "-" and not ctx.resilient_parsing:
                begun = [verb for verb in verbs if verb.startswith(wrong)] if wrong else []
                near = begun or difflib.get_close_matches(wrong.lower(), verbs, n=2)
                hint = f"Did you mean {' or '.join(near)}?" if near else f"Commands: {', '.join(verbs)}."
                ctx.fail(f"unknown command '{wrong}'. {hint}")
            if ctx.resilient_parsing and wrong in verbs:
                # A shell completes what follows the verb.
                return wrong, _load(package, wrong), args[1:]
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """List the verbs by their first lines, without an import of their modules."""
            limit = formatter.width - 6 - max(map(len, verbs))
            rows = [(verb, TyperCommand(verb, help=line).get_short_help_str(limit)) for verb, line in verbs.items()]
            with formatter.section("Commands"):
                formatter.write_dl(rows)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in verbs:
                return None
            if ctx.resilient_parsing:
                return TyperCommand(cmd_name, help=verbs[cmd_name])
            return _load(package, cmd_name)

    return Verbs


class Verb(TyperCommand):
    """A command whose errors about a value begin with the problem, not with the exception's class."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as refusal:
            refusal.message = refusal.message.removeprefix("Value error, ")
            raise


def _load(package: str, verb: str) -> Any:
    """Return the command of a verb, its module imported."""
    word = verb.replace("-", "_") + "_" * keyword.iskeyword(verb)
    module = importlib.import_module(f"{package}.{word}")
    group: Any = getattr(module, "app", None)
    if group is not None:
        command = typer.main.get_command(group)
        command.name = verb
        return command
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(verb, cls=Verb)(getattr(module, word))
    return typer.main.get_command(app)

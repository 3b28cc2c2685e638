"""Groups of verbs. A verb is imported when it is called, to save start-up time."""

from __future__ import annotations

import builtins
import importlib
import keyword
import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from cellbed.support import extensions

SIBLINGS = {"evaluate": "papers", "reproduce": "papers", "simulate": "datacentre"}
"""Verbs of other distributions, with the extra of cellbed that installs each. Each verb is an entry point of the
group ``cellbed.verbs``: name of the verb, module."""


def group(package: str, verbs: dict[str, str], modules: dict[str, str]) -> type[TyperGroup]:
    """Return a command group of the modules in `package`.

    verbs: first line of help by name, in listing order. The verb ``some-thing`` is the function or the Typer
    application ``some_thing`` of the module ``some_thing``, or the application called ``app`` there; the verb
    ``import`` is ``import_``. The module of a verb in SIBLINGS is an entry point.
    modules: modules of verbs whose module has another name.
    """

    class Verbs(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            # Placeholders list, complete and suggest verbs without importing the modules.
            commands = {verb: TyperCommand(verb, help=line) for verb, line in verbs.items()}
            super().__init__(**attributes | {"commands": commands})

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            verb, _, rest = super().resolve_command(ctx, args)
            return verb, None if verb is None else _load(package, verb, modules.get(verb)), rest

    return Verbs


class Verb(TyperCommand):
    """A command whose errors about a value begin with the problem instead of the exception's class."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as refusal:
            refusal.message = refusal.message.removeprefix("Value error, ")
            raise


def name_values(command: Any) -> None:
    """Set missing metavars, recursively: ``TEXT`` for an option instead of Python's ``list[str]``."""
    for each in command.params:
        kind: Any = getattr(each, "type_descriptor", None)
        if each.metavar is None and kind is not None and not (kind.is_choice or getattr(each, "is_flag", False)):
            types = re.findall(r"str|path|int|float", each.display_type(None).lower())
            name = each.name.removesuffix("s") if each.nargs != 1 else each.name
            is_option = each.param_type_name == "option"
            each.metavar = " ".join(map(_METAVARS.__getitem__, types)) if is_option else name.upper()
        if each.param_type_name == "argument" and not kind.is_choice:
            each.display_type_rich = lambda ctx: None
    for each in getattr(command, "commands", {}).values():
        name_values(each)


_METAVARS = {"str": "TEXT", "path": "PATH", "int": "NUMBER", "float": "NUMBER"}


def _load(package: str, verb: str, module_name: str | None) -> Any:
    """Import the module of a verb and return the command."""
    word = verb.replace("-", "_") + "_" * (keyword.iskeyword(verb) or hasattr(builtins, verb))
    if (extra := SIBLINGS.get(verb)) is not None:
        module = extensions.load("verbs", verb, f"cellbed {verb}", extra)
    else:
        module = importlib.import_module(f"{package}.{module_name or word}")
    app: Any = getattr(module, "app", None) or getattr(module, word)
    if isinstance(app, typer.Typer):
        command = typer.main.get_command(app)
        command.name = verb
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(verb, cls=Verb)(app)
        command = typer.main.get_command(alone)
    name_values(command)
    return command

"""``cellbed init``: write a first scenario."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cellbed.scenario.starter import Question

MOST = 24
"""Maximum number of choices printed."""


def init(
    file: Annotated[Path, typer.Argument(help="The file to write.", metavar="FILE")] = Path("scenario.toml"),
    what: Annotated[str | None, typer.Option(metavar="KIND", help="The kind of application.")] = None,
    where: Annotated[str | None, typer.Option(metavar="'KIND at PLACE'", help="Node and place of the server.")] = None,
    network: Annotated[str | None, typer.Option(metavar="NAME", help="Archive entry, radio profile, or rate.")] = None,
    load: Annotated[str | None, typer.Option(metavar="LOAD", help="'8 /s', 'poisson 8 /s' or closed.")] = None,
    ask: Annotated[str | None, typer.Option(metavar="LIMITS", help="'p99_latency < 300 ms', or nothing.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented scenario from five questions: what runs, where, over which network, which load, what is asked.

    Options answer questions in advance. Without a terminal there are no questions, and the others have their defaults.

    \b
    Examples:
      cellbed init my.toml
      cellbed init my.toml --what http --where "namespace at eu-west-3" --network 5g-midband
      cellbed init my.toml --what transfers --network "20 Mbit/s" --load closed --ask nothing
    """
    from cellbed.scenario.starter import collect
    from cellbed.support.errors import CellbedError
    from cellbed.support.whole_files import write_whole

    if not force and (file.exists() or file.is_symlink()):
        raise CellbedError(f"{file}: exists already: write another name, or --force to replace it")
    if not file.parent.is_dir():
        raise CellbedError(f"{file}: there is no folder {file.parent}: make it, or write another path")
    given = {"what": what, "where": where, "network": network, "load": load, "ask": ask}
    write_whole(file, collect(file, given, _ask if sys.stdin.isatty() and sys.stdout.isatty() else None))
    print(f"{file} is written; run it with: cellbed run {shlex.quote(str(file))}")


def _ask(name: str, question: Question, default: str) -> str:
    """Ask a question at the terminal, and return the answer."""
    print(f"\n{question.text} (--{name})")
    choices = question.choices()
    width = max(map(len, choices), default=0)
    for choice, description in list(choices.items())[:MOST]:
        print(f"  {choice:{width}}  {description}")
    if len(choices) > MOST:
        print(f"  and {len(choices) - MOST} more")
    if question.others:
        print(f"  or {question.others}")
    try:
        return input(f"[{default}] ") or default
    except EOFError:
        raise KeyboardInterrupt from None

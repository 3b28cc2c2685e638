"""The command line answers a verb that does not exist by the one that was meant; all verbs have one form."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cellbed.cli.main import app
from cellbed.cli.verbs import SIBLINGS
from cellbed.support import extensions
from in_process import cellbed


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["doctr"], "No such command 'doctr'. Did you mean 'doctor'?"),
        (["Shell", "--up", "x"], "Did you mean 'shell'?"),
        (["traces", "shw"], "Did you mean 'show'?"),
        (["xyzzy"], "Try 'cellbed --help' for help."),
    ],
)
def test_a_verb_that_does_not_exist_is_answered_by_the_nearest(words: list[str], answer: str) -> None:
    done = cellbed(*words, status=2)
    assert answer in done.stderr


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    inner = getattr(command, "list_commands", None)
    if inner is None:
        yield " ".join(words), command
        return
    context = typer.Context(command, info_name="cellbed")
    for name in inner(context):
        if not words and name in SIBLINGS and name not in extensions.entries("verbs"):
            continue
        yield from commands(command.resolve_command(context, [name])[1], (*words, name))


def test_every_command_has_examples_and_writes_to_out() -> None:
    every = dict(commands(typer.main.get_command(app)))
    assert {"run", "link ls", "log convert", "traces show", "record"} <= every.keys()
    # The recorder has its own parser, and the list of generators its own form.
    own = {name for name in every if name == "record" or name.startswith("traces generate ")}
    assert [name for name, command in every.items() if name not in own and "Example" not in (command.help or "")] == []
    options = {name: {word for each in command.params for word in each.opts} for name, command in every.items()}
    assert [name for name, words in options.items() if "--output" in words] == []
    assert [name for name, words in options.items() if "-o" in words and "--out" not in words] == []


def test_help_of_a_group_has_examples_and_no_installation_of_completion() -> None:
    shown = cellbed("link", "--help").stdout
    assert "Examples:\n    cellbed link " in shown
    assert "--install-completion" not in shown


def test_what_a_missing_sibling_has_is_one_error_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {group: dict(extensions.entries(group)) for group in ("verbs", "files", "trials")}
    for name in (*SIBLINGS, *extensions.FILES):
        for entries in own.values():
            entries.pop(name, None)
    monkeypatch.setattr(extensions, "entries", own.__getitem__)
    (tmp_path / "sweep.toml").write_text('name = "s"\nsimulation = "x.toml"\n')
    for words, what in (
        (["simulate", "x.toml"], "error: cellbed simulate is not installed; "),
        (["schema", "simulation"], "error: cellbed schema simulation is not installed; "),
        (["sweep", "sweep.toml"], "error: sweep.toml:2: simulation: this kind of trials is not installed; "),
    ):
        done = cellbed(*words, cwd=tmp_path, status=2)
        assert done.stderr == f"{what}install it with: pip install 'cellbed[datacentre]'\n"
    assert cellbed("reproduce", "x").stderr.endswith("pip install 'cellbed[papers]'\n")

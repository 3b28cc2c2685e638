"""Commands on the pages exist, with their options, and those that need nothing special work."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cellbed.cli.main import app
from cellbed.experiments.field import HELP
from cellbed.shell.mahimahi import __main__ as mahimahi

from .test_docs import PAGES, ROOT

BLOCK = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPERATORS = re.compile(r"[|&;<>()]+")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ANYWHERE = re.compile(
    r"cellbed (cc (ls|describe|compare .*--virtual)|traces (show|stats|plot|compare) lte-|traces fetch( +#|$)"
    r"|traces fetch \S+ --about|calibrate --virtual|(run|reproduce) .*--dry-run|schema|simulate)"
)
"""Commands that need no file of the reader, no device and no network."""


def commands(page: Path) -> Iterator[str]:
    """Yield the lines of the page's commands that begin a program of cellbed's."""
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            if re.search(r"(^|[|&] |sudo )(cellbed|make|mm-\w+)\b", line) and "──" not in line:
                yield line.strip()


def programs(line: str) -> Iterator[list[str]]:
    """Yield the words of each program in a line, without its environment and sudo."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not OPERATORS.fullmatch(word):
            words.append(word)
            continue
        while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
            del words[0]
        if words:
            yield words
        words = []


def problem(words: list[str]) -> str | None:
    """Return what is wrong with a command, if anything."""
    program, *rest = words
    if program == "make":
        return None if set(rest) <= TARGETS else f"no target {rest}"
    if program.startswith("mm-"):
        return _options_are_in("".join(_mahimahi_help(word) for word in words if word.startswith("mm-")), rest)
    if program == "cellbed-recorder" or words[:2] == ["cellbed", "record"]:
        verb = rest[1:2] if program == "cellbed" and rest[1:2] == ["serve"] else rest[:1]
        command = ["cellbed-recorder", *verb, "--help"]
        place = ROOT / "python" / "cellbed" / "testbed"
        if not (place / command[0]).exists():
            return None
        shown = subprocess.run([place / command[0], *command[1:]], capture_output=True, text=True, check=False).stdout
        return _options_are_in(shown + HELP, rest)
    if program != "cellbed":
        return None
    for name in rest:
        if re.match(r"(scenarios|datacentre/examples)/\S+$", name) and not (ROOT / name).exists():
            return f"no file {name}"
    return _parse(rest)


def _parse(words: list[str]) -> str | None:
    command: Any = typer.main.get_command(app)
    context = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            while True:
                context = command.make_context(command.name or "cellbed", words, parent=context)
                if not hasattr(command, "resolve_command"):
                    return None
                words = [*context._protected_args, *context.args]
                _, command, words = command.resolve_command(context, words)
    except typer.Exit:  # of --help
        return None
    except Exception as error:
        message = str(getattr(error, "message", error) or type(error).__name__)
        return None if "does not exist" in message or message.startswith("Usage:") else message


def _options_are_in(text: str, words: list[str]) -> str | None:
    inside = words[: words.index("--")] if "--" in words else words
    own = [word.partition("=")[0] for word in inside if word.startswith("--")]
    return next((f"no option {word}" for word in own if word not in text), None)


def _mahimahi_help(program: str) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), contextlib.suppress(SystemExit):
        mahimahi.main([program, "--help"])
    return shown.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    found = [(line, problem(words)) for line in commands(page) for words in programs(line)]
    assert [each for each in found if each[1]] == []


def test_a_wrong_option_verb_and_target_are_found() -> None:
    for line in (
        "cellbed run x.toml --virtuall",
        "cellbed rum x.toml",
        "sudo cellbed cc compare --laws cubic",
        "cellbed run scenarios/none.toml",
        "make docks",
        "mm-delay 20 mm-link a b --uplink-lag=x -- true",
    ):
        assert any(problem(words) for words in programs(line)), line


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_that_need_nothing_special_work(tmp_path: Path) -> None:
    for name in ("scenarios", "datacentre", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cellbed").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m cellbed "$@"\n')
    (tmp_path / "bin" / "cellbed").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "XDG_DATA_HOME": str(tmp_path)}
    lines = sorted({line for page in PAGES for line in commands(page) if ANYWHERE.match(line)})
    lines = [line for line in lines if not re.search(r"my-|gentle|shop\.toml|distance-and|\bsweep\b", line)]
    assert len(lines) > 10
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr)

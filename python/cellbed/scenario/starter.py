"""A first scenario from five answers: what runs, where, over which network, which load, what is asked."""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from cellbed.archive import open_archive
from cellbed.archive.examples import EXAMPLES
from cellbed.scenario.applications import Application, Load, tables
from cellbed.scenario.nodes import AnyBackend
from cellbed.scenario.places import PLACES
from cellbed.scenario.problems import as_toml
from cellbed.scenario.radio import PROFILES
from cellbed.scenario.reader import TablesError, make_scenario
from cellbed.scenario.reader import tables as read_tables
from cellbed.support.errors import CellbedError, printable, quote
from cellbed.support.units import FREQUENCY, UnitError

NOTHING = "nothing"
SCHEMA = "cellbed.schema.json"
"""A file beside a scenario by which editors complete it."""
_AT_TOWER = "base-edge"
_FOR_P99 = 368
"""Minimum number of requests for a P99 (docs/explanation/measurement.md)."""
_LIMIT = re.compile(r"\s*([\w.-]+)\s*([<>]=?)\s*(\S.*?)\s*")
Answers = Mapping[str, str]
"""The answers so far, by question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question. choices: description by answer. others: description of further answers, or empty. default: None if
    the question does not apply."""

    text: str
    choices: Callable[[], dict[str, str]]
    others: str
    default: Callable[[Answers], str | None]


def _backends() -> dict[str, Any]:
    return {get_args(each.model_fields["kind"].annotation)[0]: each for each in get_args(get_args(AnyBackend)[0])}


def _describe(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the descriptions of tables, without those that a first scenario cannot have."""
    return {
        name: (inspect.getdoc(each) or "").partition("\n")[0].replace("``", "`")
        for name, each in found.items()
        if getattr(each, "starter", "") or _required(each) is not None
    }


def _networks() -> dict[str, str]:
    found = dict.fromkeys(EXAMPLES, "a synthetic link") | dict.fromkeys(PROFILES, "a radio link, generated")
    return dict.fromkeys(open_archive().names(), "a link of the archive") | found


def _load(answers: Answers) -> str | None:
    table = tables().get(answers["what"], Application)
    return table.usual_load if issubclass(table, Load) else None


def _expectation(answers: Answers) -> str:
    """Return an expectation that a minute's requests can decide."""
    if "load" not in answers:
        return "connections > 0"
    requests = 0.0
    with contextlib.suppress(UnitError):  # the error of another answer
        requests = 60 * FREQUENCY.parse(_arrivals(answers["load"]).get("rate", "0 /s"))
    return f"{'p99_latency' if requests >= _FOR_P99 else 'median_latency'} < 300 ms"


QUESTIONS = {
    "what": Question("What runs?", lambda: _describe(tables()), "", lambda _: "image-classification"),
    "where": Question(
        "Where does the server run, on which kind of node?",
        lambda: _describe(_backends()),
        f"KIND at PLACE, with one of {', '.join(PLACES)} or a one-way delay",
        lambda _: f"namespace at {_AT_TOWER}",
    ),
    "network": Question("Over which network?", _networks, "a rate, '12 Mbit/s'", lambda _: "lte-suburban"),
    "load": Question(
        "Which load, of each endpoint?",
        lambda: {"closed": "the next request follows the reply"},
        "a rate, '8 /s' or 'poisson 8 /s'",
        _load,
    ),
    "ask": Question(
        "What do you ask of it?",
        lambda: {NOTHING: "no expectation"},
        "limits, 'p99_latency < 300 ms, failed_share < 1 %'",
        _expectation,
    ),
}
"""The five questions."""


def collect(file: Path, given: Mapping[str, str | None], ask: Callable[[str, Question, str], str] | None) -> str:
    """Return the text of a scenario by the answers: `given`, else of `ask` (name, question, default), else the
    defaults. file: its path.

    Errors: :class:`CellbedError` for a given answer; `ask` is called again with the same question instead.
    """
    answers: dict[str, str] = {}
    for name, question in QUESTIONS.items():
        default, text = question.default(answers), given[name]
        if default is None and text is not None:
            raise CellbedError(f"--{name}: the kind '{answers['what']}' has none: remove it")
        while default is not None and name not in answers:
            answer = (ask(name, question, default) if text is None and ask else text or default).strip()
            try:
                _check(file, answers | {name: answer})
                answers[name] = answer
            except CellbedError as error:
                if text is not None or ask is None:
                    raise CellbedError(f"--{name}: {error}") from None
                print(f"error: {error}")
    return _write(file, answers)


def _check(file: Path, answers: dict[str, str]) -> None:
    """Check answers by a scenario with defaults for the others. Errors: :class:`CellbedError`."""
    for name, question in QUESTIONS.items():
        if name not in answers and (default := question.default(answers)) is not None:
            answers[name] = default
    try:
        make_scenario(read_tables(_write(file, answers), str(file)), file.parent)
    except TablesError as error:
        raise CellbedError(error.problems[0].text) from None


def _place(text: str) -> tuple[str, str]:
    """Return kind and place of the node in ``[KIND] [at PLACE]``."""
    kind, at, place = text.partition(" at ")
    return ("namespace", kind) if not at and kind not in _backends() else (kind, place or _AT_TOWER)


def _arrivals(text: str) -> dict[str, str]:
    """Return the keys of a load: ``closed``, ``RATE`` or ``poisson RATE``."""
    if text == "closed":
        return {"arrivals": text}
    rate = text.removeprefix("poisson ")
    return {"rate": rate, "arrivals": "periodic" if rate == text else "poisson"}


def _limits(text: str) -> dict[str, str]:
    """Return the table of expectations in ``MEASURE < LIMIT, …``. Errors: :class:`CellbedError`."""
    found = {}
    for part in text.split(",") if text != NOTHING else ():
        if (match := _LIMIT.fullmatch(part)) is None:
            raise CellbedError(f"{quote(part)} is not an expectation: write 'p99_latency < 300 ms', or '{NOTHING}'")
        found[match[1]] = f"{match[2]} {match[3]}"
    return found


def _write(file: Path, answers: Answers) -> str:
    """Return the text of a scenario. file: its path."""
    kind, network = answers["what"], answers["network"]
    table = tables().get(kind, Application)
    node, place = _place(answers["where"])
    group = "cloud" if place in PLACES and place != _AT_TOWER else "edge"
    backend = {"kind": node} | ((_required(_backends()[node]) or {}) if node in _backends() else {})
    if network in PROFILES:
        link = _lines({"kind": "radio", "profile": network})
    else:
        up, down = (f"{network}.up", f"{network}.down") if open_archive().has(network) else (network, network)
        link = f'{_lines({"up": up, "down": down})}base_delay = "10 ms"             # one way\n'
    keys = table.starter or _lines({"server": "edge"} | (_required(table) or {}))
    keys = keys.replace('"edge"', f'"{group}"') + _lines(_arrivals(answers["load"]) if "load" in answers else {})
    words = [word for name, answer in answers.items() for word in (f"--{name}", answer)]
    return f"#:schema ./{SCHEMA}\n" * (file.parent / SCHEMA).exists() + _TEMPLATE.format(
        about=_describe(tables()).get(kind),
        file=(path := printable(shlex.quote(str(file)))),
        command=printable(f"cellbed init {path} {shlex.join(words)}"),
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")[:64] or "scenario",
        endpoints=table.least_endpoints,
        group=group,
        backend=_lines({"backend": backend}) if node != "namespace" else "",
        link=link,
        core=_lines({group: place}),
        app=kind if kind in tables() else "app",
        keys=_lines({"kind": kind}) + keys,
        expect=_lines(_limits(answers["ask"])) or '# p99_latency = "< 300 ms"\n',
    )


def _required(table: Any) -> dict[str, Any] | None:
    """Return the required keys of a table with their first examples, and of alternatives the first; None if one has no
    example."""
    extra = table.model_config.get("json_schema_extra")
    alternatives = extra.get("anyOf", [{}]) if isinstance(extra, dict) else [{}]
    needed = [name for name, each in table.model_fields.items() if each.is_required() and name != "kind"]
    needed += [name for name in alternatives[0].get("required", ()) if name not in ("server", "on")]
    examples = {name: table.model_fields[name].examples for name in needed}
    return {name: each[0] for name, each in examples.items()} if all(examples.values()) else None


def _lines(keys: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {as_toml(value)}\n" for key, value in keys.items())


_TEMPLATE = """\
# {about}
#
#   cellbed run {file} --dry-run    check the file and this machine, and print the plan
#   cellbed run {file} --check      run it; the exit status is 5 if [expect] is not met
#
# Made by: {command}
# All keys: `cellbed schema`, and docs/reference/scenario.md. Other scenarios: `cellbed examples`.

name = "{name}"
duration = "60 s"
seed = 1                         # of every random choice

[nodes.endpoint]                 # the users' devices
count = {endpoints}
cpus = 1.0                       # limits of each
memory = "1 GiB"

[nodes.{group}]
cpus = 1.0
memory = "1 GiB"
{backend}
[links.mobile]                   # endpoint <-> tower, the last mile
{link}
[links.core]                     # tower <-> {group}: a place, or a one-way delay
{core}
[apps.{app}]
{keys}
[expect]                         # limits for --check; a P99 needs 368 requests
{expect}"""

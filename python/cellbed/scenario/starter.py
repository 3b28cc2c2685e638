"""A first scenario from five answers: what runs, where, over which network, which load, what is asked."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from cellbed.archive import open_archive
from cellbed.archive.examples import EXAMPLES
from cellbed.scenario.applications import Load, tables
from cellbed.scenario.expectations import expectations
from cellbed.scenario.nodes import AnyBackend
from cellbed.scenario.places import PLACES
from cellbed.scenario.radio import PROFILES
from cellbed.scenario.reader import load_text
from cellbed.support.errors import CellbedError, printable, quote
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import BIT_RATE, DURATION, FREQUENCY, UnitError
from cellbed.support.whole_files import write_whole

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
    the question does not apply. check: raises CellbedError for a wrong answer."""

    text: str
    choices: Callable[[], dict[str, str]]
    others: str
    default: Callable[[Answers], str | None]
    check: Callable[[str], object]


def _kinds() -> dict[str, Any]:
    return {kind: table for kind, table in tables().items() if table.starter or _required(table) is not None}


def _backends() -> dict[str, Any]:
    found = {get_args(each.model_fields["kind"].annotation)[0]: each for each in get_args(get_args(AnyBackend)[0])}
    return {kind: each for kind, each in found.items() if _required(each) is not None}


def _describe(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: (inspect.getdoc(each) or "").partition("\n")[0].replace("``", "`") for name, each in found.items()}


def _networks() -> dict[str, str]:
    found = dict.fromkeys(EXAMPLES, "a synthetic link") | dict.fromkeys(PROFILES, "a radio link, generated")
    return dict.fromkeys(open_archive().names(), "a link of the archive") | found


def _load(answers: Answers) -> str | None:
    table = tables()[answers["what"]]
    return table.usual_load if issubclass(table, Load) else None


def _expectation(answers: Answers) -> str:
    """Return an expectation that a minute's requests can decide."""
    if "load" not in answers:
        return "connections > 0"
    rate = _arrivals(answers["load"]).get("rate", "0 /s")
    return f"{'p99_latency' if FREQUENCY.parse(rate) * 60 >= _FOR_P99 else 'median_latency'} < 300 ms"


def _choose(
    what: str, text: str, names: Iterable[str], parse: Callable[[str], object] | None = None, example: str = ""
) -> None:
    """Check that a text is a name, or that `parse` accepts it. Errors: :class:`CellbedError`."""
    names = list(names)
    with contextlib.suppress(UnitError):
        if text in names or (parse is not None and parse(text) is not None):
            return
    other = f", or {example}" if example else ""
    raise CellbedError(f"no {what} {quote(text)}: {did_you_mean(text, names)}write one of {', '.join(names)}{other}")


def _place(text: str) -> tuple[str, str]:
    """Return kind and place of the node in ``[KIND] [at PLACE]``. Errors: :class:`CellbedError`."""
    kind, at, place = text.partition(" at ")
    if not at and kind not in _backends():
        kind, place = "namespace", kind
    place = place or _AT_TOWER
    _choose("kind of node", kind, _backends())
    _choose("kind of node or place", place, [*_backends(), *PLACES], DURATION.parse, "a one-way delay, '3 ms'")
    return kind, place


def _arrivals(text: str) -> dict[str, str]:
    """Return the keys of a load: ``closed``, ``RATE`` or ``poisson RATE``. Errors: :class:`CellbedError`."""
    if text == "closed":
        return {"arrivals": text}
    rate = text.removeprefix("poisson ")
    try:
        FREQUENCY.parse(rate)
    except UnitError as error:
        raise CellbedError(f"{error}; or 'poisson 8 /s', or 'closed'") from None
    return {"rate": rate, "arrivals": "periodic" if rate == text else "poisson"}


def _limits(text: str) -> dict[str, str]:
    """Return the table of expectations in ``MEASURE < LIMIT, …``. Errors: :class:`CellbedError`."""
    found = {}
    for part in text.split(",") if text != NOTHING else ():
        if (match := _LIMIT.fullmatch(part)) is None:
            raise CellbedError(f"{quote(part)} is not an expectation: write 'p99_latency < 300 ms', or '{NOTHING}'")
        found[match[1]] = f"{match[2]} {match[3]}"
    for _, problem in expectations(found, {"the application": False})[1]:
        raise CellbedError(problem)
    return found


QUESTIONS = {
    "what": Question(
        "What runs?",
        lambda: _describe(_kinds()),
        "",
        lambda _: "image-classification",
        lambda text: _choose("kind", text, _kinds()),
    ),
    "where": Question(
        "Where does the server run, on which kind of node?",
        lambda: _describe(_backends()),
        f"KIND at PLACE, with one of {', '.join(PLACES)} or a one-way delay",
        lambda _: f"namespace at {_AT_TOWER}",
        _place,
    ),
    "network": Question(
        "Over which network?",
        _networks,
        "a rate, '12 Mbit/s'",
        lambda _: "lte-suburban",
        lambda text: _choose("network", text, _networks(), BIT_RATE.parse, "a rate, '12 Mbit/s'"),
    ),
    "load": Question(
        "Which load, of each endpoint?",
        lambda: {"closed": "the next request follows the reply"},
        "a rate, '8 /s' or 'poisson 8 /s'",
        _load,
        _arrivals,
    ),
    "ask": Question(
        "What do you ask of it?",
        lambda: {NOTHING: "no expectation"},
        "limits, 'p99_latency < 300 ms, failed_share < 1 %'",
        _expectation,
        _limits,
    ),
}
"""The five questions."""


def collect(given: Mapping[str, str | None], ask: Callable[[str, Question, str], str] | None) -> dict[str, str]:
    """Return the answers: `given`, else of `ask` (name, question, default), else the defaults.

    Errors: :class:`CellbedError` for a given answer; `ask` is called again with the same question instead.
    """
    answers: dict[str, str] = {}
    for name, question in QUESTIONS.items():
        default, text = question.default(answers), given[name]
        if default is None and text is not None:
            raise CellbedError(f"--{name}: the kind '{answers['what']}' has none: remove it")
        while default is not None and name not in answers:
            asking = text is None and ask is not None
            answer = (ask(name, question, default) if text is None and ask else text or default).strip()
            try:
                question.check(answer)
                answers[name] = answer
            except CellbedError as error:
                if not asking:
                    raise CellbedError(f"--{name}: {error}") from None
                print(f"error: {error}")
    return answers


def check_new(path: Path, force: bool) -> None:
    """Check that a file may be written. Errors: :class:`CellbedError`."""
    if not force and (path.exists() or path.is_symlink()):
        raise CellbedError(f"{path}: exists already: write another name, or --force to replace it")
    if not path.parent.is_dir():
        raise CellbedError(f"{path}: there is no folder {path.parent}: make it, or write another path")


def save(path: Path, text: str, force: bool) -> None:
    """Check a scenario, and write it. Errors: :class:`CellbedError`; ``OSError``."""
    load_text(text, path)
    check_new(path, force)
    write_whole(path, text)


def write(file: Path, answers: Answers) -> str:
    """Return the text of a scenario. file: its path."""
    kind, network = answers["what"], answers["network"]
    table = tables()[kind]
    node, place = _place(answers["where"])
    group = "cloud" if place in PLACES and place != _AT_TOWER else "edge"
    backend = {"kind": node, **(_required(_backends()[node]) or {})}
    if network in PROFILES:
        link = f'kind = "radio"\nprofile = "{network}"'
    else:
        up, down = (f"{network}.up", f"{network}.down") if open_archive().has(network) else (network, network)
        link = f'up = "{up}"\ndown = "{down}"\nbase_delay = "10 ms"             # one way'
    keys = table.starter or _lines({"server": "edge", **(_required(table) or {})})
    words = [word for name, answer in answers.items() for word in (f"--{name}", answer)]
    return f"#:schema ./{SCHEMA}\n" * (file.parent / SCHEMA).exists() + _TEMPLATE.format(
        about=_describe(tables())[kind],
        file=(path := printable(shlex.quote(str(file)))),
        command=printable(f"cellbed init {path} {shlex.join(words)}"),
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")[:64] or "scenario",
        endpoints=table.least_endpoints,
        group=group,
        backend=_lines({"backend": backend}) if node != "namespace" else "",
        link=link,
        core=f'{group} = "{place}"',
        kind=kind,
        keys=keys.replace('"edge"', f'"{group}"') + _lines(_arrivals(answers["load"]) if "load" in answers else {}),
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
    return "".join(f"{key} = {_inline(value)}\n" for key, value in keys.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_inline(each)}' for key, each in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


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

[apps.{kind}]
kind = "{kind}"
{keys}
[expect]                         # limits for --check; a P99 needs 368 requests
{expect}"""

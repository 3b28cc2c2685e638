"""A first scenario from five answers: what runs, where, over which network, which load, what is asked."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import tomli_w

from cellbed.archive import open_archive
from cellbed.scenario.applications import Application, Load, tables
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
_LIMIT = re.compile(r"\s*([\w.-]+)\s*([<>]=?)\s*(\S.*?)\s*")

Answers = Mapping[str, str]
"""The answers so far, by question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its possible answers.

    choices: description by answer; other answers are possible if `others` describes them. default: with the answers so
    far; None if the question does not apply. check: raises CellbedError for an answer that makes no sense.
    """

    text: str
    choices: Callable[[], dict[str, str]]
    others: str
    default: Callable[[Answers], str | None]
    check: Callable[[str], object]


def _kinds() -> dict[str, str]:
    return {kind: (inspect.getdoc(table) or "").partition("\n")[0] for kind, table in tables().items()}


def _backends() -> dict[str, Any]:
    return {get_args(each.model_fields["kind"].annotation)[0]: each for each in get_args(get_args(AnyBackend)[0])}


def _nodes() -> dict[str, str]:
    return {kind: (inspect.getdoc(each) or "").partition("\n")[0] for kind, each in _backends().items()}


def _networks() -> dict[str, str]:
    found = dict.fromkeys(open_archive().names(), "a link of the archive")
    return found | {name: "a radio link, generated" for name in PROFILES}


def _default_load(answers: Answers) -> str | None:
    table = tables()[answers["what"]]
    return table.usual_load if issubclass(table, Load) else None


def _check_kind(text: str) -> None:
    if text not in (names := list(tables())):
        raise CellbedError(f"no kind {quote(text)}: {did_you_mean(text, names)}write one of {', '.join(names)}")


def _place(text: str) -> tuple[str, str]:
    """Return kind and place of the node in ``[KIND] [at PLACE]``. Errors: :class:`CellbedError`."""
    kind, at, place = text.partition(" at ")
    kind, place = (kind.strip(), place.strip()) if at or kind in _backends() else ("namespace", kind.strip())
    place = place or _AT_TOWER
    if kind not in (kinds := _backends()):
        raise CellbedError(f"no kind of node {quote(kind)}: {did_you_mean(kind, kinds)}write one of {', '.join(kinds)}")
    if place not in PLACES:
        try:
            DURATION.parse(place)
        except UnitError:
            hint = did_you_mean(place, [*PLACES, *kinds])
            listed = f"a kind ({', '.join(kinds)}), a place ({', '.join(PLACES)}) or a one-way delay, '3 ms'"
            raise CellbedError(f"no place {quote(place)}: {hint}write {listed}") from None
    return kind, place


def _check_network(text: str) -> None:
    if text in (names := _networks()):
        return
    try:
        BIT_RATE.parse(text)
    except UnitError:
        hint = did_you_mean(text, names)
        raise CellbedError(
            f"no network {quote(text)}: {hint}write one of {', '.join(list(names)[:12])}, or a rate, '12 Mbit/s'"
        ) from None


def _arrivals(text: str) -> dict[str, str]:
    """Return the keys of a load: ``closed``, ``RATE`` or ``poisson RATE``. Errors: :class:`CellbedError`."""
    rate = text.removeprefix("poisson ")
    if text == "closed":
        return {"arrivals": "closed"}
    try:
        FREQUENCY.parse(rate)
    except UnitError as error:
        raise CellbedError(f"{error}; or 'poisson 8 /s', or 'closed'") from None
    return {"rate": rate, "arrivals": "poisson" if text != rate else "periodic"}


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
    "what": Question("What runs?", _kinds, "", lambda _: "image-classification", _check_kind),
    "where": Question(
        "On which kind of node?",
        _nodes,
        f"KIND at PLACE, with one of {', '.join(PLACES)} or a one-way delay",
        lambda _: f"namespace at {_AT_TOWER}",
        _place,
    ),
    "network": Question(
        "Over which network?", _networks, "a rate, '12 Mbit/s'", lambda _: "lte-suburban", _check_network
    ),
    "load": Question(
        "Which load, of each endpoint?",
        lambda: {"closed": "the next request follows the reply"},
        "a rate, '8 /s' or 'poisson 8 /s'",
        _default_load,
        _arrivals,
    ),
    "ask": Question(
        "What do you ask of it?",
        lambda: {NOTHING: "no expectation"},
        "limits, 'p99_latency < 300 ms, failed_share < 1 %'",
        lambda answers: NOTHING if _default_load(answers) is None else "p99_latency < 300 ms",
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
        if default is None:
            if text is not None:
                raise CellbedError(f"--{name}: the kind '{answers['what']}' has none: remove it")
            continue
        while name not in answers:
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


def save(path: Path, text: str, force: bool) -> None:
    """Check a scenario, and write it. Errors: :class:`CellbedError`; ``OSError``."""
    load_text(text, path)
    check_new(path, force)
    write_whole(path, text)


def write(file: Path, answers: Answers) -> str:
    """Return the text of a scenario. file: its path."""
    table = tables()[answers["what"]]
    kind, place = _place(answers["where"])
    group = "edge" if place == _AT_TOWER or place not in PLACES else "cloud"
    load = _arrivals(answers["load"]) if "load" in answers else {}
    completed = (file.parent / SCHEMA).exists()
    words = [word for name, answer in answers.items() for word in (f"--{name}", answer)]
    return f"#:schema ./{SCHEMA}\n" * completed + _TEMPLATE.format(
        about=_kinds()[answers["what"]],
        file=(path := printable(shlex.quote(str(file)))),
        command=printable(f"cellbed init {path} {shlex.join(words)}"),
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")[:64] or "scenario",
        endpoints=table.least_endpoints,
        group=group,
        backend=_backend(kind),
        link=_link(answers["network"]),
        core=f'{group} = "{place}"',
        kind=answers["what"],
        keys=_keys(table).replace('"edge"', f'"{group}"'),
        load="".join(f'{key} = "{value}"\n' for key, value in load.items()),
        expect=tomli_w.dumps(_limits(answers["ask"])) or '# p99_latency = "< 300 ms"\n',
    )


def _backend(kind: str) -> str:
    """Return the lines of a node group's back end; none for the default."""
    keys = {"kind": kind, **_required(_backends()[kind])}
    return f"backend = {_inline(keys)}\n" if kind != "namespace" else ""


def _link(network: str) -> str:
    if network in PROFILES:
        return f'kind = "radio"\nprofile = "{network}"'
    up, down = (f"{network}.up", f"{network}.down") if open_archive().has(network) else (network, network)
    return f'up = "{up}"\ndown = "{down}"\nbase_delay = "10 ms"             # one way'


def _keys(table: type[Application]) -> str:
    """Return the lines of an application: its starter, or its required keys with the values of their examples."""
    if table.starter:
        return table.starter
    keys = {"server": "edge"} | {key: value for key, value in _required(table).items() if key not in ("server", "on")}
    return "".join(f"{key} = {_inline(value)}\n" for key, value in keys.items())


def _required(table: Any) -> dict[str, Any]:
    """Return the required keys of a table with their first examples; of alternatives, the first."""
    extra = table.model_config.get("json_schema_extra")
    alternatives = extra.get("anyOf", [{}]) if isinstance(extra, dict) else [{}]
    needed = [*(name for name, each in table.model_fields.items() if each.is_required())]
    needed += alternatives[0].get("required", ())
    fields = {name: table.model_fields[name] for name in needed}
    return {name: each.examples[0] for name, each in fields.items() if each.examples}


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
{keys}{load}
[expect]                         # limits, which --check compares with the run
{expect}"""

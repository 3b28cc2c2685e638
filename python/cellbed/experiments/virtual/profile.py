"""Measured profiles: what the programs of an application take, and what its server answers, request by request.

A profile is read from a real run, of the user (``--profile RUN``) or of a short one over fast links that is made when
there is none (:func:`measured`), and kept in the user's cache. Only what does not depend on links is in it.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from cellbed import inputs
from cellbed.errors import CellbedError
from cellbed.user_folders import cache_folder
from cellbed.whole_files import write_whole
from cellbed.workloads.kind import SERVICE

if TYPE_CHECKING:
    import polars as pl

    from cellbed.experiments.run import Listener
    from cellbed.scenario import Scenario

FORMAT = 4
FILE = "profile.json"
OFFLOADING = ("image-classification", "translation")
KINDS = (*OFFLOADING, "http")
"""The kinds of application that have a model."""
_SECONDS, _SECONDS_OF_TRANSLATION = 20, 60
"""How long a profile is measured. Sentences take different times, so most of them must be in it."""
_RATES = {"image-classification": "5 /s", "translation": "2 /s", "http": "5 /s"}
"""Of requests to a profile: half of the time or more, the programs wait, as they usually do. One that is always busy is
faster than one that has to wake up."""
_FEWEST = 10
"""Requests that a profile needs."""

_NEAREST = 8
"""Samples of about the same size from which one is drawn."""

Sample = Mapping[str, Any]
"""What a request took, ns by part, and its answer."""

_PARTS = {
    # generator: from the intended time until the program is there. receive: from the last packet to the program.
    "generator": "generator",
    "receive": "endpoint_receive",
    "preprocessing": "preprocessing",
    "remote_stack": "remote_stack",
    "dispatch": "server_queue",
    "decode": "decode",
    "inference": "inference",
    "remote_reply": "remote_reply",
}
"""Parts of a profile, and of the latency of requests, of which each kind has some."""


_OFFLOADED = {"preprocessing", "remote_stack", "dispatch", "decode", "inference", "reply", "remote_reply"}
_OFFLOADED |= {"generator", "receive", "input", "bytes_up", "output"}
_SERVED = {"generator", "receive", "server", "services", "code", "bytes_down", "wire_down", "head", "kept"}
"""What each sample has, by the model of its kind."""


class ProfileError(CellbedError):
    """A profile that is missing, or that cannot be used."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The samples of each application, by its name.

    source: where they were measured, in words; measured: when. limited: whether they contain the effect of CPU limits.
    lost: requests without a reply meanwhile, of each application. disturbances: why the machine disturbed the
    measurement.
    """

    source: str
    applications: dict[str, list[dict[str, Any]]]
    limited: bool = False
    measured: str = ""
    lost: Mapping[str, int] = field(default_factory=dict)
    disturbances: Sequence[str] = ()

    @property
    def objections(self) -> list[str]:
        """Return why it is not the undisturbed time of programs, in words."""
        lost = [f"{count} requests of '{app}' got no reply" for app, count in self.lost.items() if count]
        return lost + [f"disturbed: {reason}" for reason in self.disturbances]

    @property
    def quality(self) -> str:
        """Return a sentence on where its samples come from and what may be wrong with them."""
        samples = ", ".join(f"{len(samples)} requests of '{app}'" for app, samples in self.applications.items())
        wrong = "; ".join(self.objections) or "none lost, not disturbed"
        return f"profile: {self.source}, {self.measured}: {samples}; {wrong}"

    @property
    def services(self) -> dict[str, tuple[str, ...]]:
        """Names of the spans that the services of each application report."""
        found = {
            app: {name: None for each in of for name in each.get("services", ())}
            for app, of in self.applications.items()
        }
        return {app: tuple(sorted(names)) for app, names in found.items() if names}

    def write(self, path: Path) -> None:
        """Write the profile as JSON."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False)
        write_whole(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


class Draw:
    """Draws a sample for each request, the same for the same seed and request.

    It is one of the same input where there is one, else one of those of about the same size.
    """

    def __init__(self, samples: list[dict[str, Any]], seed: int) -> None:
        self._samples, self._seed = samples, seed
        self._of_input: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for sample in samples:
            if "input" in sample:
                self._of_input[sample["input"]].append(sample)

    def sample(self, request: str, of_input: str | None = None, size: int = 0) -> Sample:
        """The sample of a request. request: its endpoint and number. size: of the payload of its input, bytes."""
        found = self._samples
        if of_input is not None:
            found = (
                self._of_input.get(of_input) or sorted(found, key=lambda each: abs(each["bytes_up"] - size))[:_NEAREST]
            )
        return random.Random(f"{self._seed}/{request}/profile").choice(found)


def read(path: Path) -> Profile:
    """The profile in a file, or of a run's folder. Raises ProfileError."""
    if path.is_dir() and not (path / FILE).exists():
        return of_run(path)
    file = path / FILE if path.is_dir() else path
    try:
        content = inputs.json_value(file)
        if (written := content.pop("format")) != FORMAT:
            raise ProfileError(f"{file}: format {written!r} where this version reads {FORMAT}")
        return TypeAdapter(Profile).validate_python(content)
    except OSError as error:
        raise ProfileError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ProfileError(f"{file}: not a profile: give the folder of a run, or a profile.json") from None


def of_run(run: Path) -> Profile:
    """The profile of a real run. Raises MeasureError where it cannot be read, ProfileError where it has too little."""
    import polars as pl

    from cellbed.measure.run_folder import read_run
    from cellbed.measure.summary import measure

    description = read_run(run)
    tables, summary = measure(run)
    requests = tables["requests"]
    heads = _heads(run, requests)
    applications: dict[str, list[dict[str, Any]]] = {}
    lost: dict[str, int] = {}
    for each in description.get("applications") or []:
        if each["kind"] not in KINDS:
            continue
        table = requests.filter(pl.col("app") == each["name"])
        lost[each["name"]] = len(table.filter(pl.col("status").is_in(["lost", "timed-out"])))
        table = table if each["kind"] in OFFLOADING else _alone(table)
        table = table.filter(pl.col("error").is_null(), pl.col("status").is_in(["ok", "late"]))
        kept = "order" in table.columns and bool(table["order"].max())
        services = each.get("services") or ()
        samples = [_sample(row, kept, heads, services) for row in table.iter_rows(named=True)]
        applications[each["name"]] = _without_queues([sample for sample in samples if sample is not None])
    limited, measured = bool(description.get("limits_enforced")), str(description.get("started") or "")
    return Profile(f"the run {run.name}", applications, limited, measured, lost, summary.disturbances)


def _alone(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the requests that were sent when all earlier replies of their connection had come, if they are enough:
    of others it is not known what their server took while it sent to others. Else all."""
    import polars as pl

    before = pl.col("reply_ns").cum_max().shift(1).over("endpoint", "local_port", order_by="sent_ns")
    found = requests.filter((before <= pl.col("sent_ns")).fill_null(value=True))
    return found if len(found) >= _FEWEST else requests


def _without_queues(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Samples without the time that requests waited for each other, which a prediction simulates: at most the median of
    those that found a worker idle."""
    if not samples:
        return samples
    usual = sorted(sample["generator"] for sample in samples)[len(samples) // 2]
    if "dispatch" not in samples[0]:
        return [sample | {"generator": min(sample["generator"], usual)} for sample in samples]
    before, idle = 0, []
    for sample in sorted(samples, key=lambda sample: sample["received"]):
        if sample["received"] >= before:
            idle.append(sample["dispatch"])
        before = max(before, sample["sent"])
    longest = sorted(idle)[len(idle) // 2]
    return [
        {key: value for key, value in sample.items() if key not in ("received", "sent")}
        | {"generator": min(sample["generator"], usual), "dispatch": min(sample["dispatch"], longest)}
        for sample in samples
    ]


def _heads(run: Path, requests: pl.DataFrame) -> dict[tuple[int, int], int]:
    """Return the payload of packets by their destination port and when they entered the network: those that begin
    replies. Of segments that entered together the first."""
    from cellbed.measure.packets import read_service_packets

    ports = requests["remote_port"].drop_nulls().unique().to_list()
    packets = read_service_packets(run / "raw" / "packets.bin", ports)
    packets = packets[packets["payload"] > 0][::-1]
    keys = zip(packets["destination_port"].tolist(), packets["arrived"].tolist(), strict=True)
    return dict(zip(keys, packets["payload"].tolist(), strict=True))


def _sample(
    row: Mapping[str, Any], kept: bool, heads: Mapping[tuple[int, int], int], services: Sequence[str]
) -> dict[str, Any] | None:
    """Return the sample of a request; None where one of its parts is unknown. services: spans of its server."""
    known = {name: row.get(f"part_{part}") for name, part in _PARTS.items()}
    parts: dict[str, Any] = {name: _ns(span) for name, span in known.items() if span is not None}
    if "inference" in parts:
        if not {"preprocessing", "decode"} <= parts.keys():
            return None
        # On the endpoint itself there are no stacks, but a hand-over on the way through the broker.
        parts.setdefault("remote_stack", _ns(row.get("part_handover")))
        parts.setdefault("remote_reply", _ns(row.get("part_return")) // 2)
        parts.setdefault("receive", _ns(row.get("part_return")) // 2)
        if row["reply_sent_ns"] is None:
            return None
        parts["reply"] = max(0, row["reply_sent_ns"] - row["compute_end_ns"])
        parts |= {"received": row["received_ns"], "sent": row["reply_sent_ns"]}
        return parts | {"input": row["input"], "bytes_up": row["bytes_up"], "output": row["output"] or ""}
    if row.get("part_server") is None or row.get("downlink_end") is None:
        return None
    spans = {part: row.get(f"part_{SERVICE}{part}") for part in services}
    parts["services"] = {name: _ns(span) for name, span in spans.items() if span}
    parts["server"] = _ns(row["part_server"]) + sum(parts["services"].values())
    wire = row["downlink_end"] - row["downlink_start"]
    head = heads.get((row["local_port"], row["downlink_entered_ns"]), wire)
    answer = {"code": row["code"], "bytes_down": row["bytes_down"], "wire_down": wire, "head": head}
    return parts | answer | {"kept": kept}


def _ns(span: float | None) -> int:
    return max(0, round(span * 1e9)) if span is not None else 0


def checked(profile: Profile, scenario: Scenario) -> Profile:
    """The profile, if it has enough of all applications of a scenario. Raises ProfileError."""
    for name, application in scenario.applications.items():
        if application.kind in KINDS:
            samples = profile.applications.get(name, [])
            if len(samples) < _FEWEST:
                raise ProfileError(
                    f"{profile.source} has {len(samples)} requests of '{name}' with all parts, and a profile needs "
                    f"{_FEWEST}: take the profile from a longer run of this scenario"
                )
            needed = _OFFLOADED if application.kind in OFFLOADING else _SERVED
            kinds = [other for other in (_OFFLOADED, _SERVED) if all(other <= sample.keys() for sample in samples)]
            if needed not in kinds:
                what = "is an application of another kind there" if kinds else "has requests without all parts there"
                raise ProfileError(f"{profile.source}: '{name}' {what}")
    return profile


def cached(text: str, folder: Path, *, limits: bool) -> Path:
    """Where the user's cache has the profile of the programs of a scenario, once it has been measured."""
    limits = _measures_limits(text, limits=limits)
    key = _key(_of_programs(text, limits=limits), folder, limits=limits)
    return cache_folder() / "profiles" / f"{key}.json"


def _measures_limits(text: str, *, limits: bool) -> bool:
    """Whether the profile is measured with the CPU limits of the scenario.

    They cost more than their quota: a service that computes all the time with the limit of one processor takes 3 %
    longer. But a profile that contains them has nothing of how requests compete for a quota, as those of an HTTP server
    do; a service with workers has a queue instead.
    """
    from cellbed.scenario.reader import tables

    kinds = {load.get("kind") for load in _loads(tables(text, "scenario"))}
    return limits and kinds <= set(OFFLOADING)


def measured(text: str, scenario: Scenario, folder: Path, listener: Listener, *, limits: bool) -> Profile:
    """The profile of a scenario, of the user's cache or measured now: its programs run over fast links, few requests
    at a time. text: of the scenario's file; folder: of its paths; limits: whether CPU limits apply to the prediction.

    Errors: :class:`CellbedError` where it cannot run here.
    """
    from cellbed.experiments.run import Options, run
    from cellbed.scenario.reader import parse
    from cellbed.testbed.plan import make_plan
    from cellbed.testbed.testbed import check

    if not any(application.kind in KINDS for application in scenario.applications.values()):
        return Profile("", {})
    place = cached(text, folder, limits=limits)
    limits = _measures_limits(text, limits=limits)
    if place.is_file():
        return checked(read(place), scenario)
    changed = _of_programs(text, limits=limits)
    short = parse(changed, source="the profile of the scenario", folder=folder)
    check(short, changed, "the profile of the scenario", running=True, limits=False)
    seconds = short.duration // 10**9
    listener.note(f"measuring what the programs take, once, for {seconds} s: {place}")
    with tempfile.TemporaryDirectory() as parent:
        outcome = run(changed, short, make_plan(short), Options(Path(parent), limits=limits, proof=False), listener)
        if outcome.error is not None:
            raise outcome.error
        if outcome.folder is None or outcome.status != "complete":
            raise KeyboardInterrupt
        found = checked(of_run(outcome.folder), scenario)
    return keep(replace(found, source=f"a run of {seconds} s over fast links"), place)


def keep(profile: Profile, place: Path) -> Profile:
    """Write a profile into the user's cache. Raises ProfileError for one with objections, which is written beside it:
    predictions take it only if the user names it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if profile.objections:
        refused = place.with_suffix(".refused.json")
        profile.write(refused)
        raise ProfileError(
            f"the profile that was measured is not used: {'; '.join(profile.objections)}\n"
            "repeat it when the machine is idle, take the profile of a run (--profile RUN), "
            f"or accept this one, with run or sweep: --profile {refused}"
        )
    profile.write(place)
    return profile


def _of_programs(text: str, *, limits: bool) -> str:
    """The scenario with one endpoint of each group, fast links, and few requests. limits: whether CPU limits apply."""
    import tomli_w

    from cellbed.scenario.reader import tables

    data = tables(text, "scenario")
    for key in ("faults", "cells", "transport", "description"):
        data.pop(key, None)
    kinds = {load.get("kind") for load in _loads(data)}
    translates, serves = "translation" in kinds, not kinds.isdisjoint(OFFLOADING)  # with a worker for each CPU
    seconds = _SECONDS_OF_TRANSLATION if translates else _SECONDS
    data |= {"name": "profile", "duration": f"{seconds} s", "seed": 1}
    for name, group in data.get("nodes", {}).items():
        for key in ("cell", "route", "stagger", "priority", "count", "core"):
            group.pop(key, None)
        if not limits and not serves:
            group |= {"cpus": 1.0, "memory": "1 GiB"}
        if group.get("class", name) not in ("edge", "cloud"):
            group.pop("link", None)
    queue = {"kind": "droptail", "limit": "10 MB"}
    fast = {"up": "1 Gbit/s", "down": "1 Gbit/s", "base_delay": "1 ms", "queue": queue}
    data["links"] = {"mobile": fast, "core": {"edge": "1 ms", "cloud": "1 ms"}}
    for name, load in list(data.get("apps", {}).items()):
        # Of programs, only servers that others may use.
        if load.get("kind") == "program" and load.pop("client", None) is not None and "server" not in load:
            del data["apps"][name]
    for load in _loads(data):
        for key in ("start", "stop", "rate", "policy", "timeout", "drain", "edge_policy", "state", "connections"):
            load.pop(key, None)
        if load.get("kind") in KINDS:
            load |= {"arrivals": "poisson", "rate": _RATES[load["kind"]]}
    return tomli_w.dumps(data)


def _loads(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [data["workload"]] if "workload" in data else list(data.get("apps", {}).values())


def _key(text: str, folder: Path, *, limits: bool) -> str:
    """What a profile depends on: programs and their inputs, this version and this machine. limits: whether it contains
    the effect of CPU limits."""
    from cellbed.scenario.reader import tables
    from cellbed.testbed.folder import processor

    content = [FORMAT, version("cellbed"), processor(), limits, text]
    for load in _loads(tables(text, "scenario")):
        paths = [folder / str(load[key]) for key in ("model", "body_file") if key in load]
        roles = [load[role] for role in ("server", "client") if isinstance(load.get(role), dict)]
        copied = [folder / source for role in roles for source in role.get("copy_in", {})]
        paths += [each for path in copied for each in (path, *sorted(path.rglob("*")))]
        content += [f"{path.resolve()}:{path.stat().st_mtime_ns}" for path in paths if path.exists()]
    return hashlib.sha256("\n".join(map(str, content)).encode()).hexdigest()[:16]

"""Measured profiles: times of the programs of an application, and replies of its server, request by request.

A profile is read from a real run and kept in the user's cache. The user gives the run (``--profile RUN``), or a short
run over fast links is made (:func:`measure_profile`). A profile contains only values that do not depend on links.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from cellbed.experiments.virtual import migrations
from cellbed.support.errors import CellbedError
from cellbed.support.user_folders import cache_folder
from cellbed.support.whole_files import write_whole
from cellbed.workloads.registry import samplings
from cellbed.workloads.virtual.model import FEWEST, Sampling
from cellbed_node import inputs
from cellbed_node.temporary import temporary_folder

if TYPE_CHECKING:
    from cellbed.experiments.listener import Listener
    from cellbed.scenario import Scenario

FORMAT = 6
FILE = "profile.json"
_LEFT_OUT = ["start", "stop", "rate", "policy", "timeout", "deadline", "drain", "edge_policy", "state", "balance"]
"""Keys of applications that do not affect a profile."""
_SECONDS = 20
"""Duration of the measuring run if only servers of users run, seconds."""


class ProfileError(CellbedError):
    """A profile that is missing, or that cannot be used."""


@dataclass(frozen=True)
class Profile:
    """The samples of each application, by its name.

    source: description of the measured run; measured: its date. limited: whether samples include the effect of CPU
    limits. lost: number of requests without a reply in this run, by application. disturbances: reasons why the machine
    disturbed the measurement. unusable: reasons why applications have no samples. migrations: parameters of the run's
    migrations, and their ``compression``, by application and strategy.
    """

    source: str
    applications: dict[str, list[dict[str, Any]]]
    limited: bool = False
    measured: str = ""
    lost: Mapping[str, int] = field(default_factory=dict)
    disturbances: Sequence[str] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)
    migrations: Mapping[str, dict[str, int]] = field(default_factory=dict)

    @property
    def objections(self) -> list[str]:
        """Return sentences on why the profile is not the undisturbed time of programs."""
        lost = [f"{count} requests of '{app}' got no reply" for app, count in self.lost.items() if count]
        return lost + [f"disturbed: {reason}" for reason in self.disturbances]

    @property
    def quality(self) -> str:
        """Return a sentence on the origin of the samples and their possible faults."""
        samples = ", ".join(f"{len(samples)} requests of '{app}'" for app, samples in self.applications.items())
        wrong = "; ".join(self.objections) or "none of them lost, not disturbed"
        return f"profile: {self.source}, {self.measured}: {samples}; {wrong}"

    @property
    def services(self) -> dict[str, tuple[str, ...]]:
        """Names of the spans that the services of each application report."""
        found = {
            app: {name: None for each in of for name in each.get("services", ())}
            for app, of in self.applications.items()
        }
        return {app: tuple(sorted(names)) for app, names in found.items() if names}

    @cached_property
    def _text(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False) + "\n"

    def write(self, path: Path) -> None:
        """Write the profile as JSON."""
        write_whole(path, self._text)


def read(path: Path) -> Profile:
    """Return the profile in a file, or the profile of a run's folder. Raises ProfileError."""
    files = [each.stat() for each in (path, *path.glob("*.json"), *path.glob("raw/*")) if each.exists()]
    return _read(path, tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in files))


@lru_cache(maxsize=1)  # the trials of a sweep have the same profile
def _read(path: Path, _stamps: tuple[tuple[int, int, int], ...]) -> Profile:
    if path.is_dir() and not (path / FILE).exists():
        return extract_profile(path)
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


def extract_profile(run: Path) -> Profile:
    """Return the profile of a real run. Raises MeasureError for an unreadable run, ProfileError for one with too few
    requests."""
    import polars as pl

    from cellbed.measure.packets import read_service_packets
    from cellbed.measure.run_folder import read_run
    from cellbed.measure.summary import measure

    description = read_run(run)
    tables, summary = measure(run)
    moves = [each for each in description.get("migrations") or [] if each.get("end_s") is not None]
    requests = tables["requests"]
    for each in moves:
        # Requests that met a migration have waited for it.
        own, met = pl.col("app") == each["app"], pl.col("intended_s") + pl.col("latency_s").fill_null(0.0)
        during = (pl.col("intended_s") < each["end_s"]) & (met > each["begin_s"])
        requests = requests.filter(~(own & during).fill_null(value=False))
    packets = partial(read_service_packets, run / "raw" / "packets.bin")
    known = samplings()
    applications: dict[str, list[dict[str, Any]]] = {}
    lost: dict[str, int] = {}
    unusable: dict[str, str] = {}
    found = description.get("applications") or []
    objects = {each.get("consists_of") for each in found}
    for each in found:
        if each["kind"] not in known or each["name"] in objects:
            continue
        table = requests.filter(pl.col("app") == each["name"])
        lost[each["name"]] = len(table.filter(pl.col("status").is_in(["lost", "timed-out"])))
        messages = tables["messages"].filter(pl.col("app") == each["name"])
        try:
            applications[each["name"]] = known[each["kind"]].samples(each, table, messages, packets)
        except CellbedError as error:
            unusable[each["name"]] = str(error)
    limited, measured = bool(description.get("limits_enforced")), str(description.get("started") or "")
    parameters = {
        f"{each['app']} {each['strategy']}": {
            **migrations.read_parameters(each),
            "compression": each.get("compression") or 0,
        }
        for each in moves
        if each.get("failed") is None
    }
    source = f"the run {run.name}"
    return Profile(source, applications, limited, measured, lost, summary.disturbances, unusable, parameters)


def check_profile(profile: Profile, scenario: Scenario) -> Profile:
    """Return the profile if it has enough samples of all applications of a scenario. Raises ProfileError."""
    known = samplings()
    for name, application in scenario.applications.items():
        if name in profile.unusable:
            raise ProfileError(f"{profile.source}: {profile.unusable[name]}")
        if application.kind in known:
            samples = profile.applications.get(name, [])
            if len(samples) < FEWEST:
                raise ProfileError(
                    f"{profile.source} has {len(samples)} requests of '{name}' with all parts, and a profile needs "
                    f"{FEWEST}: take the profile from a longer run of this scenario"
                )
            if not _complete(samples, known[application.kind]):
                is_other = any(_complete(samples, each) for each in known.values())
                what = "is an application of another kind there" if is_other else "has requests without all parts there"
                raise ProfileError(f"{profile.source}: '{name}' {what}")
    return profile


def _complete(samples: Sequence[Mapping[str, Any]], sampling: Sampling) -> bool:
    """Return whether samples have all parts of a kind."""
    return all(sampling.keys <= sample.keys() for sample in samples)


def cache_path(text: str, folder: Path, *, limits: bool) -> Path:
    """Return the path in the user's cache for the profile of a scenario's programs, whether measured or not."""
    limits = _measures_limits(text, limits=limits)
    key = _key(_reduce_to_programs(text, limits=limits), folder, limits=limits)
    return cache_folder() / "profiles" / f"{key}.json"


def _measures_limits(text: str, *, limits: bool) -> bool:
    """Return whether the profile is measured with the CPU limits of the scenario (``Sampling.queued``)."""
    from cellbed.scenario.reader import tables

    known = samplings()
    kinds = {load.get("kind") for load in _loads(tables(text, "scenario"))}
    return limits and all(kind in known and known[kind].queued for kind in kinds)


def measure_profile(text: str, scenario: Scenario, folder: Path, listener: Listener, *, limits: bool) -> Profile:
    """Return the profile of a scenario, from the user's cache or measured now: its programs run over fast links, with
    few requests at a time. text: content of the scenario's file; folder: base of its paths; limits: whether CPU limits
    apply to the prediction.

    Errors: :class:`CellbedError` if the scenario cannot run here.
    """
    from cellbed.experiments.real_run import Options, run
    from cellbed.scenario.reader import parse
    from cellbed.testbed.plan import make_plan
    from cellbed.testbed.testbed import check

    if not any(application.kind in samplings() for application in scenario.applications.values()):
        return Profile("", {})
    place = cache_path(text, folder, limits=limits)
    limits = _measures_limits(text, limits=limits)
    if place.is_file():
        return check_profile(read(place), scenario)
    changed = _reduce_to_programs(text, limits=limits)
    short = parse(changed, source="the profile of the scenario", folder=folder)
    check(short, changed, "the profile of the scenario", running=True, limits=False)
    seconds = short.duration // 10**9
    listener.note(f"measuring what the programs take, once, for {seconds} s: {place}")
    with temporary_folder() as parent:
        outcome = run(changed, make_plan(short), Options(parent, limits=limits, proof=False), listener)
        if outcome.error is not None:
            raise outcome.error
        if outcome.folder is None or outcome.status != "complete":
            raise KeyboardInterrupt
        found = check_profile(extract_profile(outcome.folder), scenario)
    return keep(replace(found, source=f"a run of {seconds} s over fast links"), place)


def keep(profile: Profile, place: Path) -> Profile:
    """Write a profile into the user's cache. Raises ProfileError for a profile with objections, written next to
    `place`: predictions use it only if the user names it."""
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


def _reduce_to_programs(text: str, *, limits: bool) -> str:
    """Return the scenario with one endpoint per group, fast links, and few requests. limits: whether CPU limits
    apply."""
    import tomli_w

    from cellbed.scenario.reader import tables
    from cellbed.scenario.roles import OF_TCP

    data = tables(text, "scenario")
    for key in ("faults", "migrations", "cells", "transport", "description", "expect", "skip", "packet_log"):
        data.pop(key, None)
    known = samplings()
    present = [known[load["kind"]] for load in _loads(data) if load.get("kind") in known]
    seconds = max((each.seconds for each in present), default=_SECONDS)
    data |= {"name": "profile", "duration": f"{seconds} s", "seed": 1}
    for name, group in data.get("nodes", {}).items():
        for key in ("cell", "route", "stagger", "priority", "count", "core", "speed"):
            group.pop(key, None)
        # A queued service has a worker for each CPU.
        if not limits and not any(each.queued for each in present):
            group |= {"cpus": 1.0, "memory": "1 GiB"}
        if group.get("class", name) not in ("edge", "cloud"):
            group.pop("link", None)
    queue = {"kind": "droptail", "limit": "10 MB"}
    fast = {"up": "1 Gbit/s", "down": "1 Gbit/s", "base_delay": "1 ms", "queue": queue}
    data["links"] = {"mobile": fast, "core": {"edge": "1 ms", "cloud": "1 ms"}}
    data["sites"] = {name: site | {"core": "1 ms"} for name, site in data.get("sites", {}).items()}
    for name, load in list(data.get("apps", {}).items()):
        # Applications without profile keep only servers, because others may use them.
        if load.get("kind") not in known and load.pop("client", None) is not None and "server" not in load:
            del data["apps"][name]
    for load in _loads(data):
        sampling = known.get(load.get("kind", ""))
        for key in (*_LEFT_OUT, *(sampling.load if sampling is not None else ())):
            load.pop(key, None)
        for role in [load[role] for role in ("server", "client") if isinstance(load.get(role), dict)]:
            for key in OF_TCP:
                role.pop(key, None)
        if sampling is not None:
            arrivals = sampling.arrivals(load)
            load |= {"arrivals": arrivals} if arrivals else {"arrivals": "poisson", "rate": sampling.rate}
    return tomli_w.dumps(data)


def _loads(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [data["workload"]] if "workload" in data else list(data.get("apps", {}).values())


def _key(text: str, folder: Path, *, limits: bool) -> str:
    """Return a hash of all that affects a profile: programs and their inputs, this version and this machine. limits:
    whether the profile includes the effect of CPU limits."""
    from cellbed.scenario.reader import tables
    from cellbed.testbed.programs.environment import processor

    known = samplings()
    content = [FORMAT, version("cellbed"), processor(), limits, text]
    for load in _loads(tables(text, "scenario")):
        files = known[load["kind"]].files if load.get("kind") in known else ()
        paths = [folder / str(load[key]) for key in files if key in load]
        roles = [load[role] for role in ("server", "client") if isinstance(load.get(role), dict)]
        copied = [folder / source for role in roles for source in role.get("copy_in", {})]
        paths += [each for path in copied for each in (path, *sorted(path.rglob("*")))]
        content += [f"{path.resolve()}:{path.stat().st_mtime_ns}" for path in paths if path.exists()]
    return hashlib.sha256("\n".join(map(str, content)).encode()).hexdigest()[:16]

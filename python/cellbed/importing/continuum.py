"""Configurations of Continuum, INI or YAML: nodes, links and the benchmark as a scenario.

All formats are reduced to the settings of Continuum's INI file: the branch for Mahimahi, experiments in YAML with their
profiles, layers in YAML, and the structure in the thesis (Mishchenko, 2025, Listing 1). Continuum delays and limits
each pair of nodes; a scenario has the same end-to-end values on mobile links, core links and sites.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, cast

import tomli_w

from cellbed.importing.documents import Items, Map, Place, as_text, documents, read_text
from cellbed.importing.services import Level, Note, is_there
from cellbed.importing.writing import Choices, Written, comment, summary
from cellbed.scenario.nodes import CLASSES, NodeClass
from cellbed.scenario.places import PLACES
from cellbed.support.units import SIZE

_TIER = "(cloud|edge|endpoint)"
_NAMES = [(re.compile(path), name) for path, name in (
    (r"(?:infrastructure|benchmark|execution_model)\.(\w+)", r"\1"),
    (r"(?:infrastructure\.network|network\.mobile)\.(?:overrides\.)?(\w+)", r"\1"),
    (rf"infrastructure\.clusters\.{_TIER}\.resources\.vms\.(?:spec\.)?(\w+)", r"\1_\2"),
    (rf"layer\.{_TIER}\.infrastructure\.\w+\.(\w+)", r"\1_\2"),
    (rf"layer\.{_TIER}\.(?:infrastructure\.)?(?:\w+\.)?network\.preset", "wireless_network_preset"),
    (rf"layer\.{_TIER}\.(?:infrastructure\.)?(?:\w+\.)?network\.link\.{_TIER}\.(\w+)", r"\1_\2_\3"),
    (rf"compute\.{_TIER}\.(\w+)", r"\1_\2"),
    (rf"network\.core\.{_TIER}_deployment", r"\1_location"),
    (r"benchmark\.(?:pipeline\.)?0\.(?:config\.)?(\w+)", r"\1"),
    (r"benchmark\.pipeline\.0\.assign_to\.match\.cluster", "assigned"),
    (r"benchmark\.0\.layer\.(?:cloud|edge)\.(\w+)", r"application_worker_\1"),
    (r"benchmark\.0\.layer\.endpoint\.(\w+)", r"application_endpoint_\1"),
    ("emulation", "network_emulation"), ("wireless_preset", "wireless_network_preset"), ("type", "application"),
    ("software", "resource_manager"), (rf"{_TIER}_count", r"\1_nodes"), (rf"{_TIER}_cpu_count", r"\1_cores"),
    (rf"{_TIER}_(?:memory_gb|ram)", r"\1_memory"), (rf"{_TIER}_cpu_quota", r"\1_quota"),
    (rf"{_TIER}_\1_(\w+)", r"\1_\2"), (r"edge_cloud_(\w+)", r"cloud_edge_\1"),
    (r"endpoint_(cloud|edge)_(\w+)", r"\1_endpoint_\2"),
    (r"application_(worker|endpoint)_cores", r"application_\1_cpu"),
    (r"application_worker_(?:deployments|instances)", "applications_per_worker"),
)]  # fmt: skip
_STRUCTURE = re.compile(
    rf"(?:layer|benchmark\.0\.layer)\.{_TIER}\.name|layer\..*\.destination|benchmark\.pipeline\.0\.id"
    rf"|infrastructure\.clusters\.{_TIER}\.(?:id|tier)|software\..*\.(?:id|assign_to\..*)"
)
_MANAGER = re.compile(rf"software\.modules\.\d+\.type|layer\.{_TIER}\.software\.\d+\.name")
_CONTROLLED = ("kubernetes", "kubeedge", "kubecontrol", "kube_kata")
_UNNEEDED = re.compile(
    r"schema_version|kind|run\..*|.*\.tags\..*|(?:.*\.)?(?:assigned|base_path|delete|delete_on_exit|docker_pull"
    r"|infra_only|(?:middle|prefix)(?:ip)?(?:_base)?|netperf|resource_manager_only)"
)
_OFF = ("", "0", "0.0", "false", "no", "none", "off")
_REASONS = {
    "cpu_pin": "nodes share the machine's CPUs under their limits",
    "external_physical_machines": "one machine; other machines are nodes with backend = { kind = 'host' }",
    "provider": "nodes are namespaces; other kinds are set by `backend`",
    **dict.fromkeys(("resource_manager", "model", "cache_worker"), "programs run without Kubernetes"),
    **dict.fromkeys(("use.environment", "use.software"), "a profile is another file: write its name after this one's"),
}
_RATES = {"4g": 7.21, "5g": 29.66}
"""Throughput of endpoints by Continuum's presets, Mbit/s."""
_LATENCIES = {"edge": (7.5, 2.5), "cloud": (45.0, 5.0)}
"""One-way delay between endpoints and a tier by the same presets, and its deviation, ms."""
_INTERNAL = {"edge": 7.5, "cloud": 0.0}
"""One-way delay between two nodes of a tier, ms."""
_RECORDED = {
    **dict.fromkeys(("4g_us_verizon_mahimahi", "evdo_us_verizon_mahimahi"), ("lte-suburban", "mahimahi")),
    "lte_nl_kpn_mahimahi": ("lte-suburban", "kpn"),
    **dict.fromkeys(("5g_nl_kpn_mahimahi", "5g_obstacled_nl_kpn_mahimahi"), ("5g-midband", "kpn")),
}
"""Available trace and data set of the recording, by preset of Continuum's branch for Mahimahi."""
_PLACES = {"base": "base-edge", "local": "eu-central-1", "regional": "eu-west-3", "transcontinental": "us-east-1",
           "aws-vodafone": "base-edge", "aws-vodafone-edge": "base-edge"}  # fmt: skip
_KINDS = {"image_classification": "image-classification", "text_translation": "translation"}
_MOST = 2000
_INI = re.compile(r"(?:[^\S\n]*(?:[#;].*)?\n)*[^\S\n]*\[")
_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,12})?)\s*([kmgt]?)i?b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Setting:
    place: Place
    key: str
    value: str


@dataclass(slots=True)
class _Path:
    """Path between an endpoint and a tier. Delays are one way, in ms; rates in Mbit/s.

    location: a place behind the core network, which has the delay. is_given: no delay of the preset. varied:
    the setting of the deviation. port: delay between the switch of the tier and a node, beyond `delay`. internal_rate:
    rate of that part; 0 without a switch.
    """

    location: str | None
    delay: float
    deviation: float
    rate: float
    is_given: bool
    varied: _Setting | None
    port: float = 0.0
    internal_rate: float = 0.0


def read_continuum(paths: Sequence[Path], choices: Choices, command: str) -> Written:
    """Return the scenario of a configuration of Continuum; YAML profiles may follow it.

    Raises ImportedFileError for a file that is neither INI nor YAML, and for one without nodes.
    """
    reader = _Reader(choices, paths[0])
    for path in paths:
        reader.add(list(islice(_settings(path), _MOST + 1)))
    tables = reader.scenario()
    reader.close()
    head = comment(f"Made by: {command}", summary(reader.notes), *map(str, reader.notes))
    nodes: dict[str, tuple[str, NodeClass]] = {name: (name, cast(NodeClass, name)) for name in tables["nodes"]}
    return Written(f"{head}\n{tomli_w.dumps(tables)}", nodes, {}, reader.notes)


def _settings(path: Path) -> Iterator[_Setting]:
    text = read_text(path)
    if _INI.match(text):
        yield from _ini(text, str(path))
        return
    for document in documents(text, str(path)):
        if not isinstance(document, Map):
            raise Place(str(path), 1).error("not a configuration of Continuum: sections in INI or YAML are needed")
        yield from _leaves(document, "", document.place)


def _ini(text: str, source: str) -> Iterator[_Setting]:
    """Yield the settings of an INI file. A line without a value begins a group of [compute] and [network]."""
    section, group = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        line = "" if line.lstrip().startswith(";") else line.partition("#")[0].strip()
        key, separator, value = re.fullmatch(r"([^=:]*)([=:]?)(.*)", line).groups()  # type: ignore[union-attr]
        if line.startswith("["):
            section, group = line.strip("[] ")[:80].lower(), ""
        elif line and not separator and section in ("compute", "network"):
            group = f"{line[:80].lower()}."
        elif line:
            path = f"{section}.{group}{key.strip()[:80].lower()}"
            yield _Setting(Place(source, number), path, value.strip(" \t\r\"'") if separator else "no value")


def _leaves(value: Any, path: str, place: Place) -> Iterator[_Setting]:
    """Yield the scalars of a YAML document. An entry of a list that names a tier is found under this name."""
    if isinstance(value, Map):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key[:80]}"[:240].lower(), value.places[key])
    elif isinstance(value, Items):
        for index, (inner, where) in enumerate(zip(value, value.places, strict=True)):
            names = [inner.get(key) for key in ("tier", "name", "destination")] if isinstance(inner, Map) else []
            tier = next((each for each in names if each in CLASSES), index)
            yield from _leaves(inner, f"{path}.{tier}", where)
    else:
        yield _Setting(place, path.lstrip("."), as_text(value))


def _canonical(setting: _Setting) -> str:
    """Return the name of a setting in Continuum's INI file; its path if it has none."""
    path = setting.key
    if _MANAGER.fullmatch(path) and setting.value in (*_CONTROLLED, "mist", "none"):
        return "resource_manager"
    for pattern, name in _NAMES:
        if match := pattern.fullmatch(path):
            path = match.expand(name)
    return path


def _text(number: float, unit: str) -> str:
    """Return a quantity without the exponent that other formats have."""
    return f"{round(number, 4):.10g} {unit}"


class _Reader:
    """Settings by their names in Continuum's INI file."""

    def __init__(self, choices: Choices, path: Path) -> None:
        self.choices, self.path, self.notes = choices, path, list[Note]()
        self.settings: dict[str, _Setting] = {}
        """Settings that are not read yet."""
        self._ids: dict[str, str] = {}

    def add(self, settings: list[_Setting]) -> None:
        """Add the settings of a file. The first value of a setting applies; numbers of nodes are added."""
        if len(settings) > _MOST:
            raise settings[_MOST].place.error(f"more than {_MOST} settings: no configuration of Continuum is so long")
        for setting in settings:
            if match := re.fullmatch(rf"infrastructure\.clusters\.{_TIER}\.id", setting.key):
                self._ids[setting.value] = match[1]
            if _STRUCTURE.fullmatch(setting.key):
                continue
            if re.match(r"network\.|layer\..*network\.", setting.key) and setting.value not in _OFF:
                self.settings.setdefault("network_emulation", _Setting(setting.place, setting.key, "true"))
            name = _canonical(setting)
            is_count = re.fullmatch(rf"{_TIER}_nodes", name)
            if is_count and not re.fullmatch("[0-9]{1,9}", setting.value):
                text = f"{setting.key}: '{setting.value[:40]}' is not a number of nodes: write digits, such as 2"
                raise setting.place.error(text)
            before = self.settings.setdefault(name, setting)
            if is_count and before is not setting:
                self.settings[name] = replace(before, value=str(int(before.value) + int(setting.value)))
            elif before.value != setting.value:
                self.note("differs", setting, f"line {before.place.line} has another value, which applies")

    def close(self) -> None:
        """Note each setting that was not read."""
        for name, setting in self.settings.items():
            if _UNNEEDED.fullmatch(name) or setting.value.lower() in _OFF:
                self.note("not needed", setting, "does not affect a run")
            else:
                last = name if name in _REASONS else name.rpartition(".")[2]
                self.note("not mapped", setting, _REASONS.get(last, "a scenario has no counterpart of this key"))

    def note(self, level: Level, setting: _Setting, text: str) -> None:
        """Add a note on a setting."""
        self.notes.append(Note(level, setting.place, setting.key, text))

    def number(self, name: str, default: float, low: float, high: float, unit: str = "") -> float:
        """Return a number; the default if the setting is missing. unit: default unit, a letter of `_AMOUNT`."""
        setting = self.settings.pop(name, None)
        if setting is None:
            return default
        match = _AMOUNT.fullmatch(setting.value)
        if match is None or (match[2] and not unit):
            self.note("differs", setting, f"'{setting.value[:40]}' is not a number: {default:g} is used")
            return default
        power = "kmgt".index(match[2].lower()) - "kmgt".index(unit) if match[2] else 0
        found = round(float(match[1]) * 1024.0**power, 4)
        if not low <= found <= high:
            self.note("differs", setting, f"a scenario has {low:g} to {high:g}")
        return min(max(found, low), high)

    def exists(self, name: str) -> bool:
        """Return whether a setting is there and not off."""
        return name in self.settings and self.settings[name].value.lower() not in _OFF

    def set_aside(self, names: str, text: str) -> None:
        """Note the settings that match a pattern as not needed."""
        for name in [name for name in self.settings if re.fullmatch(names, name)]:
            self.note("not needed", self.settings.pop(name), text)

    def scenario(self) -> dict[str, Any]:
        """Return the tables of the scenario."""
        place = next((setting.place for setting in self.settings.values()), Place(str(self.path), 1))
        counts: dict[str, int] = {tier: round(self.number(f"{tier}_nodes", 0, 0, 1000)) for tier in CLASSES}
        if not any(counts.values()):
            raise place.error("no nodes: write cloud_nodes, edge_nodes or endpoint_nodes in [infrastructure]")
        manager = self.settings.get("resource_manager")
        if manager is not None and manager.value in _CONTROLLED and counts["cloud"] and sum(counts.values()) > 1:
            self.note("differs", manager, "the control plane, which is one of the cloud nodes, has no node here")
            counts["cloud"] -= 1
        for tier, number in counts.items():
            if number == 0:
                self.set_aside(rf"{tier}_.*|.*_{tier}_.*", f"there is no {tier} node")
            elif number == 1:
                self.set_aside(rf"{tier}_(?:latency_\w+|throughput)", f"there is one {tier} node")
        assigned = self._ids.get(self.settings["assigned"].value, "") if "assigned" in self.settings else ""
        server = next(tier for tier in (assigned, "edge", "cloud", "endpoint") if counts.get(tier))
        app, workers = self._application(server, counts)
        duration = self.number("duration", 300 if app else 60, 1, 86_400)
        nodes = {tier: self._node(tier, counts[tier], server, workers) for tier in CLASSES if counts[tier]}
        network = self._network(counts, server)
        for tier in network.get("sites", {}):
            nodes[tier]["site"] = tier
        return {
            "name": re.sub(r"[^A-Za-z0-9._-]+", "-", self.path.stem).strip("-._")[:64] or "continuum",
            "duration": self.choices.duration or f"{duration:g} s",
            "nodes": nodes,
            **network,
            **({"apps": {"benchmark": app}} if app else {}),
        }

    def _application(self, server: str, counts: Mapping[str, int]) -> tuple[dict[str, Any], int]:
        """Return the table of the application, empty if there is none, and the number of its instances per node."""
        if self.exists("infra_only") or self.exists("resource_manager_only"):
            self.set_aside("application|frequency|duration|sleep_time", "no benchmark is run")
        setting = self.settings.pop("application", None)
        if setting is None:
            return {}, 1
        known = get_close_matches(setting.value[:40], [*_KINDS, "empty", "empty_kata"], 1, 0.9)
        kind = _KINDS.get(known[0]) if known else None
        if not known or (kind is not None and not counts["endpoint"]):
            text = "no kind of application is like it: write one in [apps]" if not known else "there is no endpoint"
            self.note("not mapped", setting, text)
            return {}, 1
        workers = round(self.number("applications_per_worker", 1, 1, 1024))
        if kind is None:
            self.note("differs", setting, "a program that sleeps on each node; its deployment is not measured")
            command = f"sleep {self.number('sleep_time', 30, 1, 86_400):g}"
            return {"kind": "program", "client": {"on": server, "command": command}}, workers
        rate = f"{self.number('frequency', 1, 0.001, 10_000):g} /s"
        more = {"workers": workers} if workers > 1 else {}
        return {"kind": kind, "client": "endpoint", "server": server, "rate": rate, **more}, workers

    def _node(self, tier: str, count: int, server: str, workers: int) -> dict[str, Any]:
        """Return the table of a tier: what a virtual machine has, or its part that the benchmark may use."""
        cpus = self.number(f"{tier}_cores", self.choices.cpus, 0.1, 1024) * self.number(f"{tier}_quota", 1, 0.01, 1)
        memory = self.number(f"{tier}_memory", self.choices.memory / 2**30, 2**-4, 2**14, "g")
        if tier in ("endpoint", server):
            role, each = ("endpoint", 1) if tier == "endpoint" else ("worker", workers)
            cpus = min(cpus, each * self.number(f"application_{role}_cpu", cpus, 0.001, 1024))
            memory = min(memory, each * self.number(f"application_{role}_memory", memory, 0.001, 2**14, "g"))
        table = {"class": tier, "cpus": max(cpus, 0.1), "memory": SIZE.format(max(round(memory * 2**10), 64) << 20)}
        return {**({"count": count} if count > 1 else {}), **table}

    def _network(self, counts: Mapping[str, int], server: str) -> dict[str, Any]:
        """Return the tables of links and sites, whose delays add up to Continuum's between each two tiers."""
        tiers = [tier for tier in ("edge", "cloud") if counts[tier]]
        emulation, is_traced = self.settings.pop("network_emulation", None), self.exists("up_trace")
        mobile: dict[str, Any] = {way: self._capacity(way) for way in ("up", "down")}
        core, sites = dict[str, Any](), dict[str, Any]()
        if emulation is None or emulation.value.lower() in _OFF:
            self.set_aside(r".*(?:latency|throughput|location|preset).*", "network emulation is off")
            mobile = {way: capacity or "unlimited" for way, capacity in mobile.items()} | {"base_delay": "0 s"}
            core = dict.fromkeys(tiers, "0 s")
        else:
            origin = self.settings.get("wireless_network_preset", emulation)
            preset = self._preset(is_traced=is_traced)
            paths = {tier: self._path(tier, counts[tier], preset) for tier in tiers}
            shared = self._share(paths)
            top = max((path.rate for path in paths.values()), default=_RATES.get(preset, 1000.0))
            for tier, path in paths.items():
                link: Any = path.location or _text(path.delay - shared, "ms")
                if path.rate < top or (path.rate < 1000 and preset not in _RATES):
                    link = {"kind": "delay", "delay": link, "rate": _text(path.rate, "Mbit/s")}
                if path.internal_rate:
                    sites[tier] = {
                        "core": link,
                        "delay": _text(path.port, "ms"),
                        "rate": _text(path.internal_rate, "Mbit/s"),
                    }
                else:
                    core[tier] = link
            trace = _RECORDED.get(preset, ("", ""))[0]
            usual = {way: f"{trace}.{way}" if trace else _text(top, "Mbit/s") for way in mobile}
            deviation = paths[server].deviation if server in paths else 0.0
            for tier, path in paths.items():
                if path.deviation != deviation:
                    text = f"{path.deviation:g} ms to {tier}: the mobile link varies as between endpoint and {server}"
                    self.note("differs", path.varied or origin, text)
            delay: Any = _text(shared, "ms")
            if deviation:
                delay = {"kind": "normal", "mean": delay, "deviation": _text(deviation, "ms"), "reorder": True}
            queue = {"kind": "droptail", "limit": "1000 packets"} if preset in _RATES else {"kind": "infinite"}
            mobile = {way: mobile[way] or usual[way] for way in usual} | {"base_delay": delay, "queue": queue}
        links = {**({"mobile": mobile} if counts["endpoint"] else {}), **({"core": core} if core else {})}
        return {"links": links, **({"sites": sites} if sites else {})}

    def _capacity(self, way: str) -> str | None:
        """Return the chosen capacity, else the trace that the file names, relative to the scenario; None without."""
        setting, out = self.settings.pop(f"{way}_trace", None), self.choices.out
        chosen: str | None = getattr(self.choices, way)
        if chosen is not None or setting is None:
            return chosen
        path = self.path.parent / setting.value
        if is_there(path):
            return os.path.relpath(path, out.absolute().parent if out else None)
        self.note("not mapped", setting, f"no such file, 5g-midband.{way} is used: choose another by --{way}")
        return f"5g-midband.{way}"

    def _preset(self, *, is_traced: bool) -> str:
        """Return Continuum's preset of the mobile network; an empty text if the file names traces."""
        setting = self.settings.pop("wireless_network_preset", None)
        if setting is None:
            return "" if is_traced else "4g"
        preset = setting.value.lower()
        if preset in _RECORDED and not (self.choices.up and self.choices.down):
            trace, source = _RECORDED[preset]
            text = f"a synthetic trace, {trace}; `cellbed traces fetch {source}` has recordings for --up and --down"
            self.note("differs", setting, text)
        if preset in _RATES or preset in _RECORDED:
            return preset
        known, nearest = ", ".join([*_RATES, *_RECORDED]), "5g" if "5g" in preset else "4g"
        self.note("differs", setting, f"unknown preset, one of {known}: {nearest} is used")
        return nearest

    def _path(self, tier: str, count: int, preset: str) -> _Path:
        """Return the path between an endpoint and a tier with `count` nodes."""
        between = f"{tier}_endpoint"
        average, deviation = _LATENCIES[tier] if preset in _RATES else (0.0, 0.0)
        setting, place = self.settings.pop(f"{tier}_location", None), None
        is_given, varied = f"{between}_latency_avg" in self.settings, self.settings.get(f"{between}_latency_var")
        if setting is not None and (preset in _RATES or self.exists(f"{between}_latency_avg")):
            self.note("differs", setting, "the preset's or the given delay applies, as in Continuum")
        elif setting is not None:
            name = setting.value.lower().replace("_", "-")
            place = _PLACES.get(name, name if name in PLACES else None)
            known = f"{PLACES[place].one_way / 1e6:g} ms one way, from the thesis" if place else ""
            self.note("differs", setting, known or "unknown place: no delay")
        delay = self.number(f"{between}_latency_avg", average, 0, 60_000)
        deviation = self.number(f"{between}_latency_var", deviation, 0, 60_000)
        rate = self.number(f"{between}_throughput", _RATES.get(preset, 1000), 0.001, 1_000_000)
        path = _Path(place, delay, deviation, rate, is_given or place is not None, varied)
        if place is None and count > 1:
            path.port = min(self.number(f"{tier}_latency_avg", _INTERNAL[tier], 0, 2_000) / 2, delay)
            path.delay -= path.port
            path.internal_rate = self.number(f"{tier}_throughput", 1000, 0.001, 1_000_000)
        return path

    def _share(self, paths: dict[str, _Path]) -> float:
        """Return the delay of the mobile link. A given delay between edge and cloud precedes delays of the preset."""
        ends, setting = [*paths.values()], self.settings.get("cloud_edge_latency_avg")
        shared = min((path.delay for path in ends), default=0.0)
        if setting is None or len(ends) < 2:
            return shared
        wanted = self.number("cloud_edge_latency_avg", 0, 0, 60_000)
        fixed = sum(path.port + (PLACES[path.location].one_way / 1e6 if path.location else 0) for path in ends)
        apart = max(wanted - fixed, 0)
        for (tier, path), other in zip(reversed(paths.items()), ends, strict=True):
            delay = min(max(path.delay, abs(other.delay - apart)), other.delay + apart)
            if abs(delay - path.delay) > 0.01 and not path.is_given:
                changed = f"{delay + path.port:g} ms, not {path.delay + path.port:g} ms"
                self.note("differs", setting, f"between endpoint and {tier}: {changed}")
                path.delay = delay
        total = sum(path.delay for path in ends)
        shared = min(max((total - apart) / 2, 0.0), min(path.delay for path in ends))
        if abs(wanted - (found := fixed + total - 2 * shared)) > 0.01:
            self.note("differs", setting, f"{found:g} ms between edge and cloud, as their delays to the endpoint need")
        return shared

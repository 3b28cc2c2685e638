"""The simulation file: topology, transport, traffic and radio cells of a data centre in virtual time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Discriminator, Field, Tag

from cellbed.extension.files import (
    BIT_RATE,
    DURATION,
    SIZE,
    Chance,
    FileKind,
    PlainOr,
    Problem,
    ScenarioError,
    Table,
    TablesError,
    UnitError,
    did_you_mean,
    find_file,
    flow_files,
    quantity,
    read,
    report,
    schema_of,
    tables,
    validate,
    written,
)
from cellbed_datacentre import headers
from cellbed_datacentre.cells import Radio, host_number
from cellbed_datacentre.headers import PS, header_of, header_or, resolve_file
from cellbed_datacentre.transports import AT_UNIT, MOBILE_USERS, AnyTransport, to_simulator

Rate = Annotated[int, quantity(BIT_RATE, "1 Mbit/s", "10000 Gbit/s")]
Delay = Annotated[int, quantity(DURATION, "0 s", "10 s")]
Size = Annotated[int, quantity(SIZE, "1 B", "1 TB")]
HostName = Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
_MOST_HOSTS = 100_000
_MOST_ROUTES = 20_000_000
_MOST_CORE_LINKS = 1_000_000
_MOST_USERS = 100_000


# ---- topology


Buffer = Annotated[int, quantity(SIZE, "1500 B", "1 TB"), Field(description="Queue of every port.")]
MarkAbove = Annotated[
    Size | None,
    Field(
        description="A packet that finds more bytes waiting at a switch is marked (ECN). Default: '22.5 kB' for dctcp, "
        "else none.",
        examples=["22.5 kB"],
    ),
]
Switching = Annotated[
    Literal["cut-through", "store-and-forward"],
    Field(description="Start of forwarding in a switch: after the header, or after the last byte."),
]
Balancing = Annotated[
    Literal["spray", "ecmp"], Field(description="Choice among equal paths: for each packet, or for each flow.")
]


class LeafSpine(Table):
    """Racks of hosts behind a switch each, which is joined to every spine."""

    kind: Literal["leaf-spine"] = Field(description="Kind of topology.")
    racks: int = Field(9, ge=1, le=10_000, description="Racks, with one leaf switch each.")
    hosts_per_rack: int = Field(16, ge=1, le=10_000, description="Hosts of a rack.")
    spines: int = Field(4, ge=1, le=10_000, description="Spine switches.")
    host_rate: Rate = Field(written("10 Gbit/s"), description="Rate between host and leaf.")
    core_rate: Rate = Field(written("40 Gbit/s"), description="Rate between leaf and spine.")
    hop_delay: Delay = Field(written("200 ns"), description="Propagation delay of every link.")
    buffer: Buffer = written("36864 B")
    mark_above: MarkAbove = None
    switching: Switching = "cut-through"
    balancing: Balancing = "spray"

    @property
    def host_count(self) -> int:
        """Number of hosts."""
        return self.racks * self.hosts_per_rack

    def problems(self) -> Iterator[Problem]:
        """Yield the conflicts between keys."""
        hosts, switches = self.host_count, self.racks + self.spines
        if not 2 <= hosts <= _MOST_HOSTS:
            yield Problem(("topology", "racks"), f"{hosts} hosts: write 2 to {_MOST_HOSTS} hosts in all")
        elif hosts * switches > _MOST_ROUTES:
            yield Problem(("topology", "racks"), _describe_size(hosts, switches))
        elif self.racks * self.spines > _MOST_CORE_LINKS:
            text = f"{self.racks} racks and {self.spines} spines: at most {_MOST_CORE_LINKS} links can join them"
            yield Problem(("topology", "spines"), text)

    def description(self) -> dict[str, Any]:
        """Return the topology in the simulator's format."""
        return to_simulator(self)

    def node_names(self) -> list[str]:
        """Return the names of hosts, then of switches, in order of their numbers."""
        return [
            *(f"host-{number}" for number in range(self.host_count)),
            *(f"leaf-{number}" for number in range(self.racks)),
            *(f"spine-{number}" for number in range(self.spines)),
        ]

    def node_kinds(self) -> list[str]:
        """Return the kinds of the nodes, in order of their numbers."""
        return ["host"] * self.host_count + ["leaf"] * self.racks + ["spine"] * self.spines


class GraphLink(Table):
    """A link between two hosts or switches, equal in both directions."""

    between: list[str] = Field(
        min_length=2, max_length=2, description="The names of its two ends.", examples=[["client", "leaf"]]
    )
    rate: Rate = Field(description="Rate of each direction.", examples=["10 Gbit/s"])
    delay: Delay = Field(written("200 ns"), description="Propagation delay.")


class Graph(Table):
    """Any topology of hosts and switches; packets take shortest paths."""

    kind: Literal["graph"] = Field(description="Kind of topology.")
    hosts: list[HostName] = Field(
        min_length=2, max_length=_MOST_HOSTS, description="Names of the hosts, counted from 0."
    )
    switches: list[HostName] = Field([], max_length=_MOST_HOSTS, description="Names of the switches.")
    links: list[GraphLink] = Field(min_length=1, description="Links. A host has one.")
    buffer: Buffer = written("36864 B")
    mark_above: MarkAbove = None
    switching: Switching = "store-and-forward"
    balancing: Balancing = "ecmp"

    @property
    def host_count(self) -> int:
        """Number of hosts."""
        return len(self.hosts)

    def problems(self) -> Iterator[Problem]:
        """Yield the conflicts between keys."""
        if len(self.hosts) * len(self.switches) > _MOST_ROUTES:
            yield Problem(("topology", "hosts"), _describe_size(len(self.hosts), len(self.switches)))
        names: dict[str, int] = {}
        for key in ("hosts", "switches"):
            for index, name in enumerate(getattr(self, key)):
                if name in names:
                    yield Problem(("topology", key, index), f"the name '{name}' occurs twice: remove one of the two")
                names[name] = len(names)
        joined = {name: name for name in names}

        def group(name: str) -> str:
            while joined[name] != name:
                joined[name] = name = joined[joined[name]]
            return name

        of_host = dict.fromkeys(self.hosts, 0)
        named = True
        for index, link in enumerate(self.links):
            place = ("topology", "links", index, "between")
            unknown = [name for name in link.between if name not in names]
            for name in unknown:
                yield Problem(
                    place, f"there is no host or switch '{name}': {did_you_mean(name, names)}add it to a list"
                )
            if unknown:
                named = False
                continue
            first, second = link.between
            if first == second:
                yield Problem(place, f"a link from '{first}' to itself: write two names")
            joined[group(first)] = group(second)
            for name in {first, second} & set(of_host):
                of_host[name] += 1
                if of_host[name] == 2:
                    yield Problem(place, f"the host '{name}' has another link already: join it to one switch")
        if named and len({group(name) for name in names}) > 1:
            apart = next(name for name in names if group(name) != group(self.hosts[0]))
            yield Problem(("topology", "links"), f"no path leads from '{self.hosts[0]}' to '{apart}': add a link")

    def description(self) -> dict[str, Any]:
        """Return the topology in the simulator's format."""
        numbers = {name: number for number, name in enumerate(self.node_names())}
        links = [[*(numbers[name] for name in link.between), link.rate, link.delay * PS] for link in self.links]
        return {**to_simulator(self), "hosts": len(self.hosts), "switches": len(self.switches), "links": links}

    def node_names(self) -> list[str]:
        """Return the names of hosts, then of switches, in order of their numbers."""
        return [*self.hosts, *self.switches]

    def node_kinds(self) -> list[str]:
        """Return the kinds of the nodes, in order of their numbers."""
        return ["host"] * len(self.hosts) + ["switch"] * len(self.switches)


def _describe_size(hosts: int, switches: int) -> str:
    return f"{hosts} hosts and {switches} switches: routes of at most {_MOST_ROUTES} (hosts × switches) fit in memory"


# ---- traffic


class SizesFile(Table):
    """A file with the columns ``SIZE 1 CUMULATIVE-SHARE``, or ``SIZE CUMULATIVE-SHARE``."""

    kind: Literal["file"] = Field(description="Kind of sizes.")
    file: str = Field(min_length=1, description="The file, relative to this one.", examples=["sizes.txt"])
    unit: Literal["packets", "bytes"] | None = Field(
        None,
        description="Unit of the file's sizes: packets of 1460 bytes (default for three columns), or bytes (for two).",
    )

    def points(self, folder: Path) -> flow_files.Sizes:
        """Return the distribution. Raises UnitError, FlowFileError."""
        return flow_files.read_sizes(resolve_file(self.file, folder, "file of flow sizes"), self.grain(folder))

    def grain(self, folder: Path) -> int:
        """Return the bytes of which every flow size is a multiple. Raises UnitError, FlowFileError."""
        if self.unit is None:
            return flow_files.unit_of(resolve_file(self.file, folder, "file of flow sizes"))
        return flow_files.PACKET if self.unit == "packets" else 1


class DiscreteSizes(Table):
    """A few sizes with their shares of the flows."""

    kind: Literal["discrete"] = Field(description="Kind of sizes.")
    sizes: list[Size] = Field(min_length=1, description="Sizes of flows.", examples=[["4380 B", "1022 kB"]])
    shares: list[Chance] = Field(min_length=1, description="Share of the flows of each size.", examples=[[0.9, 0.1]])

    def points(self, folder: Path) -> flow_files.Sizes:
        """Return the distribution. Raises UnitError."""
        if len(self.sizes) != len(self.shares):
            raise UnitError(f"{len(self.sizes)} sizes and {len(self.shares)} shares: write a share for each size")
        if abs(sum(self.shares) - 1) > 1e-9:
            raise UnitError(f"the shares add up to {sum(self.shares):g}: write shares that add up to 1")
        found: flow_files.Sizes = []
        below = 0.0
        for size, share in sorted(zip(self.sizes, self.shares, strict=True)):
            found += [(size, below), (size, below := below + share)]
        found[-1] = (found[-1][0], 1.0)
        return found


class LogNormalSizes(Table):
    """Log-normal sizes, cut off at both ends."""

    kind: Literal["lognormal"] = Field(description="Kind of sizes.")
    mean: Size = Field(description="Mean before the cut.", examples=["10710 B"])
    deviation: Size = Field(description="Standard deviation before the cut.", examples=["25032 B"])
    least: Size = Field(written("100 B"), description="Smallest size.")
    most: Size = Field(written("2 MB"), description="Largest size.")

    def points(self, folder: Path) -> flow_files.Sizes:
        """Return the distribution. Raises UnitError."""
        if self.least >= self.most:
            raise UnitError("'least' must be below 'most': write a smaller one")
        return flow_files.lognormal(self.mean, self.deviation, self.least, self.most)


_LIKE_A_SIZE = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]+)?\s*[A-Za-z]{0,5}\s*")


class Incast(Table):
    """Groups of flows of one size, which start at once from different hosts to one other."""

    kind: Literal["incast"] = Field(description="Kind of pattern.")
    senders: int = Field(ge=1, description="Senders of a group.", examples=[32])


class ToOne(Table):
    """A share of the flows goes from any host to a certain one, the rest from any host to any other."""

    kind: Literal["to-one"] = Field(description="Kind of pattern.")
    host: str = Field(description="The host: its name, of a leaf-spine host-0, host-1, ….", examples=["host-0"])
    share: Chance = Field(description="Share of the flows that go to it.", examples=[0.2])


class Traffic(Table):
    """Flows: drawn at random, or from a file."""

    trace: str | None = Field(
        None,
        min_length=1,
        description="File of flows: number, bytes, source, destination, start in µs. Instead of all other keys.",
        examples=["flows.txt"],
    )
    flows: int | None = Field(None, ge=1, le=100_000_000, description="Number of flows.", examples=[10_000])
    load: float | None = Field(
        None,
        gt=0,
        le=10,
        description="Bytes of the flows with their headers, as a share of the rate of the hosts.",
        examples=[0.6],
    )
    sizes: Annotated[Any, PlainOr(str, (SizesFile, DiscreteSizes, LogNormalSizes))] | None = Field(
        None,
        description="Sizes of the flows: one size, a file of a distribution in packets of 1460 bytes, or a table.",
        examples=["100 kB", "sizes.txt", {"kind": "discrete", "sizes": ["4380 B", "1022 kB"], "shares": [0.9, 0.1]}],
    )
    pattern: Annotated[Any, PlainOr(Literal["all-to-all", "permutation"], (Incast, ToOne))] | None = Field(
        None,
        description="Sources and destinations: 'all-to-all' (default), 'permutation' (each to one other), or a table.",
        examples=["all-to-all", {"kind": "incast", "senders": 32}],
    )

    def problems(self) -> Iterator[Problem]:
        """Yield the conflicts between keys."""
        others = {key: getattr(self, key) for key in ("flows", "load", "sizes", "pattern")}
        for key, value in others.items():
            if self.trace is not None and value is not None:
                yield Problem(("traffic", key), "the trace contains the flows: remove this key, or 'trace'")
            elif self.trace is None and value is None and key != "pattern":
                yield Problem(("traffic", key), f"missing: write {_EXAMPLES[key]}, or a file of flows as 'trace'")

    def files(self) -> Iterator[str]:
        """Yield the values that may be file names."""
        if self.trace is not None:
            yield self.trace
        elif isinstance(self.sizes, str):
            yield self.sizes
        elif isinstance(self.sizes, SizesFile):
            yield self.sizes.file

    def description(self, folder: Path, hosts: Sequence[str], users: Mapping[int, int]) -> dict[str, Any]:
        """Return the flows between `hosts` in the simulator's format. users: as in `read_trace`. Raises TablesError for
        unreadable files."""
        place: tuple[str, ...] = ("traffic", "trace")
        try:
            if self.trace is not None:
                path = resolve_file(self.trace, folder, "file of flows")
                return {"trace": flow_files.read_trace(path, len(hosts), users)}
            place = ("traffic", "sizes")
            points, grain = self._sizes(folder)
        except (UnitError, flow_files.FlowFileError) as error:
            raise TablesError([Problem(place, str(error))]) from None
        return {
            "flows": self.flows,
            "load": self.load,
            "sizes": points,
            "size_multiple_bytes": grain,
            **({} if self.pattern is None else {"pattern": self._pattern(hosts)}),
        }

    def _pattern(self, hosts: Sequence[str]) -> dict[str, Any]:
        pattern: Any = self.pattern
        if isinstance(pattern, str):
            return {"kind": pattern}
        if isinstance(pattern, Incast):
            if pattern.senders >= len(hosts):
                text = f"{pattern.senders} senders and a receiver, but there are {len(hosts)} hosts: write fewer"
                raise TablesError([Problem(("traffic", "pattern", "senders"), text)])
            return {"kind": pattern.kind, "senders": pattern.senders}
        host = host_number(pattern.host, hosts, ("traffic", "pattern", "host"))
        return {"kind": pattern.kind, "host": host, "share": pattern.share}

    def _sizes(self, folder: Path) -> tuple[flow_files.Sizes, int]:
        sizes: Any = self.sizes
        if not isinstance(sizes, str):
            return sizes.points(folder), sizes.grain(folder) if isinstance(sizes, SizesFile) else 1
        if _LIKE_A_SIZE.fullmatch(sizes) and find_file(sizes, folder) is None:
            size = SIZE.parse(sizes)
            if size < 1:
                raise UnitError("a flow has at least one byte: write more than '0 B'")
            return [(int(size), 1.0)], 1
        path = resolve_file(sizes, folder, "file of flow sizes")
        return flow_files.read_sizes(path), flow_files.unit_of(path)


_EXAMPLES = {"flows": "flows = 10000", "load": "load = 0.6", "sizes": 'sizes = "100 kB"'}


# ---- the file


AnyTopology = LeafSpine | Graph
Radios = Annotated[
    Annotated[Radio, Tag("plain")] | Annotated[list[Radio], Field(min_length=1, max_length=1000), Tag("list")],
    Discriminator(lambda value: "list" if isinstance(value, list) else "plain"),
]


if TYPE_CHECKING:
    _Transport: TypeAlias = Any
else:
    _Transport = header_or(*get_args(AnyTransport))


class SimulationFile(Table):
    """A simulation: flows between the hosts of a data centre, and to the users of its radio cells."""

    name: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the simulation, also the prefix of its folders.",
        examples=["leaf-spine"],
    )
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of every random choice.")
    until: Annotated[int, quantity(DURATION, "1 ns", "1000000 s")] | None = Field(
        None,
        description="Virtual time at which it ends, finished or not. Default: when all flows have finished.",
        examples=["10 s"],
    )
    sampling: Annotated[int, quantity(DURATION, "1 ns", "1000 s")] | None = Field(
        None, description="Interval between samples of the queues. Default: no samples.", examples=["10 us"]
    )
    topology: Annotated[AnyTopology, Field(discriminator="kind")] = Field(description="Hosts, switches and links.")
    transport: _Transport = Field(
        description="Transport protocol of the hosts: a table, or a C header.",
        examples=[{"kind": "phost"}, "./my-transport.h"],
    )
    traffic: Traffic = Field(description="Flows.")
    radio: Radios | None = Field(
        None, description="Radio cells behind one of the hosts, or a list of tables ([[radio]]). Default: none."
    )

    @property
    def radios(self) -> list[tuple[tuple[str | int, ...], Radio]]:
        """The radio tables with their paths in the file."""
        if isinstance(self.radio, list):
            return [(("radio", index), each) for index, each in enumerate(self.radio)]
        return [] if self.radio is None else [(("radio",), self.radio)]


@dataclass(frozen=True, slots=True)
class Described:
    """A simulation ready to run.

    source: name of the file in errors, empty for a mapping. file: as written. text: content of the file. content: in
    the simulator's format, including the named files. inputs: the named files by name.
    """

    source: str
    file: SimulationFile
    text: str | None
    content: Mapping[str, Any]
    inputs: Mapping[str, Path]

    @property
    def transport(self) -> str:
        """The kind of the transport, or its header."""
        return header_of(self.file.transport) or str(self.file.transport.kind)

    @property
    def flows(self) -> int:
        """Number of flows."""
        traffic = self.content["traffic"]
        return len(traffic["trace"]) if "trace" in traffic else int(traffic["flows"])

    @property
    def bytes(self) -> float:
        """Bytes of all flows; for random flows the expected number."""
        traffic = self.content["traffic"]
        if "trace" in traffic:
            return float(sum(flow[0] for flow in traffic["trace"]))
        return flow_files.mean_bytes(traffic["sizes"]) * self.flows


def read_simulation(path: Path) -> Described:
    """Return the simulation in a file. Raises ScenarioError with every problem and its line."""
    text = read(path, SIMULATION)
    try:
        return describe(tables(text, str(path), SIMULATION), path.parent, text, str(path))
    except TablesError as error:
        raise ScenarioError(report(str(path), text, error)) from None


def describe(data: Mapping[str, Any], folder: Path, text: str | None = None, source: str = "") -> Described:
    """Return the simulation described by a file's tables; file names are relative to `folder`. Raises TablesError."""
    file = validate(SimulationFile, dict(data), {"folder": folder})
    headers.compiled.cache_clear()  # a header may have changed since the last file
    own = header_of(file.transport)
    kind = own or file.transport.kind
    found = [*file.topology.problems(), *file.traffic.problems(), *_radio_problems(file, kind)]
    if found:
        raise TablesError(found)
    hosts = file.topology.node_names()[: file.topology.host_count]
    radio = [each.description(folder, hosts, place) for place, each in file.radios]
    users = {each.get("host", 0): each.get("users", 100) for each in radio}
    if len(users) < len(radio):
        text = "two radio tables with one central unit: write another host in one of the two"
        raise TablesError([Problem(("radio", len(radio) - 1), text)])
    if sum(users.values()) > _MOST_USERS:
        text = f"{sum(users.values())} users of all radio tables: write at most {_MOST_USERS}"
        raise TablesError([Problem(("radio", 0, "users"), text)])
    content: dict[str, Any] = {
        "seed": file.seed,
        **({} if file.until is None else {"until_ps": file.until * PS}),
        "topology": file.topology.description(),
        "transport": to_simulator(file.transport)
        if own is None
        else {"kind": "foreign", **headers.describe(file.transport, folder, ("transport",), users=bool(radio))},
        "traffic": file.traffic.description(folder, hosts, users),
    }
    if file.sampling is not None:
        kinds = file.topology.node_kinds()
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        content["sampling"] = {"interval_ps": file.sampling * PS, "kinds": [numbers[kind] for kind in kinds]}
    if radio:
        content["radio"] = radio
        _check_drops(file, content["transport"], radio)
    named = {
        name: find_file(name, folder)
        for name in (*file.traffic.files(), *(name for _, each in file.radios for name in each.files()))
    }
    for name in (own, *(name for _, each in file.radios for name in each.headers())):
        if name is not None:
            named |= headers.files(name, folder)
    return Described(source, file, text, content, {name: path for name, path in named.items() if path is not None})


def _radio_problems(file: SimulationFile, kind: str) -> Iterator[Problem]:
    """Yield the conflicts of radio cells with other tables, and with each other. kind: of the transport."""
    if not file.radios:
        return
    if file.traffic.pattern is not None:
        text = "with a radio cell the flows go to its users: remove this key; 'share' of [radio] sets how many do"
        yield Problem(("traffic", "pattern"), text)
    if not MOBILE_USERS.get(kind, True):
        others = ", ".join(kind for kind, mobile in MOBILE_USERS.items() if mobile)
        text = f"{kind} repeats packets long before a device can answer: write one of {others}"
        yield Problem(("transport", "kind"), text)
    if kind == "phost" and file.transport.repeats_carry_data is False:
        text = "a repeated packet without data does not reach a user: remove this key"
        yield Problem(("transport", "repeats_carry_data"), text)
    for place, radio in file.radios[1:]:
        for key in ("share", "load_of"):
            if getattr(radio, key) is not None:
                yield Problem((*place, key), "applies to all radio tables: write it in the first one")


def _check_drops(file: SimulationFile, transport: Mapping[str, Any], radio: Sequence[Mapping[str, Any]]) -> None:
    """Refuse cells that drop admitted packets of a transport that has forgotten them. Raises TablesError."""
    kind = transport["kind"]
    if headers.has(transport, "cellbed_ends_at_unit") if kind == "foreign" else kind in AT_UNIT:
        text = "it drops packets that the transport, which ends at the central unit, will not send again: write another"
        for (place, _), each in zip(file.radios, radio, strict=True):
            if each.get("admission") == "lqd" or headers.has(each.get("admission_header"), "cellbed_replaces"):
                raise TablesError([Problem((*place, "admission"), text)])


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of simulation files."""
    return schema_of(SimulationFile, "cellbed simulation")


_KEYS = ("topology", "traffic", "radio")
SIMULATION = FileKind("simulation", json_schema, _KEYS, "[topology]", "cellbed simulate")

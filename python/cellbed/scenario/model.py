"""The scenario: nodes, links, transport and applications of a run, checked and with every default filled in.

In the model durations are nanoseconds, sizes bytes, rates bit/s and frequencies events per second. `Scenario.resolved`
returns the same as text with units, in the form that a user writes.
"""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from cellbed.laws.law import CONGESTION_SETTING, Law
from cellbed.scenario.applications import Application, Key, tables
from cellbed.scenario.cells import Cells, cell_misfits
from cellbed.scenario.core import CORE_LINK, CoreDelay, CoreLink, constant_delay
from cellbed.scenario.expectations import Expect, Expectations, expectations
from cellbed.scenario.faults import Fault, fault_misfits, site_link
from cellbed.scenario.fields import CONGESTION_CONTROL, Buffer, quantity
from cellbed.scenario.live import LiveLink, live_misfits
from cellbed.scenario.migrations import Migration, migration_misfits
from cellbed.scenario.nodes import CLASSES, TOWER_CLASS, AnyMobileLink, Name, NodeGroup, with_defaults
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.roles import Role
from cellbed.scenario.sites import Sites, site_misfits
from cellbed.scenario.table import Path, Table, written
from cellbed.scenario.templates import problem
from cellbed.scenario.towers import tower_misfits
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION, SIZE

if TYPE_CHECKING:
    AnyApplication = Application
else:
    AnyApplication = Annotated[reduce(or_, tables().values()), Field(discriminator="kind")]
RunTime = Annotated[int, quantity(DURATION, "1 ms", "24 h")]


class CoreLinks(Table):
    """Links from the tower to the remote nodes: a one-way delay, or round-trip times that vary."""

    edge: Annotated[CoreLink, CORE_LINK] | None = Field(
        None, description="Between tower and edge: a preset, a one-way delay, or a table."
    )
    cloud: Annotated[CoreLink, CORE_LINK] | None = Field(
        None, description="Between tower and cloud: a preset, a one-way delay, or a table."
    )


class Links(Table):
    """The path of a packet: mobile link, then core link."""

    mobile: AnyMobileLink | None = Field(
        None, description="Endpoint to tower, the last mile; needed by groups of endpoints without a whole link."
    )
    core: CoreLinks = Field(written({}), description="Tower to edge or cloud.")


SLOW_START_AFTER_IDLE = "net.ipv4.tcp_slow_start_after_idle"


class Transport(Table):
    """Settings of the nodes' TCP."""

    congestion_control: Annotated[Law | str, CONGESTION_CONTROL] | None = Field(
        None,
        description="TCP congestion control of every node: the kernel's, one of `cellbed cc ls`, or a header. Default: "
        "the kernel's.",
    )
    slow_start_after_idle: bool | None = Field(
        None,
        description="TCP of every node starts with a small window again after a pause. Default: the kernel's.",
    )
    receive_buffer: Buffer | None = Field(
        None,
        description="Largest receive buffer of a connection, which bounds its window. Default: the kernel's.",
        examples=["8 MB"],
    )
    send_buffer: Buffer | None = Field(
        None, description="Largest send buffer of a connection. Default: the kernel's.", examples=["4 MB"]
    )
    initial_window: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="Segments that TCP sends before the first acknowledgement. Default: the kernel's, 10.",
        examples=[30],
    )
    ecn: bool | None = Field(
        None, description="Connections ask for explicit congestion notification. Default: the kernel's."
    )
    pacing: bool = Field(
        False,
        description="TCP of all applications spreads its segments over the round trip, also under a congestion control "
        "that does not pace.",
    )
    metrics_cache: bool | None = Field(
        None,
        description="A connection begins with the measurements of an earlier one to the same address. Default: the "
        "kernel's.",
    )
    series: bool = Field(
        False,
        description="Sample the senders of TCP connections each 10 ms: round trip, window, pacing, losses "
        "(flows.parquet). In the kernel as root only.",
    )

    def sysctls(self, control: str | None) -> dict[str, str]:
        """Return the kernel settings of a node's network namespace. control: the congestion control of the node."""
        asked = {
            CONGESTION_SETTING: control,
            SLOW_START_AFTER_IDLE: _flag(self.slow_start_after_idle),
            # The minimum and initial sizes are the kernel's defaults.
            "net.ipv4.tcp_rmem": f"4096 131072 {self.receive_buffer}" if self.receive_buffer else None,
            "net.ipv4.tcp_wmem": f"4096 16384 {self.send_buffer}" if self.send_buffer else None,
            "net.ipv4.tcp_ecn": _flag(self.ecn),
            "net.ipv4.tcp_no_metrics_save": _flag(None if self.metrics_cache is None else not self.metrics_cache),
        }
        return {key: value for key, value in asked.items() if value is not None}


def _flag(value: bool | None) -> str | None:
    return None if value is None else str(int(value))


class Scenario(Table):
    """A run of cellbed: nodes, links and applications."""

    name: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the scenario, also the prefix of run folders.",
        examples=["offload-lte"],
    )
    duration: RunTime = Field(description="Duration of the workload.", examples=["60 s"])
    skip: Annotated[int, quantity(DURATION, "0 s", "24 h")] = Field(
        written("0 s"),
        description="Warm-up, from the start of the workload, that is left out of all measures.",
        examples=["10 s"],
    )
    packet_log: Annotated[int, quantity(SIZE, "1 MiB", "8 GiB")] | None = Field(
        None,
        description="Maximum size of the packet log: 64 bytes per packet and link. The oldest packets go; requests on "
        "their connections lack parts.",
        examples=["1 GB"],
    )
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of every random choice.")
    nodes: dict[Name, NodeGroup] = Field(min_length=1, description="Node groups by name.")
    links: Links = Field(written({}), description="Links between the nodes.")
    sites: Sites = Field({}, description="Sites by name, whose nodes share a switch and a core link.")
    cells: Cells = Field({}, description="Radio cells by name, which the links of endpoints share.")
    transport: Transport = Field(written({}), description="Settings of the transport layer.")
    workload: AnyApplication | None = Field(
        None, description="The only application and its load; short for one in [apps], which is called 'workload'."
    )
    apps: dict[Name, AnyApplication] = Field({}, description="Applications by name.")
    faults: list[Fault] = Field([], description="Faults of nodes, links and programs during the workload.")
    migrations: list[Migration] = Field([], description="Services that move to other nodes during the workload.")
    expect: Expect = Field(
        {},
        description="Limits of measures; with several applications in a table for each. cellbed run --check.",
        examples=[{"p99_latency": "< 300 ms", "failed_share": "< 1 %"}],
    )

    @model_validator(mode="before")
    @classmethod
    def _add_defaults(cls, data: Any) -> Any:
        return with_defaults(data)

    def control_of(self, group: str) -> Law | str | None:
        """Return the congestion control of the nodes of a group; None for the kernel's default."""
        return self.nodes[group].congestion_control or self.transport.congestion_control

    def tcp_of(self, role: Role) -> dict[str, Law | str | int]:
        """Return the TCP settings of a program in addition to its node's, by key: the program's settings, and pacing,
        which nodes cannot have."""
        asked = ({"pacing": True} if self.transport.pacing else {}) | role.tcp
        return {key: value for key, value in asked.items() if value is not False}

    @property
    def controls(self) -> list[Law | str | None]:
        """The congestion controls of nodes and programs, each once; None for the kernel's default."""
        of_roles = (role.congestion_control for _, role in self.roles())
        own = [each for each in (*of_roles, *(it.congestion_control for it in self.migrations)) if each is not None]
        return list(dict.fromkeys([*map(self.control_of, self.nodes), *own]))

    @property
    def laws(self) -> list[Law]:
        """The laws that must be loaded."""
        return [control for control in self.controls if isinstance(control, Law)]

    @property
    def applications(self) -> dict[str, AnyApplication]:
        """The applications by name, in the order of the file."""
        return {"workload": self.workload} if self.workload is not None else self.apps

    @property
    def deadlines(self) -> dict[str, bool]:
        """Map of application names to whether the application has a deadline."""
        return {name: getattr(each, "deadline", None) is not None for name, each in self.applications.items()}

    def expectations(self) -> Expectations:
        """Return the expectations of each application."""
        return expectations(self.expect, self.deadlines)[0]

    def path_of(self, application: str) -> Path:
        """Return the path of the table of an application."""
        return ("workload",) if self.workload is not None else ("apps", application)

    def roles(self) -> Iterator[tuple[Path, Role]]:
        """Return the roles of all applications, with their paths."""
        for name, application in self.applications.items():
            for key, role in application.roles():
                yield (*self.path_of(name), key), role

    def programs(self) -> Iterator[tuple[Path, Role]]:
        """Return the roles whose programs run unmodified, with their paths."""
        for name, application in self.applications.items():
            for key, role in application.programs():
                yield (*self.path_of(name), key), role

    def mobile_link(self, group: NodeGroup) -> AnyMobileLink:
        """Return the mobile link of a group of endpoints."""
        found = group.link or self.links.mobile
        assert found is not None  # ensured by `misfits`
        return found

    @property
    def live(self) -> LiveLink | None:
        """The live link of the endpoints, if they have one."""
        return next((link for _, link in self.mobile_links() if isinstance(link, LiveLink)), None)

    def core_link(self, group: NodeGroup) -> CoreLink:
        """Return the core link of a group of edge or cloud nodes: its site's, or that of each node. A live link leaves
        no delay to it."""
        if self.live is not None:
            return CoreDelay(0)
        if group.site is not None:
            return self.sites[group.site].core
        found: CoreLink | None = group.core or getattr(self.links.core, group.node_class)
        assert found is not None  # ensured by `misfits`
        return found

    def mobile_links(self) -> Iterator[tuple[Path, AnyMobileLink]]:
        """Return all mobile links of the file, with their paths."""
        if self.links.mobile is not None:
            yield ("links", "mobile"), self.links.mobile
        for name, group in self.nodes.items():
            if group.link is not None:
                yield ("nodes", name, "link"), group.link

    def core_links(self) -> Iterator[tuple[Path, CoreLink]]:
        """Return all core links of the file, with their paths."""
        for node_class in ("edge", "cloud"):
            if (link := getattr(self.links.core, node_class)) is not None:
                yield ("links", "core", node_class), link
        for name, group in self.nodes.items():
            if group.core is not None:
                yield ("nodes", name, "core"), group.core
        for name, site in self.sites.items():
            yield ("sites", name, "core"), site.core

    def resolved(self) -> dict[str, Any]:
        """Return the scenario with all defaults, as JSON-able values in the form of the file; None for absent."""
        return self.model_dump(mode="json", by_alias=True)

    def stated(self) -> dict[str, Any]:
        """Return the contents of the file, without defaults, in the form of :meth:`resolved`. Call it before
        `completed`."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def complete(self) -> Self:
        """Return the scenario with the defaults that depend on other keys filled in."""
        mobile = self.links.mobile
        links = self.links.model_copy(update={"mobile": mobile and mobile.complete()})
        nodes = {
            name: group.model_copy(update={"link": group.link.complete()}) if group.link is not None else group
            for name, group in self.nodes.items()
        }
        filled: dict[str, Any] = {"links": links, "nodes": nodes}
        if self.workload is not None:
            filled["workload"] = self.workload.complete(nodes)
        filled["apps"] = {name: each.complete(nodes) for name, each in self.apps.items()}
        return self.model_copy(update=filled)

    def misfits(self) -> list[tuple[Path, str]]:
        """Return conflicts between keys: (path of the key, problem and remedy)."""
        found = list(self._node_misfits())
        if self.skip >= self.duration:
            found.append((("skip",), f"nothing of the {DURATION.format(self.duration)} is left: write a shorter time"))
        if self.workload is not None and self.apps:
            found.append((("workload",), "both [workload] and [apps]: move it to [apps.NAME]"))
        for name, application in self.applications.items():
            where = self.path_of(name)
            found += [(_below(where, key), text) for key, text in application.misfits(self.nodes, self.duration)]
            for key, text in application.templates():
                if wrong := problem(text, [name for name, each in self.applications.items() if each.server]):
                    found.append((_below(where, key), wrong))
            found += [((*where, "after"), text) for text in self._order_misfits(name)]
            if application.stop is not None and application.stop <= self.skip < self.duration:
                found.append(((*where, "stop"), "its load ends within 'skip', and nothing of it is measured"))
        sites = [site_link(name) for name in self.sites]
        for path, text in fault_misfits(self.faults, self.nodes, list(self.applications), self.duration, sites):
            found.append((("faults", *path), text))
        moving = migration_misfits(self.migrations, self.nodes, self.applications, self.cells, self.duration)
        found += [(("migrations", *path), text) for path, text in moving]
        found += [(("expect", *path), text) for path, text in expectations(self.expect, self.deadlines)[1]]
        found += live_misfits(self)
        found += tower_misfits(self)
        found += cell_misfits(self.cells, self.nodes, self.links.mobile, self.duration)
        completed = {name: each.complete(self.nodes) for name, each in self.applications.items()}
        for app, path, text in site_misfits(self.sites, self.cells, self.nodes, completed):
            found.append(((*(() if app is None else self.path_of(app)), *path), text))
        reported: set[tuple[Path, str]] = set()
        for path, link in (*self.mobile_links(), *self.core_links()):
            # A group's link inherits mistakes in keys of [links.mobile].
            new = [each for each in link.misfits(self.duration) if each not in reported]
            reported |= set(new)
            found += [((*path, *inner), text) for inner, text in new]
        return found

    def apart(self) -> Iterator[str]:
        """Yield a sentence for each place with several nodes without a site: each node has its own core link."""
        places: dict[str, list[str]] = {}
        for name, group in self.nodes.items():
            if group.node_class in CLASSES[1:] and group.site is None and self.live is None:
                places.setdefault(repr(self.core_link(group)), []).extend([name] * group.count)
        for names in places.values():
            if len(names) > 1:
                delay = constant_delay(self.core_link(self.nodes[names[0]]))
                take = "" if delay is None else f", {DURATION.format(2 * delay)} one way"
                yield (
                    f"the {len(names)} nodes of {', '.join(dict.fromkeys(names))} are at one place, but each has a "
                    f"core link of its own: a packet from one to another goes to the tower and back{take}; to join "
                    f"them by a switch, write [sites.NAME] and site = 'NAME' in their groups"
                )

    def copies(self) -> Iterator[str]:
        """Yield a sentence for each recording of which several endpoints have a copy each."""
        counts: dict[str, int] = {}
        for group in self.nodes.values():
            if group.node_class == "endpoint" and group.cell is None:
                link = self.mobile_link(group)
                if isinstance(link, RecordedLink):
                    counts[link.path.name] = counts.get(link.path.name, 0) + group.count
        for name, count in counts.items():
            if count > 1:
                yield (
                    f"each of {count} endpoints has all that was recorded in {name}: to let them share it, write "
                    f"[cells.NAME] and cell = 'NAME' in their groups"
                )

    def idle_replicas(self) -> Iterator[str]:
        """Yield a sentence for each group with servers without load."""
        clients: dict[str, int] = {}
        balanced = {it.server.on for it in self.applications.values() if it.server and it.balance != "client"}
        for application in self.applications.values():
            chosen = application.edge_policy == "nearest"
            if application.server is not None and application.server.on not in balanced and not chosen:
                count = self.nodes[application.client.on].count if application.client is not None else 0
                clients[application.server.on] = max(count, clients.get(application.server.on, 0))
        for name, count in clients.items():
            if (nodes := self.nodes[name].count) > max(1, count):
                first = f"a client uses one of them, and there are {count}" if count else "their name means the first"
                spread = "balance = 'connection' spreads connections over all"
                yield f"{nodes - max(1, count)} of the {nodes} nodes of {name} get no load: {first}; {spread}"

    def stages(self) -> dict[str, int]:
        """Return, by application, the number of others that must be ready before it, one after the other."""
        found: dict[str, int] = {}
        while len(found) < len(self.applications):
            for name, application in self.applications.items():
                if all(other in found for other in application.after):
                    found[name] = max((found[other] + 1 for other in application.after), default=0)
        return found

    def _order_misfits(self, name: str) -> Iterator[str]:
        """Yield the problems in an application's `after`."""
        for other in self.applications[name].after:
            if other not in self.applications:
                hint = did_you_mean(other, list(self.applications))
                yield f"there is no application '{other}': {hint}write some of {', '.join(self.applications)}"
            elif name in self._before(other):
                yield f"'{name}' comes before '{other}' itself: remove one of the two"

    def _before(self, name: str) -> set[str]:
        """Return the application and all its predecessors."""
        found, waiting = set[str](), [name]
        while waiting:
            if (each := waiting.pop()) not in found and each in self.applications:
                found.add(each)
                waiting += self.applications[each].after
        return found

    def _node_misfits(self) -> Iterator[tuple[Path, str]]:
        names = {f"{name}-{index}": name for name, group in self.nodes.items() for index in range(group.count)}
        taken = {**names, **dict.fromkeys(["tower", "localhost"], ""), **{name: name for name in self.nodes}}
        for name, group in self.nodes.items():
            if name in names or name == "tower":
                yield ("nodes", name), "a node has this name already: choose another one"
            for index, alias in enumerate(group.aliases):
                if taken.setdefault(alias, name) != name:
                    yield ("nodes", name, "aliases", index), f"'{alias}' is another node's name: choose another one"
            wrong, right = ("core", "link") if group.node_class == "endpoint" else ("link", "core")
            if group.node_class == TOWER_CLASS:
                unfit = [key for key in ("core", "link", "stagger") if getattr(group, key)]
                yield from ((("nodes", name, key), "a tower has no link of its own: remove this key") for key in unfit)
                continue
            if getattr(group, wrong) is not None:
                text = f"not for nodes of class {group.node_class}: write '{right}' instead, or remove this key"
                yield ("nodes", name, wrong), text
            if group.node_class != "endpoint" and group.stagger:
                yield ("nodes", name, "stagger"), "only endpoints replay traces: remove this key"
            if getattr(group, right) is None and group.node_class == "endpoint" and self.links.mobile is None:
                text = f"missing, but [nodes.{name}] needs it: write [links.mobile] with up and down"
                yield ("links", "mobile"), text
            own = group.core or group.site or getattr(self.links.core, group.node_class, None)
            if right == "core" and own is None and self.live is None:
                yield ("links", "core", group.node_class), f"missing, but [nodes.{name}] exists: {_CORE_HINT}"
        for node_class in CLASSES:
            total = sum(group.count for group in self.nodes.values() if group.node_class == node_class)
            if total > MOST_NODES:
                yield ("nodes",), f"{total} nodes of class {node_class}: write at most {MOST_NODES} in all"


def _below(table: Path, key: Key) -> Path:
    return (*table, *key) if isinstance(key, tuple) else (*table, key)


MOST_NODES = 16_000
"""Maximum nodes of one class: its addresses are a /18."""
_CORE_HINT = 'write a preset such as "base-edge", or a one-way delay such as "3 ms"'

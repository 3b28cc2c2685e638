"""The applications of a scenario: the keys of all kinds, and the tables of the registered kinds."""

import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from cellbed.scenario.fields import quantity
from cellbed.scenario.loads import ARRIVALS_FORM, WITH_RATE, Aimd, Arrivals, Closed, Halve, Rate, RatePolicy, Recorded
from cellbed.scenario.nodes import Name, NodeGroup
from cellbed.scenario.roles import OF_TCP, AnyRole, Role
from cellbed.scenario.table import Table, written
from cellbed.scenario.templates import CERTIFICATE
from cellbed.support.extensions import entries
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION, SIZE

Wait = Annotated[int, quantity(DURATION, "0 s", "1 h")]
Moment = Annotated[int, quantity(DURATION, "0 s", "24 h")]
Timeout = Annotated[int, quantity(DURATION, "1 ms", "1 h")]
Groups = Mapping[str, NodeGroup]
Balance = Literal["client", "connection", "round-robin", "least-outstanding"]
Key = str | tuple[str | int, ...]
"""A key of an application's table, or a path below the table."""


class Application(Table):
    """The base of applications: the node groups of its programs, and when its load runs."""

    if TYPE_CHECKING:  # fields of each kind
        kind: str
        drain: int

    balances_requests: ClassVar[bool] = False
    """True for a kind whose load generator can choose a server for each request."""
    starter: ClassVar[str] = ""
    """The keys that ``cellbed init`` writes, as TOML with the server on "edge". Default: the required ones, from their
    examples."""
    least_endpoints: ClassVar[int] = 1
    """Minimum number of clients."""

    client: AnyRole | None = Field(
        None, description="Node group of the clients. Default: the only group of endpoints.", examples=["endpoint"]
    )
    server: AnyRole | None = Field(None, description="Node group of the servers.", examples=["edge"])
    edge_policy: Literal["fixed", "nearest", "follow-me"] = Field(
        "fixed",
        description="Who serves clients that move to a cell at another site. fixed: the server where it is. "
        "nearest: the instance at the new site. follow-me: the same server, which moves there.",
    )
    state: Annotated[int, quantity(SIZE, "0 B", "1 TB")] | None = Field(
        None, description="follow-me: what is sent to the new site before the server continues.", examples=["20 MB"]
    )
    balance: Balance = Field(
        "client",
        description="Choice among several servers. client: each client has one of them, in turn. connection: the "
        "servers share an address, and each connection goes to a ready server, at random. round-robin, "
        "least-outstanding: the load generator chooses a server for each request.",
    )
    after: list[Name] = Field(
        [], description="Applications whose servers are ready before the programs of this one start.", examples=[["db"]]
    )
    start: Moment = Field(written("0 s"), description="Start of its load, from the start of the workload.")
    stop: Moment | None = Field(None, description="End of its load. Default: the workload's.", examples=["30 s"])

    def templates(self) -> Iterator[tuple[Key, str]]:
        """Yield the texts with names to fill in (:mod:`cellbed.scenario.templates`): (key, text)."""
        for key, role in self.roles():
            for path, text in role.texts():
                yield (key, *path), text

    def roles(self) -> Iterator[tuple[Literal["server", "client"], Role]]:
        """Yield the roles, in the start order of their programs."""
        if self.server is not None:
            yield "server", self.server
        if self.client is not None:
            yield "client", self.client

    def programs(self) -> Iterator[tuple[Literal["server", "client"], Role]]:
        """Return the roles whose programs run unmodified."""
        return ((key, role) for key, role in self.roles() if role.command is not None)

    @property
    def client_groups(self) -> tuple[str, ...]:
        """Return the node groups whose nodes are clients."""
        return (self.client.on,) if self.client is not None else ()

    @property
    def has_certificate(self) -> bool:
        """Return whether the servers have a certificate of the run's authority."""
        return any(f"{{{name}}}" in text for _, text in self.templates() for name in CERTIFICATE)

    @property
    def host_names(self) -> tuple[str, ...]:
        """Return the names in the servers' certificate in addition to the names of nodes."""
        return ()

    @property
    def more_servers(self) -> tuple[str, ...]:
        """Return the node groups of servers in addition to `server`; each client uses all of them."""
        return ()

    @property
    def movable_by(self) -> tuple[str, ...] | None:
        """Return the strategies of migration that can move the server; ``None``: all."""
        return None

    @property
    def packages(self) -> dict[str, str]:
        """Return the optional Python packages that cellbed's programs need, each with its extra of cellbed."""
        return {}

    @property
    def tools(self) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        """Return the programs that cellbed's programs of this kind run on nodes of this machine: (key, alternative
        names, package)."""
        return ()

    @property
    def third_party_files(self) -> tuple[tuple[str, pathlib.Path, str], ...]:
        """Return the third-party files that cellbed's programs of this kind read on nodes of this machine: (key, file,
        command that fetches it)."""
        return ()

    def complete(self, groups: Groups) -> Self:
        """Return the application with the defaults that depend on the nodes filled in."""
        endpoints = _endpoints(groups)
        return self.model_copy(update={"client": self.client or (Role.of_group(endpoints[0]) if endpoints else None)})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """Yield keys that do not fit each other, the nodes or the workload's `duration` (ns): (key, what to do)."""
        yield from self._role_misfits(groups)
        if self.balance != "client":
            yield from self._balance_misfits()
        if self.start >= duration:
            yield "start", f"the workload ends after {DURATION.format(duration)}: write an earlier time"
        if self.stop is not None and not self.start < self.stop <= duration:
            yield "stop", f"not after 'start' and at most the duration, {DURATION.format(duration)}"

    def _balance_misfits(self) -> Iterator[tuple[Key, str]]:
        """Yield problems of `balance` if clients do not have one server each."""
        if self.server is None:
            yield "balance", "the application has no server: write it where the servers are"
        elif self.edge_policy != "fixed":
            yield "balance", f"the edge policy '{self.edge_policy}' chooses the server: remove one of the two"
        elif self.balance != "connection" and not self.balances_requests:
            yield "balance", f"clients of kind '{self.kind}' choose no server for a request: write 'connection'"

    def _role_misfits(self, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Yield problems of roles if their programs are cellbed's."""
        endpoints = _endpoints(groups)
        if self.client is None and len(endpoints) != 1:
            listed = (
                f"write one of {', '.join(endpoints)}" if endpoints else "add [nodes.endpoint] with cpus and memory"
            )
            yield "client", f"missing, and there are {len(endpoints) or 'no'} groups of endpoints: {listed}"
        for key, role in self.roles():
            yield from self._own_misfits(key, role, groups)

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Yield problems of a role whose program is cellbed's."""
        yield from group_misfits(key, role.on, groups)
        for name in sorted(role.model_fields_set - {"on", *OF_TCP}):
            yield (key, name), f"the {key} of this kind is a program of cellbed: remove this key"

    def _program_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Yield problems of a role with the user's program."""
        yield from group_misfits(key, role.on, groups)
        if role.on in groups:
            yield from (((key, *path), text) for path, text in role.misfits(groups[role.on]))


TELEMETRY_KEY = Field(
    False,
    description="Receive the spans of OpenTelemetry of its programs: client spans are requests, and server spans "
    "divide the server's time. A load sends W3C traceparent.",
)


def _endpoints(groups: Groups) -> list[str]:
    return [name for name, group in groups.items() if group.node_class == "endpoint"]


def group_misfits(key: Key, name: str, groups: Groups) -> Iterator[tuple[Key, str]]:
    """Yield the problem of a node group's name at `key`."""
    if name not in groups:
        text = f"'{name}' has no nodes: {did_you_mean(name, list(groups))}add [nodes.{name}] with cpus and memory"
        yield key, f"{text}, or write one of {', '.join(groups)}"


RATE_IF_NEEDED: dict[str, Any] = {
    "if": {"properties": {"arrivals": {"enum": list(WITH_RATE)}}},
    "then": {"required": ["rate"]},
    "else": {"properties": {"rate": False}},
}


class Load(Application):
    """An application with requests: when they are sent, and how long their replies may take."""

    usual_load: ClassVar[str] = "8 /s"
    """The load that ``cellbed init`` suggests: a rate, or ``closed``."""

    arrivals: Annotated[Arrivals, ARRIVALS_FORM] = Field(
        "periodic",
        description="Open loop with fixed intervals, as a Poisson process, in bursts, as a ramp or as recorded; closed "
        "loop: a request follows a reply.",
    )
    rate: Rate | None = Field(None, description="Requests per second of each endpoint.", examples=["8 /s"])
    policy: RatePolicy | None = Field(None, description="Reaction of an endpoint to slow replies. Default: none.")
    timeout: Timeout = Field(written("10 s"), description="A slower reply counts as late, a missing one as timed out.")
    deadline: Timeout | None = Field(
        None,
        description="A good reply within this time is on time; the share of those and their bits are measured.",
        examples=["100 ms"],
    )
    drain: Wait = Field(written("5 s"), description="Time to wait for replies after the last request.")

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.arrivals in WITH_RATE and self.rate is None:
            yield "rate", f'missing: {self.arrivals} arrivals need one; write rate = "8 /s"'
        if self.arrivals not in WITH_RATE and self.rate is not None:
            what = "a closed loop has no rate" if self.is_closed else "these arrivals have their own rate"
            yield "rate", f"{what}: remove this key"
        if self.is_closed and isinstance(self.policy, Halve | Aimd):
            yield "policy", "a closed loop has no rate to lower: choose other arrivals, or remove this key"
        if isinstance(self.arrivals, Recorded):
            length = (self.stop if self.stop is not None else duration) - self.start
            if self.arrivals.moments[0] >= length:
                yield "arrivals", f"no time is within the load's {DURATION.format(length)}: write earlier times"

    @property
    def is_closed(self) -> bool:
        """Return whether requests wait for replies."""
        return self.arrivals == "closed" or isinstance(self.arrivals, Closed)

    def __str__(self) -> str:
        """Return the application in a line."""
        rate = f" at {self.rate:g} /s per endpoint" if self.rate else ""
        where = self.server.on if self.server is not None else "no node"
        policy = f"; {self.policy}" if self.policy is not None else ""
        return f"{self.kind} on {where}, {self.arrivals}{rate}{policy}"


def tables() -> dict[str, type[Application]]:
    """Return the table of each kind: the entry points of the group ``cellbed.applications``. Errors: ImportError."""
    found: dict[str, type[Application]] = {}
    for kind, entry in entries("applications").items():
        try:
            found[kind] = entry.load()
        except AttributeError as error:
            # `cellbed.scenario` imports names lazily; an AttributeError there would hide the cause.
            raise ImportError(f"{entry.value}, the table of kind '{kind}': {error}") from error
    if not found:
        raise ImportError("no kinds of application are registered: install cellbed again (make setup)")
    return found

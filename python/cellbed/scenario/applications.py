"""The applications of a scenario: a table of each kind, all of them one tagged union by ``kind``."""

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from cellbed.near_names import did_you_mean
from cellbed.scenario.fields import BODY_FILE, FILE, TRANSLATOR, plainly, quantity, refusal
from cellbed.scenario.loads import (
    ARRIVALS_FORM,
    WITH_RATE,
    Aimd,
    AnyPolicy,
    Arrivals,
    Closed,
    Halve,
    Rate,
    RatePolicy,
    Recorded,
)
from cellbed.scenario.nodes import Name, NodeGroup
from cellbed.scenario.roles import AnyRole, Role
from cellbed.scenario.table import Table, written
from cellbed.units import DURATION, SIZE

Wait = Annotated[int, quantity(DURATION, "0 s", "1 h")]
Moment = Annotated[int, quantity(DURATION, "0 s", "24 h")]
Timeout = Annotated[int, quantity(DURATION, "1 ms", "1 h")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[!-~]([ -~]{0,4000}[!-~])?$")]
Groups = Mapping[str, NodeGroup]
Key = str | tuple[str | int, ...]
"""A key of an application's table, or the path of one below it."""

_OWN_HEADERS = ("content-length", "transfer-encoding", "cellbed-request")
_HTTP1_HEADERS = ("connection", "keep-alive", "proxy-connection", "te", "upgrade")


class Application(Table):
    """What every application has: the node groups of its programs, and when its load runs."""

    client: AnyRole | None = Field(
        None, description="Node group of the clients. Default: the only group of endpoints.", examples=["endpoint"]
    )
    server: AnyRole | None = Field(None, description="Node group of the servers.", examples=["edge"])
    edge_policy: Literal["fixed", "nearest", "follow-me"] = Field(
        "fixed",
        description="Who serves clients that move to a cell with another edge site. fixed: the server where it is. "
        "nearest: the instance at the new site. follow-me: the same server, which moves there.",
    )
    state: Annotated[int, quantity(SIZE, "0 B", "1 TB")] | None = Field(
        None, description="follow-me: what is sent to the new site before the server continues.", examples=["20 MB"]
    )
    after: list[Name] = Field(
        [], description="Applications whose servers are ready before the programs of this one start.", examples=[["db"]]
    )
    start: Moment = Field(written("0 s"), description="When its load starts, from the start of the workload.")
    stop: Moment | None = Field(None, description="When its load ends. Default: with the workload.", examples=["30 s"])

    def templates(self) -> Iterator[tuple[Key, str]]:
        """The texts in which names are filled in (:mod:`cellbed.scenario.templates`): (key, text)."""
        for key, role in self.roles():
            for path, text in role.texts():
                yield (key, *path), text

    def roles(self) -> Iterator[tuple[Literal["server", "client"], Role]]:
        """The roles that it has, in the order in which their programs start."""
        if self.server is not None:
            yield "server", self.server
        if self.client is not None:
            yield "client", self.client

    def programs(self) -> Iterator[tuple[Literal["server", "client"], Role]]:
        """The roles whose programs are started as they are."""
        return ((key, role) for key, role in self.roles() if role.command is not None)

    def completed(self, groups: Groups) -> Self:
        """The application with the defaults that depend on the nodes filled in."""
        endpoints = _endpoints(groups)
        return self.model_copy(update={"client": self.client or (Role.of_group(endpoints[0]) if endpoints else None)})

    def runs_own(self, key: str) -> bool:
        """Whether the program of a role is cellbed's own."""
        return True

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """Keys that do not fit each other, the nodes or the workload's `duration` (ns): (key, what to do)."""
        yield from self._role_misfits(groups)
        for key, role in self.completed(groups).roles():
            if self.runs_own(key) and role.on in groups and groups[role.on].backend.routed:
                kind = groups[role.on].backend.kind
                yield key, f"programs of cellbed do not run on nodes of kind '{kind}': write another node group"
        if self.start >= duration:
            yield "start", f"the workload ends after {DURATION.format(duration)}: write an earlier time"
        if self.stop is not None and not self.start < self.stop <= duration:
            yield "stop", f"not after 'start' and at most the duration, {DURATION.format(duration)}"

    def _role_misfits(self, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Of an application whose programs are cellbed's own."""
        endpoints = _endpoints(groups)
        if self.client is None and len(endpoints) != 1:
            listed = (
                f"write one of {', '.join(endpoints)}" if endpoints else "add [nodes.endpoint] with cpus and memory"
            )
            yield "client", f"missing, and there are {len(endpoints) or 'no'} groups of endpoints: {listed}"
        for key, role in self.roles():
            yield from self._own_misfits(key, role, groups)

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Of a role whose program is cellbed's own."""
        yield from group_misfits(key, role.on, groups)
        for name in sorted(role.model_fields_set - {"on"}):
            yield (key, name), f"the {key} of this kind is a program of cellbed: remove this key"

    def _program_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Of a role with the user's program."""
        yield from group_misfits(key, role.on, groups)
        if role.on in groups:
            yield from (((key, *path), text) for path, text in role.misfits(groups[role.on]))


def _endpoints(groups: Groups) -> list[str]:
    return [name for name, group in groups.items() if group.node_class == "endpoint"]


def group_misfits(key: Key, name: str, groups: Groups) -> Iterator[tuple[Key, str]]:
    """What is wrong with the name of a node group at `key`."""
    if name not in groups:
        hint = did_you_mean(name, list(groups))
        yield (
            key,
            f"'{name}' has no nodes: {hint}add [nodes.{name}] with cpus and memory, or write one of "
            + ", ".join(groups),
        )


_RATE_IF_NEEDED: dict[str, Any] = {
    "if": {"properties": {"arrivals": {"enum": list(WITH_RATE)}}},
    "then": {"required": ["rate"]},
    "else": {"properties": {"rate": False}},
}


class Load(Application):
    """An application with requests: when they are sent, and how long their replies may take."""

    arrivals: Annotated[Arrivals, ARRIVALS_FORM] = Field(
        "periodic",
        description="Open loop with fixed intervals, as a Poisson process, in bursts, as a ramp or as recorded; closed "
        "loop: a request follows a reply.",
    )
    rate: Rate | None = Field(None, description="Requests per second of each endpoint.", examples=["8 /s"])
    policy: RatePolicy | None = Field(
        None, description="What an endpoint does while replies take long. Default: nothing."
    )
    timeout: Timeout = Field(written("10 s"), description="A slower reply counts as late, a missing one as timed out.")
    drain: Wait = Field(written("5 s"), description="Time to wait for replies after the last request.")

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
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
        """Whether requests wait for replies."""
        return self.arrivals == "closed" or isinstance(self.arrivals, Closed)

    def __str__(self) -> str:
        """The application in a line."""
        rate = f" at {self.rate:g} /s per endpoint" if self.rate else ""
        where = self.server.on if self.server is not None else "no node"
        policy = f"; {self.policy}" if self.policy is not None else ""
        return f"{self.kind} on {where}, {self.arrivals}{rate}{policy}"  # type: ignore[attr-defined]


class Offloading(Load):
    """Inputs go from the endpoints to a node over MQTT, where workers compute the replies."""

    workers: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Worker processes of each server. Default: one per whole CPU.",
        examples=[2],
    )

    @property
    def served_by(self) -> Role | None:
        """The servers."""
        return self.server

    def completed(self, groups: Groups) -> Self:
        """The application with the defaults that depend on the nodes filled in."""
        server = self.served_by
        group = groups.get(server.on) if server is not None else None
        workers = self.workers or (max(1, int(group.cpus)) if group is not None else None)
        return super().completed(groups).model_copy(update={"workers": workers, "server": server})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.served_by is None:
            yield "server", 'missing: write the node group that runs the service, server = "edge"'


class ImageClassification(Offloading):
    """Photographs go from the endpoints to a remote node over MQTT and come back as classes."""

    model_config = ConfigDict(
        json_schema_extra={**_RATE_IF_NEEDED, "anyOf": [{"required": ["server"]}, {"required": ["on"]}]}
    )

    kind: Literal["image-classification"]
    on: Name | None = Field(None, description="The same as 'server'.", examples=["edge"])
    model: Annotated[pathlib.Path, FILE] | None = Field(
        None, description="Model to run, in ONNX or TFLite format. Default: MobileNetV2 with seeded weights."
    )
    runtime: Literal["onnx", "litert"] = Field(
        "onnx", description="ONNX Runtime, or LiteRT for models in TFLite format."
    )
    images: int = Field(100, ge=1, le=10000, description="Number of photographs in the data bank.")
    policy: AnyPolicy | None = Field(  # type: ignore[assignment]
        None, description="What an endpoint does while replies take long. Default: nothing."
    )

    @property
    def served_by(self) -> Role | None:
        """The servers."""
        return self.server or (Role.of_group(self.on) if self.on is not None else None)

    def completed(self, groups: Groups) -> Self:
        """As of :class:`Application`."""
        return super().completed(groups).model_copy(update={"on": None})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.on is not None:
            yield from group_misfits("on", self.on, groups)
            if self.server is not None:
                yield "on", "the same as 'server': remove one of the two"
        if self.model is not None and (self.model.suffix == ".tflite") != (self.runtime == "litert"):
            runs = "a model in TFLite format, FILE.tflite" if self.runtime == "litert" else "no model in TFLite format"
            yield "runtime", f"{self.runtime!r} runs {runs}: write another model or runtime"


class Translation(Offloading):
    """Sentences go from the endpoints to a remote node over MQTT and come back translated."""

    model_config = ConfigDict(json_schema_extra={**_RATE_IF_NEEDED, "required": ["kind", "server"]})

    kind: Literal["translation"]
    model: Annotated[pathlib.Path, TRANSLATOR] | None = Field(
        None,
        description="Folder of a MarianMT model, converted for CTranslate2. Default: the MarianMT architecture with "
        "seeded weights.",
    )
    sentences: int = Field(100, ge=1, le=10000, description="Number of sentences in the data bank.")


class Http(Load):
    """Requests to any HTTP server over HTTP/1.1 or HTTP/2, without TLS."""

    model_config = ConfigDict(json_schema_extra=_RATE_IF_NEEDED)

    kind: Literal["http"]
    url: Annotated[str, Field(max_length=4096)] = Field(
        description="URL of the requests; names in braces are filled in.",
        examples=["http://{server.address}:8080/"],
    )
    method: str = Field("GET", pattern="^[A-Z]{1,16}$", description="Method of the requests.", examples=["POST"])
    headers: dict[HeaderName, HeaderValue] = Field(
        {}, description="Header fields of the requests.", examples=[{"Accept": "text/html"}]
    )
    body: str = Field("", max_length=1 << 20, description="Body of the requests, as text.", examples=["hello"])
    body_file: Annotated[pathlib.Path, BODY_FILE] | None = Field(None, description="File with the body.")
    body_size: Annotated[int, quantity(SIZE, "0 B", "64 MiB")] = Field(
        written("0 B"), description="Length of a body of random bytes.", examples=["100 KiB"]
    )
    version: Literal["1.1", "2"] = Field("1.1", description="Version of HTTP; 2 with prior knowledge.")
    connections: int | None = Field(
        None,
        ge=1,
        le=500,
        description="Connections of each endpoint at a time. Default: 6 with HTTP/1.1, 1 with HTTP/2.",
        examples=[6],
    )

    @field_validator("url")
    @classmethod
    def _is_sound(cls, url: str) -> str:
        if wrong := _url_problem(url):
            raise refusal(wrong)
        return url

    def templates(self) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().templates()
        yield "url", self.url
        yield "body", self.body
        for value in self.headers.values():
            yield "headers", value

    def completed(self, groups: Groups) -> Self:
        """As of :class:`Application`."""
        connections = self.connections or (6 if self.version == "1.1" else 1)
        return super().completed(groups).model_copy(update={"connections": connections})

    def runs_own(self, key: str) -> bool:
        """As of :class:`Application`."""
        return key == "client"

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """The server can be a program of the user, which another application runs if this one has none."""
        if key == "server" and role.model_fields_set != {"on"}:
            return self._program_misfits(key, role, groups)
        return super()._own_misfits(key, role, groups)

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        given = [key for key in ("body", "body_file", "body_size") if getattr(self, key)]
        for key in given[1:]:
            yield key, f"the body is given by '{given[0]}': remove one of the two"
        if self.method == "CONNECT":
            yield "method", "the reply to CONNECT is a tunnel, not a message: write another method"
        for name in self.headers:
            if name.lower() in _OWN_HEADERS or (self.version == "2" and name.lower() in _HTTP1_HEADERS):
                yield "headers", f"'{name}' is set by cellbed: remove it"


def _url_problem(url: str) -> str | None:
    if url.startswith("https:"):
        return "https is not supported: write http:// and a port at which the server uses no TLS"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "a URL has ASCII characters only and no spaces: write other characters percent-encoded"
    filled = re.sub(r"\{[^{}]*\}", "1", url)
    try:
        parts = urlsplit(filled)
        if parts.scheme == "http" and parts.hostname and parts.port != 0 and not parts.fragment and "@" not in filled:
            return None
    except ValueError:
        pass
    return f"{plainly(url)} is not the URL of a request: write one such as 'http://{{server.address}}:8080/path'"


class Program(Application):
    """Any programs, unmodified: clients that start with the load, servers that run before it, or both."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["client"]}, {"required": ["server"]}]})

    kind: Literal["program"]
    drain: Wait = Field(
        written("0 s"), description="How long clients may still run after the end of the load before they are ended."
    )

    def runs_own(self, key: str) -> bool:
        """As of :class:`Application`."""
        return False

    def programs(self) -> Iterator[tuple[Literal["server", "client"], Role]]:
        """As of :class:`Application`; without a command that of the image."""
        return self.roles()

    def completed(self, groups: Groups) -> Self:
        """As of :class:`Application`; only a server is a service without a load."""
        return self

    def _role_misfits(self, groups: Groups) -> Iterator[tuple[Key, str]]:
        if not list(self.roles()):
            yield "client", 'missing, and \'server\' too: write client = { on = "endpoint", command = "…" }'
        for key, role in self.roles():
            yield from self._program_misfits(key, role, groups)
        if self.client is not None and self.client.ready is not None:
            yield ("client", "ready"), "nothing waits for a client: remove this key"

    def __str__(self) -> str:
        """The application in a line."""
        parts = [f"{(role.command or ['the program of its image'])[0]} on {role.on}" for _, role in self.roles()]
        return f"{self.kind}: {' and '.join(parts)}"


AnyApplication = Annotated[ImageClassification | Translation | Http | Program, Field(discriminator="kind")]

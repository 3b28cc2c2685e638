"""HTTP requests in a scenario."""

import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from cellbed.scenario.applications import RATE_IF_NEEDED, TELEMETRY_KEY, Groups, Key, Load, Wait
from cellbed.scenario.fields import BODY_FILE, plainly, quantity, refusal
from cellbed.scenario.nodes import Name
from cellbed.scenario.roles import Role
from cellbed.scenario.table import Table, written
from cellbed.scenario.templates import NAMES, without
from cellbed.support.units import SIZE
from cellbed_node.http.journeys import JSON_PATH

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[!-~]([ -~]{0,4000}[!-~])?$")]
Target = Annotated[str, Field(pattern=r"^/[!-~]{0,4000}$")]
_BODIES = ("body", "body_file", "body_size", "body_hex")
METHODS = ("get", "post", "put", "patch", "delete", "head")
_NAME = r"\{[^{}]*\}"
_OWN_HEADERS = ("content-length", "transfer-encoding", "cellbed-request")
_HTTP1_HEADERS = ("connection", "keep-alive", "proxy-connection", "te", "upgrade")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Step(Table):
    """A request of a journey: its method with the path on the server, and what the user does before and after it."""

    get: Target | None = Field(None, description="Path of a GET request.", examples=["/"])
    post: Target | None = Field(None, description="Path of a POST request.", examples=["/cart"])
    put: Target | None = Field(None, description="Path of a PUT request.", examples=["/cart"])
    patch: Target | None = Field(None, description="Path of a PATCH request.", examples=["/cart"])
    delete: Target | None = Field(None, description="Path of a DELETE request.", examples=["/cart"])
    head: Target | None = Field(None, description="Path of a HEAD request.", examples=["/"])
    name: Annotated[str, Field(pattern="^[ -~]{1,60}$")] | None = Field(
        None, description="Name in reports. Default: method and path.", examples=["cart"]
    )
    headers: dict[HeaderName, HeaderValue] = Field(
        {}, description="Header fields in addition to the common ones.", examples=[{"Accept": "text/html"}]
    )
    body: str = Field("", max_length=1 << 20, description="Body of the request, as text.", examples=["item={item}"])
    think: Annotated[list[Wait], BeforeValidator(_as_list, json_schema_input_type=str | list[str])] = Field(
        written(["0 s"]),
        min_length=1,
        max_length=2,
        description="Time from the reply before to this request; or least and most, evenly distributed.",
        examples=["1 s", ["1 s", "3 s"]],
    )
    take: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,30}$")], str] = Field(
        {},
        description="Values taken from the reply for texts of later steps: a place in JSON, or a regular expression "
        "for the lines of header fields, an empty line and the body (its group, or all).",
        examples=[{"item": "$.items[0].id", "token": 'name="token" value="([^"]+)"'}],
    )

    @property
    def request(self) -> tuple[str, str]:
        """The method, which is a key of this table, and the path."""
        ((method, target),) = ((name, target) for name in METHODS if (target := getattr(self, name)) is not None)
        return method, target

    def texts(self) -> Iterator[tuple[Key, str]]:
        """Yield the texts with names to fill in: (key, text)."""
        yield self.request
        yield "body", self.body
        for value in self.headers.values():
            yield "headers", value

    def configuration(self) -> dict[str, Any]:
        """Return the load generator's configuration (:class:`cellbed_node.http.journeys.Step`)."""
        method, target = self.request
        name = self.name or f"{method.upper()} {target}"
        parts = {"headers": self.headers, "body": self.body, "think_ns": self.think, "take": self.take}
        return {"name": name, "method": method.upper(), "target": target, **parts}

    @field_validator("take")
    @classmethod
    def _are_expressions(cls, take: dict[str, str]) -> dict[str, str]:
        for name, expression in take.items():
            if name in NAMES:
                raise refusal(f"'{name}' is a name with another meaning: choose another one")
            if expression.startswith("$") and not JSON_PATH.fullmatch(expression):
                raise refusal(f"{plainly(expression)} is not a place in JSON: write one such as '$.items[0].id'")
            try:
                re.compile(expression)
            except re.error as error:
                raise refusal(f"{plainly(expression)} is not a regular expression: {error}") from error
        return take

    @model_validator(mode="after")
    def _has_a_request(self) -> Self:
        if sum(getattr(self, name) is not None for name in METHODS) != 1:
            raise refusal(f'needs one of {", ".join(METHODS)}: write for example {{ get = "/" }}')
        if self.think[0] > self.think[-1]:
            raise refusal("the least time of 'think' is longer than the most: exchange them")
        return self


class Journey(Table):
    """Requests that a user sends one after the other."""

    weight: float = Field(1.0, gt=0, le=1e6, description="How often users choose it, in relation to others.")
    steps: list[Step] = Field(min_length=1, max_length=1000, description="The requests.", examples=[[{"get": "/"}]])

    def configuration(self) -> dict[str, Any]:
        """Return the load generator's configuration (:class:`cellbed_node.http.journeys.Journey`)."""
        return {"weight": self.weight, "steps": [step.configuration() for step in self.steps]}


class WebLoad(Load):
    """The base of loads of a server of the user, which has a URL."""

    model_config = ConfigDict(json_schema_extra=RATE_IF_NEEDED)

    if TYPE_CHECKING:  # fields of each kind
        url: str
        headers: dict[str, str]

    def templates(self) -> Iterator[tuple[Key, str]]:
        yield from super().templates()
        yield "url", self.url
        for value in self.headers.values():
            yield "headers", value

    @property
    def has_certificate(self) -> bool:
        return self.url.startswith(("https:", "wss:")) or super().has_certificate

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Yield problems of a role. The server can be a user's program, or run by another application."""
        if key == "server" and role.model_fields_set != {"on"}:
            return self._program_misfits(key, role, groups)
        return super()._own_misfits(key, role, groups)


class Http(WebLoad):
    """Requests to any HTTP server over HTTP/1.1 or HTTP/2, with TLS or without."""

    balances_requests: ClassVar[bool] = True
    starter: ClassVar[str] = """\
url = "http://{server.address}:8080/"
server = { on = "edge", command = "python3 -m http.server --protocol HTTP/1.1 8080", ready = { port = 8080 } }
"""

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
    body_hex: str = Field(
        "",
        pattern="^([0-9a-fA-F]{2})*$",
        max_length=2 << 20,
        description="Body as bytes in hexadecimal.",
        examples=["0a0161"],
    )
    grpc: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_.]{1,200}/[A-Za-z0-9_]{1,200}$",
        description="Method of gRPC that is called, with the body as message.",
        examples=["helloworld.Greeter/SayHello"],
    )
    messages: int = Field(1, ge=1, le=1000, description="Messages of each call of gRPC, sent at once.")
    version: Literal["1.1", "2"] = Field("1.1", description="Version of HTTP; 2 without TLS with prior knowledge.")
    stream: Literal["sse", "chunks"] | None = Field(
        None,
        description="Measure each message of a reply: server-sent events, or chunks (over HTTP/2 DATA frames).",
        examples=["sse"],
    )
    journey: list[Step] = Field(
        [],
        max_length=1000,
        description="Requests that each user sends one after the other, in place of equal requests.",
        examples=[[{"get": "/"}, {"post": "/cart", "think": "1 s"}]],
    )
    journeys: dict[Name, Journey] = Field(
        {},
        description="Several journeys by name; each user chooses one.",
        examples=[{"browse": {"weight": 3, "steps": [{"get": "/"}]}}],
    )
    connections: int | None = Field(
        None,
        ge=1,
        le=500,
        description="Connections of each endpoint at a time. Default: 6 with HTTP/1.1, 1 with HTTP/2.",
        examples=[6],
    )

    telemetry: bool = TELEMETRY_KEY

    @field_validator("url")
    @classmethod
    def _is_sound(cls, url: str) -> str:
        return sound_url(url, "http")

    def templates(self) -> Iterator[tuple[Key, str]]:
        yield from super().templates()
        yield "body", self.body
        for path, steps in self._paths():
            taken: set[str] = set()
            for index, step in enumerate(steps):
                for key, text in step.texts():
                    yield (*path, index, str(key)), without(text, taken)
                taken |= step.take.keys()

    def all_journeys(self) -> list[Journey]:
        """Return the journeys of the users; none if all requests are equal."""
        return [Journey(weight=1.0, steps=self.journey)] if self.journey else list(self.journeys.values())

    def _paths(self) -> Iterator[tuple[tuple[str, ...], list[Step]]]:
        yield ("journey",), self.journey
        for name, journey in self.journeys.items():
            yield ("journeys", name, "steps"), journey.steps

    @property
    def chooses_server(self) -> bool:
        """True if the load generator chooses a server for each request."""
        return self.balance not in ("client", "connection")

    def complete(self, groups: Groups) -> Self:
        version = self.version if self.grpc is None else "2"
        connections = self.connections or (6 if version == "1.1" else 1)
        return super().complete(groups).model_copy(update={"version": version, "connections": connections})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        given = [key for key in _BODIES if getattr(self, key)]
        for key in given[1:]:
            yield key, f"the body is given by '{given[0]}': remove one of the two"
        if self.chooses_server and not re.match(r"https?://\{server\.address\}(:|/|$)", self.url):
            yield "url", "the load generator chooses the server: write {server.address} as the host"
        if self.method == "CONNECT":
            yield "method", "the reply to CONNECT is a tunnel, not a message: write another method"
        if self.journey and self.journeys:
            yield "journey", "not allowed with 'journeys': move it there, with a name"
        if self.all_journeys():
            for key in sorted({"method", "grpc", *_BODIES} & self.model_fields_set):
                yield key, "the steps of a journey have their own: remove this key"
        if self.grpc is None and "messages" in self.model_fields_set:
            yield "messages", "only calls of gRPC have several: write 'grpc', too, or remove this key"
        if self.grpc is not None:
            for key in sorted({"method", "stream"} & self.model_fields_set):
                yield key, "'grpc' determines it: remove this key"
            if self.version == "1.1" and "version" in self.model_fields_set:
                yield "version", "gRPC needs HTTP/2: remove this key"
        has_path = urlsplit(re.sub(_NAME, "1", self.url))[2:4] not in (("", ""), ("/", ""))
        if has_path and (self.grpc is not None or self.all_journeys()):
            where = "method of gRPC has" if self.grpc is not None else "steps of a journey have"
            yield "url", f"the {where} the path: write the URL of the server without one"
        yield from self._header_misfits((), self.headers)
        for path, steps in self._paths():
            for at, step in enumerate(steps):
                yield from self._header_misfits((*path, at), step.headers)

    def _header_misfits(self, path: tuple[str | int, ...], headers: dict[str, str]) -> Iterator[tuple[Key, str]]:
        """Yield the problems of header fields. path: step that has the fields."""
        for name in headers:
            if name.lower() in (*_OWN_HEADERS, *["traceparent"] * self.telemetry) or (
                self.version == "2" and name.lower() in _HTTP1_HEADERS
            ):
                yield (*path, "headers"), f"'{name}' is set by cellbed: remove it"
            if path and name.lower() == "host":
                yield (*path, "headers"), "all requests have one 'Host': write it in 'headers' of the application"


def sound_url(url: str, scheme: str) -> str:
    """Return a URL with this scheme, or the scheme plus ``s``, if the URL is valid."""
    if wrong := _url_problem(url, scheme):
        raise refusal(wrong)
    return url


def _url_problem(url: str, scheme: str) -> str | None:
    if not url.isascii() or not url.isprintable() or " " in url:
        return "a URL has ASCII characters only and no spaces: write other characters percent-encoded"
    filled = re.sub(_NAME, "1", url)
    try:
        parts = urlsplit(filled)
        fits = parts.scheme in (scheme, f"{scheme}s")
        if fits and parts.hostname and parts.port != 0 and not parts.fragment and "@" not in filled:
            return None
    except ValueError:
        pass
    return f"{plainly(url)} is not the URL of a request: write one such as '{scheme}://{{server.address}}:8080/path'"

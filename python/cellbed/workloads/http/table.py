"""The table of the kind in a scenario."""

import pathlib
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, Load
from cellbed.scenario.fields import BODY_FILE, plainly, quantity, refusal
from cellbed.scenario.roles import Role
from cellbed.scenario.table import written
from cellbed.support.units import SIZE

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[!-~]([ -~]{0,4000}[!-~])?$")]
_OWN_HEADERS = ("content-length", "transfer-encoding", "cellbed-request")
_HTTP1_HEADERS = ("connection", "keep-alive", "proxy-connection", "te", "upgrade")


class Http(Load):
    """Requests to any HTTP server over HTTP/1.1 or HTTP/2, with TLS or without."""

    model_config = ConfigDict(json_schema_extra=RATE_IF_NEEDED)

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
    version: Literal["1.1", "2"] = Field("1.1", description="Version of HTTP; 2 without TLS with prior knowledge.")
    stream: Literal["sse", "chunks"] | None = Field(
        None,
        description="Measure each message of a reply: server-sent events, or chunks (over HTTP/2 DATA frames).",
        examples=["sse"],
    )
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

    @property
    def certified(self) -> bool:
        """As of :class:`Application`."""
        return self.url.startswith("https:") or super().certified

    def completed(self, groups: Groups) -> Self:
        """As of :class:`Application`."""
        connections = self.connections or (6 if self.version == "1.1" else 1)
        return super().completed(groups).model_copy(update={"connections": connections})

    def runs_own(self, key: str) -> bool:
        """As of :class:`Application`."""
        return key == "client"

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Return the server can be a program of the user, which another application runs if this one has none."""
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
    if not url.isascii() or not url.isprintable() or " " in url:
        return "a URL has ASCII characters only and no spaces: write other characters percent-encoded"
    filled = re.sub(r"\{[^{}]*\}", "1", url)
    try:
        parts = urlsplit(filled)
        is_http = parts.scheme in ("http", "https")
        if is_http and parts.hostname and parts.port != 0 and not parts.fragment and "@" not in filled:
            return None
    except ValueError:
        pass
    return f"{plainly(url)} is not the URL of a request: write one such as 'http://{{server.address}}:8080/path'"

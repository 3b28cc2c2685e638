"""The table of the kind in a scenario."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, Load
from cellbed.scenario.fields import quantity
from cellbed.scenario.roles import Role
from cellbed.scenario.table import written
from cellbed.scenario.templates import without
from cellbed.support.units import SIZE
from cellbed.workloads.http.table import HeaderName, HeaderValue, sound_url

_REQUEST = "request"
"""The name in braces that stands for endpoint and number of a message."""


class Websocket(Load):
    """Messages over WebSockets to any server, with its replies and the messages that it sends on its own."""

    model_config = ConfigDict(json_schema_extra=RATE_IF_NEEDED)

    kind: Literal["websocket"]
    url: Annotated[str, Field(max_length=4096)] = Field(
        description="URL of the server; names in braces are filled in.", examples=["ws://{server.address}:8765/chat"]
    )
    headers: dict[HeaderName, HeaderValue] = Field(
        {}, description="Header fields of the handshake.", examples=[{"Origin": "http://shop"}]
    )
    message: str = Field(
        "{request}",
        min_length=1,
        max_length=1 << 20,
        description="Content of a message; {request} stands for its endpoint and number.",
        examples=['{{"say": "{request}"}}'],
    )
    size: Annotated[int, quantity(SIZE, "0 B", "1 MiB")] = Field(
        written("0 B"), description="Least length of a message, which is filled up with dots.", examples=["1 KiB"]
    )
    reply: Literal["echo", "next"] = Field(
        "echo", description="The reply to a message: the one with the same {request}, or the next of its connection."
    )
    connections: int = Field(1, ge=1, le=500, description="WebSockets of each endpoint, open from the start on.")

    @field_validator("url")
    @classmethod
    def _is_sound(cls, url: str) -> str:
        return sound_url(url, "ws")

    def templates(self) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().templates()
        yield "url", self.url
        yield "message", without(self.message, {_REQUEST})
        for value in self.headers.values():
            yield "headers", value

    @property
    def certified(self) -> bool:
        """As of :class:`Application`."""
        return self.url.startswith("wss:") or super().certified

    def runs_own(self, key: str) -> bool:
        """As of :class:`Application`."""
        return key == "client"

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        if key == "server" and role.model_fields_set != {"on"}:
            return self._program_misfits(key, role, groups)
        return super()._own_misfits(key, role, groups)

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.reply == "echo" and f"{{{_REQUEST}}}" not in self.message:
            yield "message", "an echo is known by its {request}: write it in the message, or reply = 'next'"
        for name in self.headers:
            if name.lower().startswith("sec-websocket-") or name.lower() in ("connection", "upgrade"):
                yield "headers", f"'{name}' is set by cellbed: remove it"

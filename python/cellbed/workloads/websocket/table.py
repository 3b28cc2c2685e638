"""WebSocket messages in a scenario."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from cellbed.scenario.applications import Groups, Key
from cellbed.scenario.fields import quantity
from cellbed.scenario.table import written
from cellbed.scenario.templates import without
from cellbed.support.units import SIZE
from cellbed.workloads.http.table import HeaderName, HeaderValue, WebLoad, sound_url

_REQUEST = "request"
"""Name in braces for endpoint and number of a message."""


class Websocket(WebLoad):
    """Messages over WebSockets to any server, with its replies and unrequested messages."""

    starter: ClassVar[str] = """\
url = "ws://{server.address}:8765/"
server = { on = "edge", command = "python3 server.py", ready = { port = 8765 } }    # your server
"""

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
        yield from super().templates()
        yield "message", without(self.message, {_REQUEST})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.reply == "echo" and f"{{{_REQUEST}}}" not in self.message:
            yield "message", "an echo is known by its {request}: write it in the message, or reply = 'next'"
        for name in self.headers:
            if name.lower().startswith("sec-websocket-") or name.lower() in ("connection", "upgrade"):
                yield "headers", f"'{name}' is set by cellbed: remove it"

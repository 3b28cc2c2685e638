"""The table of the kind in a scenario."""

from typing import Literal

from pydantic import Field

from cellbed.scenario.applications import Load


class Echo(Load):
    """Datagrams that a server sends back."""

    kind: Literal["echo"]
    size: int = Field(200, ge=8, le=1400, description="Length of a datagram, bytes.")

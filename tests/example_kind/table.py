"""The table of the kind in a scenario."""

from typing import Literal

from pydantic import Field

from cellbed.scenario.applications import Load


class StatusPoll(Load):
    """Requests for the status of a server."""

    kind: Literal["status-poll"]
    port: int = Field(8080, ge=1, le=65535, description="Port of the server.")

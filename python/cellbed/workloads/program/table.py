"""Programs of the user in a scenario."""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import TELEMETRY_KEY, Application, Groups, Key, Wait
from cellbed.scenario.roles import Role
from cellbed.scenario.table import written

_END = 5_000_000_000
"""Default drain of clients that use ``{duration_s}``, ns."""


class Program(Application):
    """Any programs, unmodified: clients that start with the load, servers that run before it, or both."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["client"]}, {"required": ["server"]}]})

    starter: ClassVar[str] = """\
client = { on = "endpoint", command = "iperf3 --client {server.address} --time 20" }    # any program
server = { on = "edge", command = "iperf3 --server", ready = { port = 5201 } }
"""

    kind: Literal["program"]
    drain: Wait = Field(
        written("0 s"),
        description="Time for clients to end after the end of the load, before they are killed. Default: 0 s, 5 s for "
        "clients that take {duration_s}.",
    )
    telemetry: bool = TELEMETRY_KEY

    def programs(self) -> Iterator[tuple[Literal["server", "client"], Role]]:
        return self.roles()

    def complete(self, groups: Groups) -> Self:
        """Return the application; a client that uses the duration of its load gets time to end after it."""
        timed = self.client is not None and any("{duration_s}" in text for _, text in self.client.texts())
        return self.model_copy(update={"drain": _END}) if timed and "drain" not in self.model_fields_set else self

    def _role_misfits(self, groups: Groups) -> Iterator[tuple[Key, str]]:
        if not list(self.roles()):
            yield "client", 'missing, and \'server\' too: write client = { on = "endpoint", command = "…" }'
        for key, role in self.roles():
            yield from self._program_misfits(key, role, groups)
        if self.client is not None and self.client.ready is not None:
            yield ("client", "ready"), "nothing waits for a client: remove this key"

    def __str__(self) -> str:
        """Return the application in a line."""
        parts = [f"{(role.command or ['the program of its image'])[0]} on {role.on}" for _, role in self.roles()]
        return f"{self.kind}: {' and '.join(parts)}"

"""The keys of all kinds that offload over MQTT."""

from collections.abc import Iterator
from typing import Self

from pydantic import Field

from cellbed.scenario.applications import Groups, Key, Load
from cellbed.scenario.roles import Role


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

    @property
    def movable_by(self) -> tuple[str, ...]:
        """Broker and workers have no state, and endpoints connect again."""
        return ("redeploy",)

    def completed(self, groups: Groups) -> Self:
        """Return the application with the defaults that depend on the nodes filled in."""
        server = self.served_by
        group = groups.get(server.on) if server is not None else None
        workers = self.workers or (max(1, int(group.cpus)) if group is not None else None)
        return super().completed(groups).model_copy(update={"workers": workers, "server": server})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.served_by is None:
            yield "server", 'missing: write the node group that runs the service, server = "edge"'

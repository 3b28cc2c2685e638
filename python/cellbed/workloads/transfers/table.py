"""The table of the kind in a scenario."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, Load
from cellbed.scenario.fields import quantity
from cellbed.support.units import BIT_RATE, SIZE
from cellbed.workloads.transfers import LARGEST

Size = Annotated[int, quantity(SIZE, "1 B", SIZE.format(LARGEST))]


class Transfers(Load):
    """Uploads and downloads of given sizes over TCP, over UDP at a rate, or over QUIC."""

    model_config = ConfigDict(
        json_schema_extra={
            **RATE_IF_NEEDED,
            "required": ["kind", "server"],
            "anyOf": [{"required": ["upload"]}, {"required": ["download"]}],
        }
    )

    kind: Literal["transfers"]
    protocol: Literal["tcp", "udp", "quic"] = Field(
        "tcp", description="Protocol; each transfer has a connection (UDP: a flow) of its own."
    )
    upload: list[Size] = Field(
        [], max_length=100, description="Sizes of uploads, which are taken in turn.", examples=[["200 kB", "5 MB"]]
    )
    download: list[Size] = Field(
        [], max_length=100, description="Sizes of downloads, which follow the uploads.", examples=[["200 kB", "5 MB"]]
    )
    bit_rate: Annotated[int, quantity(BIT_RATE, "1 kbit/s", "1 Gbit/s")] | None = Field(
        None, description="UDP: at which the bytes of a transfer are sent.", examples=["8 Mbit/s"]
    )

    @property
    def transfers(self) -> list[tuple[str, int]]:
        """Return the transfers in their order, each with its size in bytes."""
        return [*(("upload", size) for size in self.upload), *(("download", size) for size in self.download)]

    @property
    def certified(self) -> bool:
        """As of :class:`Application`."""
        return self.protocol == "quic" or super().certified

    @property
    def packages(self) -> tuple[str, ...]:
        """As of :class:`Application`."""
        return ("aioquic",) if self.protocol == "quic" else ()

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.server is None:
            yield "server", 'missing: write the node group at the other end of the transfers, server = "edge"'
        if not self.transfers:
            yield "download", 'missing: write sizes here or in \'upload\', download = ["200 kB", "5 MB"]'
        if self.protocol == "udp" and self.bit_rate is None:
            yield "bit_rate", 'missing: UDP sends at a rate; write bit_rate = "8 Mbit/s"'
        if self.protocol != "udp" and self.bit_rate is not None:
            yield "bit_rate", f'{self.protocol.upper()} finds its rate: write protocol = "udp", or remove this key'

"""Transfers in a scenario."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, Load
from cellbed.scenario.fields import SIZES, quantity
from cellbed.support.flow_files import FlowFileError, Sizes, draw, load_published, read_sizes
from cellbed.support.units import BIT_RATE, SIZE
from cellbed_node.transfers import LARGEST

_DRAWN = 1000
"""Number of drawn transfers of a client; after the last one, they repeat."""

Size = Annotated[int, quantity(SIZE, "1 B", SIZE.format(LARGEST))]


class Transfers(Load):
    """Uploads and downloads of given sizes over TCP, over UDP at a rate, or over QUIC."""

    model_config = ConfigDict(
        json_schema_extra={
            **RATE_IF_NEEDED,
            "required": ["kind", "server"],
            "anyOf": [{"required": [key]} for key in ("upload", "download", "upload_sizes", "download_sizes")],
        }
    )

    usual_load: ClassVar[str] = "closed"

    kind: Literal["transfers"]
    protocol: Literal["tcp", "udp", "quic"] = Field(
        "tcp", description="Protocol; each transfer has a separate connection (UDP: flow)."
    )
    upload: list[Size] = Field(
        [], max_length=100, description="Sizes of uploads, which are taken in turn.", examples=[["200 kB", "5 MB"]]
    )
    download: list[Size] = Field(
        [], max_length=100, description="Sizes of downloads, which follow the uploads.", examples=[["200 kB", "5 MB"]]
    )
    upload_sizes: Annotated[Path | str, SIZES] | None = Field(
        None,
        description="Distribution of the sizes of uploads: ftp-ngmn, campus, or the path of a file. Its lines have a "
        "size in packets of 1460 B, the number 1, and the cumulative share.",
    )
    download_sizes: Annotated[Path | str, SIZES] | None = Field(
        None, description="The same for downloads; with both, uploads and downloads are equally frequent."
    )
    bit_rate: Annotated[int, quantity(BIT_RATE, "1 kbit/s", "10 Gbit/s")] | None = Field(
        None, description="UDP: rate at which the bytes of a transfer are sent.", examples=["8 Mbit/s"]
    )

    @property
    def movable_by(self) -> tuple[str, ...]:
        """The strategy redeploy only: the server has no state, and each transfer opens a new connection."""
        return ("redeploy",)

    @property
    def distributions(self) -> dict[str, Path | str]:
        """The files or names of distributions, by direction."""
        found = {"upload": self.upload_sizes, "download": self.download_sizes}
        return {way: each for way, each in found.items() if each is not None}

    def transfers(self, random: Random) -> list[tuple[str, int]]:
        """Return the transfers in order, each with its size in bytes; a thousand if drawn from distributions. Errors:
        :class:`~cellbed.support.flow_files.FlowFileError`."""
        if self.distributions:
            sizes = {way: _sizes(each) for way, each in self.distributions.items()}
            ways = random.choices(list(sizes), k=_DRAWN)
            return [(way, draw(sizes[way], random.random())) for way in ways]
        return [*(("upload", size) for size in self.upload), *(("download", size) for size in self.download)]

    @property
    def has_certificate(self) -> bool:
        return self.protocol == "quic" or super().has_certificate

    @property
    def packages(self) -> dict[str, str]:
        return {"aioquic": "quic"} if self.protocol == "quic" else {}

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.server is None:
            yield "server", 'missing: write the node group at the other end of the transfers, server = "edge"'
        if not (self.upload or self.download or self.distributions):
            yield "download", 'missing: write sizes here or in \'upload\', download = ["200 kB", "5 MB"]'
        for way, source in self.distributions.items():
            if self.upload or self.download:
                yield f"{way}_sizes", "sizes are listed already: remove 'upload' and 'download', or this key"
            try:
                largest = _sizes(source)[-1][0]
            except FlowFileError as error:
                yield f"{way}_sizes", str(error)
            else:
                if largest > LARGEST:
                    text = f"the largest size, {SIZE.format(round(largest))}, is above {SIZE.format(LARGEST)}"
                    yield f"{way}_sizes", f"{text}: end the distribution there"
        if self.protocol == "udp" and self.bit_rate is None:
            yield "bit_rate", 'missing: UDP sends at a rate; write bit_rate = "8 Mbit/s"'
        if self.protocol != "udp" and self.bit_rate is not None:
            yield "bit_rate", f'{self.protocol.upper()} has no fixed rate: write protocol = "udp", or remove this key'


def _sizes(source: Path | str) -> Sizes:
    """Return the distribution of a file, or of a published name. Errors: :class:`FlowFileError`."""
    return read_sizes(source) if isinstance(source, Path) else load_published(source)

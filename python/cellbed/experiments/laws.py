"""Compare congestion control laws: a sweep over laws, links and numbers of flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from cellbed.laws.law import Law
from cellbed.scenario.fields import CONGESTION_CONTROL
from cellbed.support.errors import CellbedError
from cellbed.support.units import DURATION, UnitError
from cellbed.support.whole_files import write_whole

if TYPE_CHECKING:
    import polars as pl

    from cellbed.experiments.sweep.library import Sweep

MEASURES = ("throughput_mbit_s", "round_trip_p50_s", "retransmitted")
_PORT = 5201
_DRAIN_S = 5
"""Of the schedule: connections open, and the last packets arrive."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The laws of bulk transfers to compare.

    laws: as a scenario names them. links: rates, or the common part of the names of two traces (NAME.up, NAME.down).
    flows: numbers of simultaneous transfers. upload: instead of downloads. seconds: of each transfer. delay: one way,
    beside the link's queue, as text with unit. queue: limit of the bottleneck's drop-tail queue.
    """

    laws: Sequence[str]
    links: Sequence[str]
    flows: Sequence[int] = (1,)
    upload: bool = False
    seconds: int = 20
    delay: str = "20 ms"
    queue: str = "1 MB"
    repetitions: int = 3

    def write(self, folder: Path, beside: Path) -> Path:
        """Write scenario and sweep into a folder; returns the sweep file. beside: where relative paths begin.

        Errors: :class:`CellbedError` for what is no law or length of time.
        """
        laws = {}
        for text in self.laws:
            try:
                control = CONGESTION_CONTROL.read(text, beside)
            except UnitError as error:
                raise CellbedError(f"--laws: {error}") from error
            laws[control.name if isinstance(control, Law) else text] = CONGESTION_CONTROL.show(control)
        if len(laws) < len(self.laws):
            raise CellbedError("--laws: two laws have the same name: give each header its own")
        links = {
            text if _is_rate(text) else Path(text).name: [_direction(text, way, beside) for way in ("up", "down")]
            for text in self.links
        }
        way = "" if self.upload else " --reverse"
        client = f"iperf3 --client {{server.address}} --time {self.seconds}{way}"
        node = {"cpus": 1.0, "memory": "256 MiB"}
        scenario: dict[str, Any] = {
            "name": "laws",
            "duration": DURATION.format((self.seconds + _DRAIN_S) * 10**9),
            "nodes": {"endpoint": node, "edge": node},
            "links": {
                "mobile": {"base_delay": self.delay, "queue": {"kind": "droptail", "limit": self.queue}},
                "core": {"edge": "0 ms"},
            },
            "apps": {
                "bulk": {
                    "kind": "program",
                    "server": {"on": "edge", "command": f"iperf3 --server --port {_PORT}", "ready": {"port": _PORT}},
                    "client": {"on": "endpoint"},
                }
            },
        }
        flows = {str(count): f"{client} --parallel {count}" for count in self.flows}
        sweep = {
            "name": "laws",
            "scenario": "laws-scenario.toml",
            "repetitions": self.repetitions,
            "factors": {
                "law": {"key": "transport.congestion_control", "levels": laws},
                "link": {"keys": ["links.mobile.up", "links.mobile.down"], "levels": links},
                "flows": {"key": "apps.bulk.client.command", "levels": flows},
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("laws-scenario.toml", scenario), ("laws.toml", sweep)):
            write_whole(folder / name, partial(Path.write_text, data=tomli_w.dumps(content), encoding="utf-8"))
        return folder / "laws.toml"

    def results(self, sweep: Sweep) -> pl.DataFrame:
        """Return a row for each point: link, flows, law, and each of `MEASURES` with its 95 % interval."""
        import polars as pl

        way = "up" if self.upload else "down"
        found = sweep.points.select("link", "flows", "law")
        for measure in MEASURES:
            column = measure.replace("throughput", f"throughput_{way}")
            ends = [pl.col(end).alias(f"{measure}_{end}") for end in ("low", "high")]
            values = sweep.intervals(column).select("link", "flows", "law", pl.col("value").alias(measure), *ends)
            found = found.join(values, on=["link", "flows", "law"], how="left", maintain_order="left")
        return found.sort("link", "flows", maintain_order=True)


def _is_rate(link: str) -> bool:
    """Return whether a link is a rate: it has a unit behind a space."""
    return " " in link


def _direction(link: str, way: str, beside: Path) -> str:
    """Return the capacity of a direction: of a trace or a rate."""
    if _is_rate(link):
        return link
    file = beside / f"{link}.{way}"
    return str(file.absolute()) if file.is_file() else f"{link}.{way}"

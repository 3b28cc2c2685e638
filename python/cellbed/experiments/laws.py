"""Compare congestion control laws: a sweep over laws, links and numbers of flows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from cellbed.archive import open_archive, resolve
from cellbed.archive.series import ENDINGS
from cellbed.laws.law import KERNEL_CONTROLS, Law, load_shipped, name_of
from cellbed.measure.repetitions import mean_interval
from cellbed.recordings.importing import make_traces
from cellbed.recordings.recording import DESCRIPTION
from cellbed.scenario.fields import CONGESTION_CONTROL
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import BIT_RATE, DURATION, UnitError
from cellbed.support.whole_files import write_whole
from cellbed.testbed.testbed import available_congestion_controls, congestion_problem
from cellbed_node import inputs

if TYPE_CHECKING:
    import polars as pl

    from cellbed.experiments.sweep.library import Sweep

MEASURES = ("throughput_mbit_s", "rivals_mbit_s", "round_trip_s", "retransmitted")
_TRANSFERRED = ("round_trip_s", "fairness")
_PORT = 5201
_DRAIN_S = 5
"""Seconds of the schedule beyond the transfers: connections open, and the last packets arrive."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The laws of bulk transfers to compare.

    laws: in the notation of a scenario. links: rates, entries of the archive, the common part of the names of two
    traces (NAME.up, NAME.down), recordings in any format. flows: numbers of simultaneous transfers. against: laws of as
    many rivals, which download over the same link. upload: upload instead of downloading, without rivals. seconds:
    length of each transfer. delay: one way, beside the link's queue, as text with unit. queue: limit of the
    bottleneck's drop-tail queue. series: sample the flows. virtual: only in virtual time, so that this machine needs
    none of the laws.
    """

    laws: Sequence[str]
    links: Sequence[str]
    flows: Sequence[int] = (1,)
    against: Sequence[str] = ()
    upload: bool = False
    seconds: int = 20
    delay: str = "20 ms"
    queue: str = "1 MB"
    repetitions: int = 3
    series: bool = False
    virtual: bool = False

    def write(self, folder: Path, beside: Path) -> Path:
        """Write scenario and sweep into a folder; return the sweep file. beside: base of relative paths.

        Errors: :class:`CellbedError` for an invalid law, link or duration.
        """
        laws, rivals = (_laws(each, beside, self.virtual) for each in (self.laws, self.against))
        links = {
            text if _is_rate(text, beside) else Path(text).name: self._link(text, folder, beside) for text in self.links
        }
        if len(links) < len(self.links):
            raise CellbedError("two links have the same name: rename a file or folder")
        way = "" if self.upload else " --reverse"
        node = {"cpus": 1.0, "memory": "256 MiB"}
        scenario: dict[str, Any] = {
            "name": "laws",
            "duration": DURATION.format((self.seconds + _DRAIN_S) * 10**9),
            "nodes": {"endpoint": node, "edge": node},
            "links": {"core": {"edge": "0 ms"}},
            "apps": {"bulk": _transfers("edge")},
            **({"transport": {"series": True}} if self.series else {}),
        }
        client = f"iperf3 --client {{bulk.address}} --time {self.seconds}{way} --parallel"
        factors: dict[str, Any] = {
            "law": {"key": "transport.congestion_control", "levels": laws},
            "link": {"key": "links.mobile", "levels": links},
        }
        if rivals:
            scenario["nodes"]["rival"] = {"class": "edge", **node}
            scenario["apps"]["rival"] = _transfers("rival")
            factors["against"] = {"key": "nodes.rival.congestion_control", "levels": rivals}
        flows = {}
        for count in self.flows:
            commands = [f"{client.replace('bulk', app)} {count}" for app in scenario["apps"]]
            flows[str(count)] = commands if rivals else commands[0]  # the level of a single key is no list
        factors["flows"] = {"keys": [f"apps.{app}.client.command" for app in scenario["apps"]], "levels": flows}
        sweep = {"name": "laws", "scenario": "laws-scenario.toml", "repetitions": self.repetitions, "factors": factors}
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("laws-scenario.toml", scenario), ("laws.toml", sweep)):
            write_whole(folder / name, partial(Path.write_text, data=tomli_w.dumps(content), encoding="utf-8"))
        return folder / "laws.toml"

    def _link(self, text: str, folder: Path, beside: Path) -> dict[str, Any]:
        """Return the table of a link. Directions without a recording are unlimited. folder: for converted traces."""
        queue = {"kind": "droptail", "limit": self.queue}
        plain = {"up": "unlimited", "down": "unlimited", "base_delay": self.delay, "queue": queue}
        if _is_rate(text, beside):
            return {**plain, "up": text, "down": text}
        archive, path = open_archive(), beside / text
        found = {way: str(file) for way in ENDINGS if (file := Path(f"{path.absolute()}.{way}")).is_file()}
        if not found and archive.has(text):
            entry = archive.entry(text)
            if entry.recording is not None:
                return {"kind": "recording", "path": text, "queue": queue}
            found = {way: f"{text}.{way}" for way, part in ENDINGS.items() if part in entry.parts}
        elif not found and (path / DESCRIPTION).is_file():
            return {"kind": "recording", "path": str(path.absolute()), "queue": queue}
        elif not found and path.exists():
            found = {way: str(file) for way, file in make_traces(path, folder / "traces", path.name).items()}
        loaded = "up" if self.upload else "down"
        if loaded not in found:
            if found or archive.has(text):
                raise CellbedError(f"{text}: not recorded: {ENDINGS[loaded]}")
            resolve(f"{text}.{loaded}", beside)
        return plain | found

    def results(self, sweep: Sweep) -> pl.DataFrame:
        """Return a row for each point: link, flows, law, rivals' law, each of `MEASURES` with its 95 % interval, and
        fairness. Without rivals, rivals_mbit_s is null.

        round_trip_s: mean over the packets of the transfers, in the network. fairness: Jain's index of the bytes of all
        transfers, mean over repetitions (Jain, Chiu & Hawe, DEC-TR-301, 1984): 1 if all are equal, 1/n if one transfer
        has all bytes; null for a single transfer.
        """
        import polars as pl

        way = "up" if self.upload else "down"
        factors = [name for name in ("link", "flows", "against", "law") if name in sweep.points.columns]
        measured = sweep.trials.filter(pl.col("status") != "failed")
        rivals = measured.filter(app="rival").select("folder", rivals_mbit_s="throughput_down_mbit_s")
        trials = measured.filter(app="bulk").join(rivals, on="folder", how="left", maintain_order="left")
        columns = {"throughput_mbit_s": f"throughput_{way}_mbit_s"}
        more = pl.DataFrame(
            [_transfer_figures(sweep.path / each, self.upload) for each in trials["folder"]], _TRANSFERRED
        )
        own = trials.select(*factors, "rivals_mbit_s", "retransmitted", **columns)
        measured = pl.concat([own, more], how="horizontal")
        found = []
        for point in sweep.points.select(factors).iter_rows(named=True):
            at = measured.filter(**point)
            row = dict(point)
            for measure in MEASURES:
                interval = mean_interval(at[measure].drop_nulls().to_list(), 0.0)
                row |= {measure: interval.value, f"{measure}_low": interval.low, f"{measure}_high": interval.high}
            found.append(row | {"fairness": at["fairness"].mean()})
        return pl.DataFrame(found, infer_schema_length=None).sort(*factors[:-1], maintain_order=True)


def _laws(texts: Sequence[str], beside: Path, virtual: bool) -> dict[str, str]:
    """Return the names of laws, and their notation in the scenario. virtual: for virtual time, not this kernel."""
    laws = {}
    kernel = available_congestion_controls()
    for text in texts:
        try:
            control = CONGESTION_CONTROL.read(text, beside)
        except UnitError as error:
            raise CellbedError(f"not a law: {error}") from error
        known = (*(kernel or ()), *KERNEL_CONTROLS)
        if isinstance(control, str) and control not in known:
            names = [*known, *load_shipped(), *(f"./{each.name}" for each in sorted(beside.glob("*.h")))]
            raise CellbedError(f"there is no law '{control}': {did_you_mean(control, names)}see `cellbed cc ls`")
        if isinstance(control, Law):
            control.compiled("host" if virtual else "kernel")
        laws[name_of(control)] = CONGESTION_CONTROL.show(control)
    problems = [congestion_problem(name, kernel) for name in laws if name in KERNEL_CONTROLS and not virtual]
    if any(problems):
        raise CellbedError(f"{'; '.join(filter(None, problems))}; or --virtual")
    if len(laws) < len(texts):
        raise CellbedError("two laws have the same name: give each header its own")
    return laws


def _transfers(server: str) -> dict[str, Any]:
    command = f"iperf3 --server --port {_PORT}"
    ready = {"on": server, "command": command, "ready": {"port": _PORT}}
    return {"kind": "program", "server": ready, "client": {"on": "endpoint"}}


def _transfer_figures(trial: Path, upload: bool) -> dict[str, float | None]:
    """Return mean round trip (s) and fairness of the transfers of a trial."""
    import polars as pl

    connections = pl.read_parquet(inputs.check(trial / "connections.parquet"))
    # The first connection of iperf3 is the control connection.
    transfers = connections.filter(pl.col("opened_ns") > pl.col("opened_ns").min().over("app"))
    carried = transfers["to_server_bytes" if upload else "to_client_bytes"].cast(pl.Float64)
    squares = float((carried**2).sum())
    fairness = float(carried.sum()) ** 2 / (len(carried) * squares) if len(carried) > 1 and squares else None
    parts = [f"to_{end}_{part}_s" for end in ("client", "server") for part in ("queue", "delay")]
    mean = transfers.filter(app="bulk").select(pl.sum_horizontal(parts).mean()).item()
    return {"round_trip_s": mean, "fairness": fairness}


def _is_rate(link: str, beside: Path) -> bool:
    """Return whether a link is a rate. Errors: :class:`CellbedError` for a rate without a known unit."""
    try:
        BIT_RATE.parse(link)
    except UnitError as error:
        looks_so = re.fullmatch(r"[\d.,]+\s*([kmgt]?b\S*)?|[\d.,]+\s+\S+", link, re.IGNORECASE)
        if looks_so and not (beside / f"{link}.down").is_file():
            raise CellbedError(f"not a link: {error}") from None
        return False
    return True

"""Simulations of one file with several seeds, in one folder with tables, summary and report."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from cellbed.extension.files import CellbedError, make_unfinished_beside, remove_tree, sha256, write_json, write_rows
from cellbed.extension.reports import mean_interval
from cellbed_datacentre import report
from cellbed_datacentre.file import Described
from cellbed_datacentre.simulation import Simulation, run

Progress = Callable[[int, int], None]
"""Called ten times a second with the number of finished flows, over all seeds, and of finished seeds."""


class _StoppedError(Exception):
    """A request to stop the simulations."""


def simulate(described: Described, seeds: Sequence[int], out: Path, jobs: int, progress: Progress) -> Path:
    """Run a simulation with each seed, at most `jobs` at once, and return the new folder below `out` with the results.

    The folder is created atomically: an error or Ctrl-C leaves no files, and remains of killed simulations are removed.
    The tables do not depend on `jobs`.

    Raises CellbedError for a description that the simulator refuses and for a folder that cannot be written.
    """
    out = out.absolute()
    fresh = not out.exists()
    name = described.file.name
    try:
        with report_write_errors(out):
            out.mkdir(parents=True, exist_ok=True)
            with make_unfinished_beside(out / name) as unfinished:
                fill(unfinished, described, seeds, jobs, progress)
                report.write(unfinished)
                return _rename_to_free(unfinished, f"{name}-{datetime.now():%Y%m%d-%H%M%S}")  # noqa: TID251
    finally:
        if fresh:
            with contextlib.suppress(OSError):
                out.rmdir()  # only if empty


@contextlib.contextmanager
def report_write_errors(folder: Path) -> Iterator[None]:
    """Raise CellbedError for errors in writing to a folder."""
    try:
        yield
    except (OSError, pl.exceptions.ComputeError) as error:  # Polars' error for a full disk
        reason = getattr(error, "strerror", None) or str(error).rpartition("IO error: ")[2].partition(" (os error")[0]
        reason = "not a folder" if isinstance(error, FileExistsError) else reason
        raise CellbedError(f"cannot write to {folder}: {reason}; choose another place with --out") from None


def _rename_to_free(folder: Path, stem: str) -> Path:
    """Rename a folder to the first free name that begins with `stem`."""
    number = 1
    while True:
        place = folder.with_name(stem if number == 1 else f"{stem}-{number}")
        try:
            place.mkdir()  # a rename replaces only an empty folder
            return folder.rename(place)
        except FileExistsError:
            number += 1


def fill(folder: Path, described: Described, seeds: Sequence[int], jobs: int, progress: Progress) -> None:
    """Run a simulation as `simulate` does, and write all results except the report into an empty folder. Exceptions of
    `progress` end the simulation."""
    parts = folder / "parts"
    parts.mkdir()
    files = {seed: parts / f"{seed}.parquet" for seed in seeds}
    summaries: dict[int, dict[str, Any]] = {}
    tables: dict[str, dict[int, pl.DataFrame]] = {}
    with contextlib.closing(_run_seeds(described, seeds, jobs, progress)) as simulations:
        for seed, simulation in simulations:
            _add_seed(seed, simulation.flows).write_parquet(files[seed])
            tables.setdefault("ports", {})[seed] = _add_seed(seed, simulation.ports)
            if len(simulation.queues):
                tables.setdefault("queues", {})[seed] = _add_seed(seed, simulation.queues)
            for name, table in simulation.radio.items():
                tables.setdefault(f"radio-{name}", {})[seed] = _add_seed(seed, table)
            summaries[seed] = _summarize(simulation, described.flows)
    write_rows(pl.scan_parquet(list(files.values())), folder / "flows.parquet", "zstd")
    remove_tree(parts)
    for name, each in tables.items():
        pl.concat([each[seed] for seed in seeds if seed in each]).write_parquet(folder / f"{name}.parquet")
    if described.text is not None:
        (folder / "simulation.toml").write_text(described.text, encoding="utf-8")
    write_json(folder / "summary.json", _summarize_seeds(described, [summaries[seed] for seed in seeds]))


def _run_seeds(
    described: Described, seeds: Sequence[int], jobs: int, progress: Progress
) -> Generator[tuple[int, Simulation], None, None]:
    """Yield seeds and simulations as they end. Threads suffice: the simulator releases the interpreter's lock."""
    stop = threading.Event()
    flows = dict.fromkeys(seeds, 0)

    def watched(seed: int) -> Simulation:
        def note(finished: int) -> None:
            if stop.is_set():
                raise _StoppedError
            flows[seed] = finished

        return run(described, seed, note)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            waiting: dict[Future[Simulation], int] = {pool.submit(watched, seed): seed for seed in seeds}
            while waiting:
                done, _ = wait(waiting, 0.1, FIRST_COMPLETED)
                for future in done:
                    seed = waiting.pop(future)
                    found = future.result()
                    flows[seed] = described.flows
                    yield seed, found
                progress(sum(flows.values()), len(seeds) - len(waiting))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _add_seed(seed: int, table: pl.DataFrame) -> pl.DataFrame:
    return table.select(pl.lit(seed, pl.Int64).alias("seed"), pl.all())


def _summarize(simulation: Simulation, planned: int) -> dict[str, Any]:
    """Return the figures of one seed. planned: number of flows."""
    flows = simulation.flows
    return {
        "seed": simulation.seed,
        "flows": planned,
        "unfinished": planned - int(flows["fct_s"].count()),
        "not_started": planned - len(flows),
        "duration_s": simulation.duration_s,
        "elapsed_s": simulation.elapsed_s,
        "packet_hops": simulation.packet_hops,
        "by_size": simulation.by_size().to_dicts(),
        "ports": simulation.ports.group_by("tier", maintain_order=True)
        .agg(
            pl.len().alias("ports"),
            pl.col("utilisation").mean().alias("utilisation_mean"),
            pl.col("utilisation").max().alias("utilisation_most"),
            pl.col("mean_queue_bytes").mean(),
            pl.col("most_queue_bytes").max(),
            pl.col("packets", "dropped", "dropped_bytes", "marked").sum(),
        )
        .to_dicts(),
        "radio": _summarize_radio(simulation.radio),
    }


def _summarize_radio(tables: Mapping[str, pl.DataFrame]) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Return the counts of a central unit, or of each; of several distributed units with a list ``units``."""
    if not tables:
        return None
    counts = tables["counts"].to_dicts()
    units = tables["units"].to_dicts() if "units" in tables else []
    for row in counts if units else ():
        row["units"] = [each for each in units if each.get("central_unit") == row.get("central_unit")]
    return counts if len(counts) > 1 else counts[0]


def _summarize_seeds(described: Described, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary of a folder: the figures of each seed, and their means with 95 % intervals."""
    return {
        "name": described.file.name,
        "cellbed": version("cellbed"),
        "file": described.file.model_dump(mode="json"),
        "inputs": {name: sha256(path) for name, path in described.inputs.items()},
        "seeds": [each["seed"] for each in runs],
        **{
            key: sum(each[key] for each in runs)
            for key in ("flows", "unfinished", "not_started", "packet_hops", "elapsed_s")
        },
        "by_size": [_mean_row(rows, "size", "count") for rows in zip(*(each["by_size"] for each in runs), strict=True)],
        "ports": [_mean_row(rows, "tier", "ports") for rows in zip(*(each["ports"] for each in runs), strict=True)],
        "runs": runs,
    }


def _mean_row(rows: Sequence[dict[str, Any]], name: str, count: str) -> dict[str, Any]:
    """Return a row of a table over seeds: the sum for `count`, value and interval for other figures."""
    found: dict[str, Any] = {name: rows[0][name], count: sum(row[count] for row in rows)}
    for key in rows[0].keys() - {name, count}:
        values = [row[key] for row in rows if row[key] is not None]
        interval = mean_interval(values, least=0)
        found[key] = {"value": interval.value, "low": interval.low, "high": interval.high, "seeds": len(values)}
    return found

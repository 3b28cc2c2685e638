"""Samples of the place and of the radio signal during a recording, and their addition to the finished recording."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from cellbed.recordings.description import Description
from cellbed.recordings.recording import DESCRIPTION, SAMPLES, read_description
from cellbed.support.whole_files import write_whole

_RETRY_S = 1.0
"""Pause after an error of a source."""
_MOST_ROWS = 1 << 20
_MOST_STEP_S = 0.1
"""Maximum step of the wall clock against the monotonic clock without a warning."""


class Sampler(threading.Thread):
    """Samples a source in the background. Errors of the source never end the recording.

    kind: name of the table, a key of :data:`cellbed.recordings.recording.SAMPLES`. source: name in warnings.
    """

    kind = ""

    def __init__(self, source: str) -> None:
        super().__init__(daemon=True)
        self.source = source
        self.problem: str | None = None
        self.ending = threading.Event()
        self._rows: list[tuple[Any, ...]] = []
        self._wall_ns = _wall_clock_ahead_ns()

    def run(self) -> None:
        """Sample until :meth:`stop`."""
        while not self.ending.is_set():
            try:
                self.sample()
            except OSError as error:
                self.problem = error.strerror or str(error)
            self.ending.wait(_RETRY_S)

    def sample(self) -> None:
        """Add rows until the source ends, or until `ending` is set. Raises OSError for an error of the source."""
        raise NotImplementedError

    def add(self, *values: Any) -> None:
        """Add a row that was measured now. Rows beyond a million are dropped."""
        if len(self._rows) < _MOST_ROWS:
            self._rows.append((time.monotonic_ns() + self._wall_ns, *values))

    @classmethod
    def summarize(cls, rows: pl.DataFrame, description: Description) -> tuple[dict[str, Any], list[str]]:
        """Return new values of a recording's description, and warnings. rows: of all samplers of this kind."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the sampling. A source that does not answer is abandoned."""
        self.ending.set()
        self.join(timeout=1.0)

    def table(self, zero_ns: int, duration_ns: int) -> pl.DataFrame:
        """Return the rows within a recording. zero_ns: wall-clock time of the recording's time zero."""
        rows = pl.DataFrame(self._rows[:], schema=SAMPLES[self.kind], orient="row")
        rows = rows.with_columns(pl.col("at_ns") - zero_ns)
        return rows.filter(pl.col("at_ns").is_between(0, duration_ns)).sort("at_ns")

    def warnings(self, rows: pl.DataFrame) -> list[str]:
        """Return sentences for the recording's users. rows: those within the recording."""
        step_s = (_wall_clock_ahead_ns() - self._wall_ns) / 1e9
        warnings = []
        if not rows.height:
            warnings.append(f"No {self.kind}: {self.source}: {self.problem or 'nothing was received'}.")
        elif abs(step_s) > _MOST_STEP_S:
            warnings.append(f"The clock was set by {step_s:.1f} s: times of the {self.kind} may be wrong by as much.")
        return warnings


def _wall_clock_ahead_ns() -> int:
    return time.time_ns() - time.monotonic_ns()  # noqa: TID251 as the recorder states its time zero


def add_samples(folder: Path, samplers: Sequence[Sampler]) -> list[str]:
    """Add the tables of stopped samplers to a recording, and their summary to its description.

    Return the new warnings. Tables that cannot be written are a warning, too. Raises RecordingError if there is no
    recording in `folder`.
    """
    description = read_description(folder)
    assert description.started is not None, "the recorder writes the time"
    zero_ns = int(description.started.timestamp() * 1e6) * 1000
    tables: dict[type[Sampler], list[pl.DataFrame]] = {}
    warnings: list[str] = []
    for sampler in samplers:
        table = sampler.table(zero_ns, description.duration_ns)
        tables.setdefault(type(sampler), []).append(table)
        warnings += sampler.warnings(table)
    try:
        for kind, parts in tables.items():
            rows = pl.concat(parts)  # in order of the user's options, then of time
            if rows.height:
                write_whole(folder / f"{kind.kind}.parquet", rows.write_parquet)
                update, more = kind.summarize(rows, description)
                warnings += more
                description = description.model_copy(update=update)
        described = description.model_copy(update={"warnings": (*description.warnings, *warnings)})
        write_whole(folder / DESCRIPTION, described.model_dump_json(indent=2) + "\n")
    except (OSError, pl.exceptions.PolarsError) as error:
        warnings.append(f"{folder}: the samples cannot be written: {error}")
    return warnings

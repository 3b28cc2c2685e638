"""Statistics of many entries: in parallel, the largest first, each stored when it is complete.

Stored ones are not computed again, so that a stopped or killed survey continues.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS, Part, Series
from cellbed.archive.store import Archive

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

    from cellbed.archive.statistics import Definition, Statistics

FEW_BYTES: Final = 64 << 20
"""Less work than this is done in this process: others take longer to start."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Task:
    """A series without statistics. rows, size: of its file, the latter in bytes. sha256: as its entry has it."""

    name: str
    part: Part
    series: Series
    starts_at_s: float | None
    rows: int
    size: int
    sha256: str


@dataclass(slots=True)
class Plan:
    """The work of a survey. tasks: largest first. done: series that have their statistics.

    problems: what is wrong with entries that cannot be looked at, by name.
    """

    tasks: list[Task] = field(default_factory=list)
    done: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(task.size for task in self.tasks)


def plan(archive: Archive, names: Iterable[str], definition: Definition, again: bool = False) -> Plan:
    """The series of these entries without statistics by `definition`; all of them with `again`."""
    from cellbed.archive.statistics.clock import second_of_day

    found = Plan()
    complete = {} if again else _complete(archive, definition)
    for name in names:
        if name in complete:
            found.done += complete[name]
            continue
        try:
            entry = archive.entry(name)
            for part, held in entry.parts.items():
                if not again and definition.made(held.statistics):
                    found.done += 1
                    continue
                series = archive.series(name, part)
                size = series.path.stat().st_size
                starts = second_of_day(entry.about)
                found.tasks.append(Task(name, part, series, starts, held.rows, size, held.sha256))
        except TraceError as error:
            found.problems[name] = str(error)
        except OSError as error:
            found.problems[name] = f"{name}: cannot be read: {error.strerror}"
    found.tasks.sort(key=lambda task: task.size, reverse=True)
    return found


def _complete(archive: Archive, definition: Definition) -> dict[str, int]:
    """The number of parts with statistics; from the table, which is faster than reading each entry."""
    import polars as pl

    from cellbed.archive.statistics.definition import VERSION

    index = archive.index()
    columns = set(index.collect_schema())
    counts, lacking = [], []
    for part in PARTS:
        stem = part.replace("-", "_")
        keys = {f"{stem}_definition": VERSION, f"{stem}_outage_from_ms": definition.outage_ns / 1e6}
        there = pl.col(f"{stem}_content").is_not_null()
        made = [
            (pl.col(key) == value).fill_null(False) if key in columns else pl.lit(False) for key, value in keys.items()
        ]
        counts.append(there.cast(pl.Int64))
        lacking.append(there & ~pl.all_horizontal(made))
    table = index.filter(~pl.any_horizontal(lacking)).select("name", parts=pl.sum_horizontal(counts)).collect()
    return dict(table.iter_rows())


def figures(archive: Archive, name: str, definition: Definition) -> dict[Part, Statistics]:
    """The statistics of an entry by part, or of the direction of one that `name` says. Raises TraceError.

    Stored ones of this definition are used.
    """
    from cellbed.archive.catalogue import entry_and_part
    from cellbed.archive.statistics import statistics
    from cellbed.archive.statistics.clock import second_of_day

    name, only = entry_and_part(archive, name)
    entry = archive.entry(name)
    if only is not None:
        archive.held(name, only)
    starts = second_of_day(entry.about)
    return {
        part: held.statistics
        if held.statistics is not None and definition.made(held.statistics)
        else statistics(archive.series(name, part), definition, starts)
        for part, held in entry.parts.items()
        if only in (None, part)
    }


def survey(
    archive: Archive, tasks: list[Task], definition: Definition, workers: int, progress: Progress
) -> Generator[tuple[Task, Statistics | TraceError], None, None]:
    """Compute and store the statistics of each task; yields the result or the error.

    progress: called regularly with the bytes read since the last call. Closing the generator stops the workers.
    """
    with closing(_results(tasks, definition, workers, progress)) as results:
        for task, found in results:
            result = found
            if not isinstance(found, TraceError):
                try:
                    _keep(archive, task, found)
                except TraceError as error:
                    result = error
            yield task, result


def _keep(archive: Archive, task: Task, found: Statistics) -> None:
    if archive.entry(task.name).parts[task.part].sha256 != task.sha256:
        raise TraceError(f"{task.name}: replaced meanwhile: run `cellbed traces stats {task.name}` again")
    archive.annotate(task.name, {task.part: found})


def _results(
    tasks: list[Task], definition: Definition, workers: int, progress: Progress
) -> Generator[tuple[Task, Statistics | TraceError], None, None]:
    size = sum(task.size for task in tasks)
    cores, workers = workers, min(workers, len(tasks))
    if workers <= 1 or size < FEW_BYTES:
        for task in tasks:
            yield task, _made(task, definition, progress, cores if size >= FEW_BYTES else 1)
        return
    from multiprocessing import get_context

    from cellbed.worker_pool import WorkerPool

    seen = get_context("spawn").Value("q", 0)
    killed = TraceError(
        "a process that computed statistics was killed, perhaps for lack of memory: finished results are kept; "
        "continue with fewer processes (--jobs 1)"
    )
    # They only read.
    with WorkerPool(workers, killed, _count_in, seen) as pool:
        # A large part of the whole gets more of the cores, as the others would wait for it at the end.
        waiting = {
            pool.submit(_in_worker, task, definition, max(1, round(cores * task.size / size))): task for task in tasks
        }
        before = 0
        while waiting:
            finished, _ = wait(waiting, 0.2, FIRST_COMPLETED)
            now = seen.value
            progress(now - before)
            before = now
            for future in finished:
                yield waiting.pop(future), future.result()


def _made(task: Task, definition: Definition, progress: Progress, threads: int) -> Statistics | TraceError:
    from cellbed.archive.statistics import statistics

    share = task.size / max(task.rows, 1)
    try:
        return statistics(task.series, definition, task.starts_at_s, lambda rows: progress(int(rows * share)), threads)
    except TraceError as error:
        return error


_seen: Synchronized[int]
"""Bytes that all workers have read; in a worker."""


def _count_in(seen: Synchronized[int]) -> None:
    global _seen
    _seen = seen


def _in_worker(task: Task, definition: Definition, threads: int) -> Statistics | TraceError:
    def progress(size: int) -> None:
        with _seen.get_lock():
            _seen.value += size

    return _made(task, definition, progress, threads)

"""Worker processes that ignore Ctrl-C and end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from cellbed.support.errors import CellbedError
from cellbed.support.interruption import held_back
from cellbed_node.processes import die_with_parent

P = ParamSpec("P")
T = TypeVar("T")


def processors() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0))


class WorkerPool(ProcessPoolExecutor):
    """A number of processes, each with one initial thread; a context.

    The processes are spawned, because a fork would leave threads behind. If the context ends by an error, by Ctrl-C or
    as a closed generator, these processes (and no others) are killed, and pending work is cancelled. If a process died,
    `killed` is raised instead of BrokenProcessPool.
    """

    def __init__(self, workers: int, killed: CellbedError) -> None:
        self._killed = killed
        self._context = _RememberingContext()
        super().__init__(workers, self._context, _begin)
        # Start all processes before the thread that watches them. Otherwise the death of a process started later would
        # go unnoticed until the next result.
        self._safe_to_dynamically_spawn_children = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a process; arguments and result are pickled."""
        with held_back():
            return super().submit(function, *args, **kwargs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for process in self._context.processes:
                if process.is_alive():
                    process.kill()
        self.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise self._killed from None


class _RememberingContext(SpawnContext):
    """Spawns processes and keeps a list of these processes."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        process = SpawnProcess(*args, **kwargs)
        self.processes.append(process)
        return process


def _begin() -> None:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before Polars is imported: the processes run beside each other
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid != os.getppid():
        os._exit(1)  # the parent ended while this process was loading
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

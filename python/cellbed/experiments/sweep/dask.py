"""Trials on a Dask cluster: the :class:`Executor` behind ``--on``, and what its tasks do on a worker.

A trial is one task with one unit of the resource `RESOURCE`. Workers and client have the folders of the scenario and
of the sweep by the same paths, as on a shared file system.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import re
import secrets
import time
import warnings
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cellbed.experiments.child import ChildRun
from cellbed.experiments.sweep.runner import Outcome
from cellbed.experiments.sweep.trials import Trial, inputs_of
from cellbed.library import RunError
from cellbed.scenario.reader import TablesError, checked
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.cgroups import Enforcement

RESOURCE = "cellbed"
_PORT = 8786
_CONNECT_S = 10.0
"""How long the scheduler, and then the first worker, may take to appear."""

# What runs on the workers.

_running: set[str] = set()
"""Keys of tasks with a child process."""


def run_trial(tables: dict[str, Any], asked: dict[str, str], sent: Set[str], limits: Enforcement) -> dict[str, Any]:
    """Run a scenario on this worker: the outcome of its child process. asked: of :class:`ChildRun`. sent: hashes of the
    client's inputs."""
    import distributed

    worker = distributed.get_worker()
    key = worker.get_current_task()
    began = time.monotonic()

    def is_cancelled() -> bool:
        # Also when the client has ended or is lost: then the scheduler releases its tasks.
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    outcome: dict[str, Any] = {"folder": None, "status": "failed", "disturbed": False, "exit_code": 1}
    if (problem := _obstacle(tables, Path(asked["folder"]), Path(asked["out"]), sent)) is not None:
        return {**outcome, "error": problem, "took_s": 0.0}
    _running.add(key)
    try:
        outcome |= _in_child(asked, limits, is_cancelled)
    except RunError as error:
        outcome["error"] = str(error)
    finally:
        _running.discard(key)
    return {**outcome, "took_s": time.monotonic() - began}


def _in_child(asked: dict[str, str], limits: Enforcement, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
    child = ChildRun(asked, limits)
    interrupted = False
    while not child.ended:
        child.read(0.2)
        if not interrupted and is_cancelled():
            child.interrupt()
            interrupted = True
    return child.close()


def _obstacle(tables: dict[str, Any], folder: Path, out: Path, sent: Set[str]) -> str | None:
    """Return why the scenario cannot be run here: the worker's archive may have another entry of a name."""
    if not out.is_dir():
        return f"{out}: not on the worker: give all machines the folders of the sweep and the scenario by the same path"
    try:
        used = {each.sha256 for each in inputs_of(checked(tables, folder), tables, folder)}
    except TablesError:
        return None  # The child reports it.
    if used == sent:
        return None
    return (
        "the inputs on the worker are not those of the sweep: an input was changed after the sweep began, or the "
        "worker's archive has another entry of the same name"
    )


def running(token: str) -> int:
    """Return the number of runs of a sweep on this worker."""
    return sum(token in key for key in _running)


# What runs on the client.


@dataclass(frozen=True)
class _Task:
    """A trial on the cluster."""

    trial: Trial
    future: Any
    began: float


class Cluster:
    """Trials as tasks of a Dask cluster; a context. An :class:`Executor`.

    on: ``dask://HOST:PORT``, ``tls://HOST:PORT`` or a scheduler file. most: trials at once. note: takes what is worth a
    line. Errors: :class:`CellbedError` where there is no scheduler, no worker with the resource, or one with other
    versions.
    """

    def __init__(self, on: str, *, most: int | None, limits: Enforcement, note: Callable[[str], object]) -> None:
        self._on, self._most, self._limits, self._note = on, most, limits, note
        self._client = _connected(on)
        # Part of the key of each task, so that no two sweeps share a key.
        self._token = f"cellbed-{secrets.token_hex(6)}"
        self._tasks: dict[str, _Task] = {}
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # By address of a worker: how many trials it runs at once.
        self._workers: dict[str, int] = {}
        self._looked = -math.inf
        self._interrupted = False
        try:
            deadline = time.monotonic() + _CONNECT_S
            self._look()
            while not self._workers and time.monotonic() < deadline:
                time.sleep(0.1)
                self._look()
            if not self._workers:
                raise CellbedError(f"{on}: no worker has the resource '{RESOURCE}': {self._advice()}")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self._client.close(timeout=5)

    @property
    def running(self) -> int:
        return len(self._tasks)

    @property
    def at_once(self) -> int:
        count = sum(self._workers.values())
        return count if self._most is None else min(count, self._most)

    def start(self, trial: Trial, place: Path) -> None:
        for name, group in trial.tables.get("nodes", {}).items():
            backend = group.get("backend") if isinstance(group, dict) else None
            if isinstance(backend, dict) and backend.get("kind") == "host":
                text = "several workers would use this machine at once: run this sweep without --on"
                raise CellbedError(f"nodes.{name}.backend: {text}")
        key = f"{self._token}-{trial.key}-{secrets.token_hex(4)}"
        asked = {"text": trial.text, "folder": str(trial.folder.absolute()), "out": str(place.absolute())}
        sent = frozenset(each.sha256 for each in trial.inputs)
        given = (trial.tables, asked, sent, self._limits)
        future = self._client.submit(run_trial, *given, key=key, resources={RESOURCE: 1}, pure=False)
        self._tasks[key] = _Task(trial, future, time.monotonic())
        future.add_done_callback(self._ended.put)

    def wait(self, timeout_s: float) -> list[Outcome]:
        if self._interrupted:
            return self._wait_for_the_end(timeout_s)
        self._look()
        try:
            future = self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return []
        return [self._outcome(self._tasks.pop(future.key))]

    def _outcome(self, task: _Task) -> Outcome:
        import distributed

        failed = Outcome(task.trial, None, "failed", False, None, 1, time.monotonic() - task.began)
        try:
            found = task.future.result()
        except distributed.scheduler.KilledWorker:
            return replace(failed, error="each worker that ran this trial ended: see the logs of the workers")
        except Exception as error:
            self._check_connection()
            return replace(failed, error=f"on a worker: {error or type(error).__name__}")
        try:
            return Outcome(
                trial=task.trial,
                folder=None if found["folder"] is None else Path(found["folder"]),
                status=str(found["status"]),
                disturbed=bool(found["disturbed"]),
                error=None if found["error"] is None else str(found["error"]),
                exit_code=int(found["exit_code"]),
                took_s=float(found["took_s"]),
            )
        except Exception as error:
            return replace(failed, error=f"a worker returned no outcome of a run: {error or type(error).__name__}")

    def interrupt(self) -> None:
        self._interrupted = True
        # The workers end the runs of cancelled tasks in order.
        with contextlib.suppress(Exception):
            self._client.cancel([task.future for task in self._tasks.values()], force=True)

    def _wait_for_the_end(self, timeout_s: float) -> list[Outcome]:
        """Interrupted trials, when no worker that can be reached has a run of this sweep any more."""
        time.sleep(min(timeout_s, 0.3))
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            counts = self._client.run(running, self._token, on_error="ignore") if self._is_connected() else {}
            if any(counts.values()):
                return []
        tasks, self._tasks = self._tasks, {}
        return [Outcome(it.trial, None, "interrupted", False, None, 130, 0.0) for it in tasks.values()]

    def _is_connected(self) -> bool:
        return bool(self._client.status == "running")

    def _check_connection(self) -> None:
        if not self._is_connected():
            raise CellbedError(
                f"{self._on}: the connection to the scheduler was lost: run the same command to continue"
            )

    def _look(self, *, now: bool = False) -> None:
        """Update the list of workers, at most once a second."""
        if not now and time.monotonic() - self._looked < 1.0:
            return
        self._check_connection()
        try:
            described = self._client.scheduler_info(n_workers=-1)["workers"]
            found = {
                address: min(int(worker["resources"].get(RESOURCE, 0)), worker["nthreads"])
                for address, worker in described.items()
                if worker["resources"].get(RESOURCE, 0) >= 1
            }
            if found.keys() - self._workers.keys():
                self._compare_versions(list(found))
        except (OSError, TimeoutError):
            self._check_connection()
            return
        for address in self._workers.keys() - found.keys():
            self._note(f"worker {address} was lost: its trials are run by another one")
        if self._workers and not found:
            self._note(f"no worker has the resource '{RESOURCE}' now: {self._advice()}")
        self._workers, self._looked = found, time.monotonic()

    def _compare_versions(self, workers: list[str]) -> None:
        versions = self._client.get_versions(packages=["cellbed"])
        own = _versions(versions["client"]["packages"])
        for address in workers:
            described = versions["workers"].get(address)
            if described is None or (other := _versions(described["packages"])) == own:
                continue
            differing = [name for name in own if other[name] != own[name]]
            has = ", ".join(f"{name} {other[name]}" if other[name] else f"no {name}" for name in differing)
            wanted = ", ".join(f"{name} {own[name]}" for name in differing)
            raise CellbedError(f"worker {address} has {has}, and this machine {wanted}: install the same versions")

    def _advice(self) -> str:
        at = self._client.scheduler.address if self._client.scheduler is not None else self._on
        return (
            "on each machine that runs trials, start "
            f"`dask worker {at} --resources {RESOURCE}=1 --nthreads 1 --nworkers 1 --no-dashboard`"
        )


def _versions(packages: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the versions that client and workers must share; of Python the first two numbers."""
    python = ".".join((packages["python"] or "").split(".")[:2])
    return {"Python": python, **{name: packages.get(name) for name in ("cellbed", "distributed")}}


def _connected(on: str) -> Any:
    """Return a client of the scheduler."""
    scheme, _, where = on.partition("://")
    is_file = not where and Path(on).is_file()
    if not is_file and (scheme not in {"dask", "tls"} or not where):
        raise CellbedError(
            f"--on {on}: not the address of a Dask scheduler: write dask://HOST:PORT, tls://HOST:PORT, or the path of "
            "a scheduler file"
        )
    try:
        import distributed
    except ImportError:
        raise CellbedError("--on needs the package 'distributed': pip install distributed") from None
    # Lost workers and schedulers are reported here, in one line each.
    for name in ("distributed", *(it for it in logging.root.manager.loggerDict if it.startswith("distributed."))):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=distributed.versions.VersionMismatchWarning)
    warnings.filterwarnings("ignore", message="Sending large graph")
    host = where if re.search(r":\d+$", where) else f"{where}:{_PORT}"
    target = {"scheduler_file": on} if is_file else {"address": f"{'tls' if scheme == 'tls' else 'tcp'}://{host}"}
    try:
        return distributed.Client(**target, timeout=_CONNECT_S, set_as_default=False, name="cellbed")
    except (OSError, TypeError, ValueError, KeyError) as error:
        text = f"{on}: no Dask scheduler answers ({error}): start one with `dask scheduler --no-dashboard`"
        raise CellbedError(" ".join(text.split())) from None

"""Trials on a Dask cluster: the :class:`Executor` behind ``--on``, and what its tasks do on a worker.

A trial is one task with one unit of the resource `RESOURCE`. Worker and client share no files: a task that lacks inputs
returns their names, the client sends them to this worker, by content hash and once, and submits the trial again. The
folder of the run comes back as a tar archive.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import queue
import re
import secrets
import shlex
import shutil
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import tomli_w

from cellbed.archive import ARCHIVE, place_of
from cellbed.experiments.sweep.runner import Outcome
from cellbed.experiments.sweep.trials import Trial, content_hash, inputs_of, texts
from cellbed.library import ChildRun, RunError
from cellbed.scenario.reader import TablesError, checked
from cellbed.support.errors import CellbedError
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.machine.cgroups import Enforcement

RESOURCE = "cellbed"
_PORT = 8786
_CONNECT_S = 10.0
"""How long the scheduler, and then the first worker, may take to appear."""
_CHUNK = 8 << 20
_TRIES = 5
"""How often inputs are sent for a trial."""


class Content(NamedTuple):
    """An input by its content. name: of the file or folder."""

    sha256: str
    name: str

    @property
    def place(self) -> Path:
        """Where this machine keeps it."""
        return cache_folder() / "inputs" / self.sha256 / self.name


# What runs on the workers.

_running: set[str] = set()
"""Keys of tasks with a child process."""


def run_trial(
    tables: dict[str, Any], beside: dict[str, Content], moved: dict[str, Content], limits: Enforcement
) -> dict[str, Any]:
    """Run a scenario on this worker: the outcome, with the packed folder of the run; or which inputs it lacks.

    beside: inputs by path relative to the scenario file. moved: inputs by path as written, outside of its folder.
    """
    import distributed

    worker = distributed.get_worker()
    key = worker.get_current_task()
    began = time.monotonic()
    if missing := lacking([*beside.values(), *moved.values()]):
        return {"lacking": missing, "worker": worker.address}

    def is_cancelled() -> bool:
        # Also when the client has ended or is lost: then the scheduler releases its tasks.
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    with tempfile.TemporaryDirectory(prefix="cellbed-", dir=worker.local_directory) as scratch:
        folder, out = Path(scratch, "scenario"), Path(scratch, "runs")
        folder.mkdir()
        for name, content in beside.items():
            _link(content.place, folder / name)
        tables = _with_paths(tables, {written: str(content.place) for written, content in moved.items()})
        outcome: dict[str, Any] = {"folder": None, "status": "failed", "disturbed": False, "exit_code": 1}
        if (error := _other_inputs(tables, folder, {*beside.values(), *moved.values()})) is not None:
            return {**outcome, "error": error, "took_s": 0.0}
        _running.add(key)
        try:
            asked = {"text": tomli_w.dumps(tables), "folder": str(folder), "out": str(out)}
            outcome |= _in_child(asked, limits, is_cancelled)
        except RunError as error:
            outcome["error"] = str(error)
        finally:
            _running.discard(key)
        if outcome["folder"] is not None and not is_cancelled():
            packed = io.BytesIO()
            pack(Path(outcome["folder"]), packed, "w|gz")
            outcome["packed"] = packed.getvalue()
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


def _other_inputs(tables: dict[str, Any], folder: Path, sent: set[Content]) -> str | None:
    """Why the scenario does not use the inputs of the client: the worker's archive may have another entry of a name, or
    a program may have changed a file."""
    try:
        used = {each.sha256 for each in inputs_of(checked(tables, folder), tables, folder) if each.name not in ARCHIVE}
    except TablesError:
        return None  # The child reports it.
    if used == {each.sha256 for each in sent}:
        return None
    return (
        f"the worker's inputs are not those of the client: its archive has an entry of the same name with another "
        f"content, or a file in {cache_folder() / 'inputs'} was changed: remove it"
    )


def _with_paths(value: Any, paths: Mapping[str, str]) -> Any:
    """Tables with other paths. In text with several words, such as a command, absolute paths are replaced, too."""
    match value:
        case str() if value in paths:
            return paths[value]
        case str():
            for written, path in paths.items():
                if written.startswith("/"):
                    word = rf"(?<!\S)(['\"]?){re.escape(written)}\1(?!\S)"
                    value = re.sub(word, shlex.quote(path).replace("\\", r"\\"), value)
            return value
        case dict():
            return {paths.get(key, key): _with_paths(each, paths) for key, each in value.items()}
        case list():
            return [_with_paths(each, paths) for each in value]
        case _:
            return value


def _link(source: Path, target: Path) -> None:
    """A file or folder at another place, without a copy where possible."""
    if source.is_dir():
        for file in source.rglob("*"):
            if file.is_file():
                _link(file, target / file.relative_to(source))
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


def lacking(contents: Iterable[Content]) -> list[Content]:
    """Those that this machine does not have."""
    return [each for each in dict.fromkeys(contents) if not each.place.exists()]


def receive(content: Content, sender: str, offset: int, chunk: bytes) -> None:
    """Write a part of a packed input at its place in the file; an empty one ends it: the input is unpacked, compared
    with its hash and put at its place atomically. sender: of this input to this worker."""
    kept = cache_folder() / "inputs"
    kept.mkdir(parents=True, exist_ok=True)
    packed = kept / f".{content.sha256}.{sender}"
    with packed.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(chunk)
    if chunk:
        return
    with tempfile.TemporaryDirectory(prefix=".", dir=kept) as scratch:
        with packed.open("rb") as file:
            unpack(file, Path(scratch))
        packed.unlink()
        path = Path(scratch, content.name)
        path.mkdir(exist_ok=True) if not path.exists() else None  # A folder without a file.
        if content_hash(path) != content.sha256:
            raise CellbedError(f"{content.name}: this input was changed after the sweep began")
        content.place.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError, OSError if path.is_dir() else FileExistsError):
            path.rename(content.place)


def running(token: str) -> int:
    """How many runs of a sweep this worker has."""
    return sum(token in key for key in _running)


def pack(path: Path, file: IO[bytes], mode: Literal["w|", "w|gz"] = "w|") -> None:
    """Write a file, or the files of a folder, as a tar archive. Links are followed, as in their hash."""
    found = [path] if path.is_file() else [each for each in sorted(path.rglob("*")) if each.is_file()]
    with tarfile.open(fileobj=file, mode=mode, dereference=True) as archive:
        for each in found:
            archive.add(each, str(Path(path.name, each.relative_to(path))), recursive=False)


def unpack(file: IO[bytes], folder: Path) -> None:
    """Write the files of such an archive below a folder."""
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for member in archive:
            path = folder / member.name
            content = archive.extractfile(member) if member.isreg() else None
            if content is None or ".." in path.parts or not path.is_relative_to(folder):
                raise CellbedError(f"'{member.name}': not a file of a run or an input")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as into:
                shutil.copyfileobj(content, into)
            path.chmod(member.mode & 0o777)


# What runs on the client.


@dataclass(frozen=True)
class _Task:
    """A trial on the cluster. tries: how often inputs were sent for it."""

    trial: Trial
    place: Path
    future: Any
    began: float
    tries: int


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
        self._submit(trial, place, time.monotonic(), 0)

    def _submit(self, trial: Trial, place: Path, began: float, tries: int) -> None:
        key = f"{self._token}-{trial.key}-{secrets.token_hex(4)}"
        beside, moved = placed(trial)
        asked = (trial.tables, beside, moved, self._limits)
        future = self._client.submit(run_trial, *asked, key=key, resources={RESOURCE: 1}, pure=False)
        self._tasks[key] = _Task(trial, place, future, began, tries)
        future.add_done_callback(self._ended.put)

    def wait(self, timeout_s: float) -> list[Outcome]:
        if self._interrupted:
            return self._wait_for_the_end(timeout_s)
        self._look()
        try:
            future = self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return []
        outcome = self._outcome(self._tasks.pop(future.key))
        return [] if outcome is None else [outcome]

    def _outcome(self, task: _Task) -> Outcome | None:
        """Return the outcome of a task that has ended; None if the trial was submitted again."""
        import distributed

        failed = Outcome(task.trial, None, "failed", False, None, 1, time.monotonic() - task.began)
        try:
            found = task.future.result()
        except distributed.scheduler.KilledWorker:
            return replace(failed, error="each worker that ran this trial ended: see the logs of the workers")
        except Exception as error:
            self._check_connection()
            return replace(failed, error=f"on a worker: {error or type(error).__name__}")
        if isinstance(found, dict) and "lacking" in found:
            problem = self._send(task.trial, found["worker"], found["lacking"])
            if problem is None and task.tries < _TRIES:
                self._submit(task.trial, task.place, task.began, task.tries + 1)
                return None
            problem = problem or f"it lost them {_TRIES} times"
            return replace(failed, error=f"inputs cannot be sent to worker {found['worker']}: {problem}")
        try:
            folder = None
            if found.get("packed"):
                folder = task.place / "run"
                unpack(io.BytesIO(found["packed"]), folder)
                (folder,) = folder.iterdir()
            return Outcome(
                trial=task.trial,
                folder=folder,
                status=str(found["status"]),
                disturbed=bool(found["disturbed"]),
                error=None if found["error"] is None else str(found["error"]),
                exit_code=int(found["exit_code"]),
                took_s=float(found["took_s"]),
            )
        except Exception as error:
            return replace(failed, error=f"a worker returned no outcome of a run: {error or type(error).__name__}")

    def _send(self, trial: Trial, worker: str, contents: list[Content]) -> str | None:
        """Send a worker those inputs that it still lacks. Why that is impossible; None also if the worker was lost."""

        def call(function: Callable[..., Any], *arguments: Any) -> Any:
            return self._client.run(function, *arguments, workers=[worker], on_error="raise")[worker]

        sources = {Content(each.sha256, each.path.name): each.path for each in trial.inputs}
        try:
            for content in call(lacking, contents):
                with tempfile.TemporaryFile() as packed:
                    pack(sources[content], packed)
                    size = packed.tell()
                    for offset in range(0, size, _CHUNK):
                        packed.seek(offset)
                        call(receive, content, self._token, offset, packed.read(_CHUNK))
                call(receive, content, self._token, size, b"")
                self._note(f"{sources[content]} sent to {worker}")
        except Exception as error:
            self._look(now=True)
            return (str(error) or type(error).__name__) if worker in self._workers else None
        return None

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
        """Which workers there are: asked at most once a second."""
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


def placed(trial: Trial) -> tuple[dict[str, Content], dict[str, Content]]:
    """Return the inputs of a trial as :func:`run_trial` takes them. Traces that every installation has are left out."""
    beside, moved = {}, {}
    for each in trial.inputs:
        if each.name in ARCHIVE:
            continue
        content = Content(each.sha256, each.path.name)
        written = {text for text in texts(trial.tables) if place_of(text, trial.folder) == each.path}
        for name in {each.name, *written}:
            path = os.path.normpath(name)
            if name.startswith(("/", "~")) or path.split("/")[0] == "..":
                moved[name] = content
            else:
                beside[path] = content
    return beside, moved


def _versions(packages: Mapping[str, str | None]) -> dict[str, str | None]:
    """What must be equal on client and workers; of Python the first two numbers."""
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
    host = where if re.search(r":\d+$", where) else f"{where}:{_PORT}"
    target = {"scheduler_file": on} if is_file else {"address": f"{'tls' if scheme == 'tls' else 'tcp'}://{host}"}
    try:
        return distributed.Client(**target, timeout=_CONNECT_S, set_as_default=False, name="cellbed")
    except (OSError, TypeError, ValueError, KeyError) as error:
        text = f"{on}: no Dask scheduler answers ({error}): start one with `dask scheduler --no-dashboard`"
        raise CellbedError(" ".join(text.split())) from None

"""The registry of live runs, testbeds and shells: it allows clean-up after killed ones.

Each live run has one JSON file in ``$XDG_STATE_HOME/cellbed/live``. Each resource is noted in the file *before* it is
made. A record is stale if its process is gone: process ids are reused, so the start time of the process and the
boot id of the machine are compared as well. A process in another PID namespace has another id here.

A record contains names and numbers, never commands. Each must belong to the run in the record's file name. Records
of other users are not read: root's clean-up would otherwise follow what those users wrote.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cellbed.support.errors import CellbedError

RUN_VARIABLE = "CELLBED_RUN"
"""Environment variable that marks every process of a run with the run's identifier."""
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Pattern of testbed names, the same as for scenarios."""
ENGINES = ("podman", "docker")
_INITIAL_NAMESPACE = 0xEFFFFFFC
"""Inode of the PID namespace of the machine (``PROC_PID_INIT_INO``, Linux, include/linux/proc_ns.h)."""
ENDED = ("Z", "X")
"""States of processes that have ended."""
_LARGEST = 1 << 16
"""Maximum size of a record, bytes; real records have less than 2,000."""


@dataclass(slots=True)
class Record:
    """One live run, testbed or shell.

    identifier: unique name, also the value of ``CELLBED_RUN`` in its processes.
    kind: ``"run"``, ``"testbed"`` or ``"shell"``.
    name: name of a standing testbed, unique among live ones.
    process, process_start, boot: the supervising process, its start in clock ticks since boot, the boot id.
    namespace: inode of the PID namespace of `process`; ``None`` in records of earlier versions.
    folder: the run's folder, or ``None``.
    cgroups: control group folders to remove, parents first; each has the identifier as its name.
    scratch, pages: folders for temporary files and for pages in memory, called ``cellbed-`` and the identifier, or
    ``None``.
    control: path of the emulator's control socket, called after the identifier, or ``None``.
    engine: container engine that may have a container called ``cellbed-`` and the identifier, or ``None``.
    """

    # For reading records: no unknown keys, no conversion of types.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    identifier: str
    kind: str
    process: int
    process_start: int
    boot: str
    namespace: int | None = None
    name: str | None = None
    folder: str | None = None
    cgroups: list[str] = field(default_factory=list)
    scratch: str | None = None
    pages: str | None = None
    control: str | None = None
    engine: str | None = None

    @classmethod
    def create(cls, kind: str, folder: Path | None = None, name: str | None = None) -> Record:
        """Register the calling process as the supervisor of a new run, testbed or shell.

        Errors: :class:`CellbedError` if a live testbed has this `name`, and as in :meth:`save`.
        """
        record = cls(
            identifier=f"{kind}-{os.getpid()}-{secrets.token_hex(3)}",
            kind=kind,
            process=os.getpid(),
            process_start=process_start(os.getpid()) or 0,
            boot=boot_identifier(),
            namespace=_own_namespace(),
            name=name,
            folder=os.path.realpath(folder) if folder else None,
        )
        if name is None:
            record.save()
            return record
        if not re.fullmatch(NAME, name):
            raise CellbedError(f"'{name}' is not a valid name for a testbed: write letters, digits, '.', '_' and '-'")
        live_folder().mkdir(parents=True, exist_ok=True)
        with (live_folder() / "names.lock").open("w") as lock:  # against concurrent use of a name
            fcntl.flock(lock, fcntl.LOCK_EX)
            taken = [each.name for each in records() if each.name is not None and not each.is_stale()]
            if name in taken:
                raise CellbedError(
                    f"a testbed called '{name}' is up: choose another name with --name, or end it with "
                    f"`cellbed down {name}`"
                )
            record.save()
        return record

    def note_cgroup(self, path: Path) -> None:
        """Record a cgroup folder that is about to be made."""
        self.cgroups.append(str(path))
        self.save()

    def note_scratch(self, parent: Path) -> Path:
        """Record the folder for temporary files that is about to be made below `parent`, and return its path."""
        path = Path(os.path.realpath(parent)) / f"cellbed-{self.identifier}"
        self.scratch = str(path)
        self.save()
        return path

    def note_pages(self, parent: Path) -> Path:
        """Record the folder for pages in memory, as in :meth:`note_scratch`."""
        path = Path(os.path.realpath(parent)) / f"cellbed-{self.identifier}"
        self.pages = str(path)
        self.save()
        return path

    def note_control(self, path: Path) -> None:
        """Record the control socket that is about to be made; see :func:`cellbed.testbed.links.live.control_path`."""
        self.control = os.path.realpath(path)
        self.save()

    def note_engine(self, engine: str) -> str:
        """Record the container that an engine is about to make, and return its name."""
        self.engine = engine
        self.save()
        return f"cellbed-{self.identifier}"

    def save(self) -> None:
        """Write the record atomically: to a temporary file, which is then renamed.

        Errors: :class:`CellbedError` if the registry cannot be written.
        """
        path = self._path()
        temporary = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            # Exclusive: in a folder that others can write to, a link of this name must not lead to a file of this user.
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as record:
                record.write(json.dumps(asdict(self), indent=1))
            temporary.rename(path)
        except OSError as error:
            text = f"{error.filename or path.parent}: the registry of live runs cannot be written: {error.strerror}"
            raise CellbedError(f"{text}; set XDG_STATE_HOME to another place") from error
        finally:  # also after an interrupt
            with contextlib.suppress(OSError):
                temporary.unlink()

    def remove(self) -> None:
        """Remove the record after clean-up, with any control socket that the emulator has left."""
        if self.control is not None:
            with contextlib.suppress(OSError):
                Path(self.control).unlink()
        for path in (self._path(), self._path().with_suffix(".tmp")):  # a killed process leaves the temporary file
            path.unlink(missing_ok=True)

    def is_stale(self) -> bool:
        """Return whether the supervising process is gone, as far as this process can see."""
        if self.boot != boot_identifier():
            return True
        if self.namespace in (None, own := _own_namespace()):
            return process_start(self.process) != self.process_start
        return own == _INITIAL_NAMESPACE and not self._runs_elsewhere()

    def _runs_elsewhere(self) -> bool:
        """Return whether the supervising process runs in any PID namespace: the initial namespace shows all."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                status = (folder / "status").read_text(encoding="utf-8", errors="replace")
                inner = re.search(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE)
                if inner and int(inner[1]) == self.process and process_start(int(folder.name)) == self.process_start:
                    return True
        return False

    def is_registered(self) -> bool:
        """Return whether the record still exists; otherwise, clean-up is complete."""
        return self._path().exists()

    def _path(self) -> Path:
        return live_folder() / f"{self.identifier}.json"


def live_folder() -> Path:
    """Return the folder of the registry."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "cellbed" / "live"


def records() -> list[Record]:
    """Return all records of this user, oldest first, except those that :func:`read_records` skips."""
    return read_records()[0]


def read_records() -> tuple[list[Record], list[str]]:
    """Return all records of this user, oldest first, and a line for each skipped file (another user's, or
    malformed)."""
    found: list[tuple[float, Record]] = []
    skipped: list[str] = []
    for path in sorted(live_folder().glob("*.json")):
        try:
            content, changed = read_own(path)
            found.append((changed, parse_record(content, path.stem)))
        except FileNotFoundError:  # the run has just ended
            continue
        except OSError as error:
            skipped.append(f"skipped {path}: {error.strerror}")
        except ValueError as error:
            skipped.append(f"skipped {path}: {error}")
    return [record for _, record in sorted(found, key=lambda pair: pair[0])], skipped


def read_own(path: Path) -> tuple[bytes, float]:
    """Return the content of a small file that only this user can have written, and its modification time
    (``st_mtime``).

    Errors: ``OSError``; ``ValueError`` if another user may have written it.
    """
    # Do not follow a link, and do not wait for the writer of a pipe.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a file; remove it")
        if status.st_uid != os.geteuid():
            raise ValueError(f"it belongs to user {status.st_uid}, who can run `cellbed clean`")
        if status.st_mode & 0o022:
            raise ValueError("other users may write to it; remove it")
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"larger than {_LARGEST} bytes; remove it")
    return content, status.st_mtime


def parse_record(content: bytes, name: str) -> Record:
    """Return the record in a file called `name` and ``.json``. Errors: ``ValueError``, with the reason, for a malformed
    record."""
    from pydantic import TypeAdapter, ValidationError

    try:
        record = TypeAdapter(Record).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"{key}: {first['msg']}" if key else "not JSON"
        raise ValueError(f"not a record of a run: {reason}; remove the file") from error
    for key, is_right in (
        ("identifier", record.identifier == name and re.fullmatch(r"[a-z]+-[0-9]+-[0-9a-f]{6}", name)),
        ("kind", name.startswith(f"{record.kind}-")),
        ("process", record.process > 0),
        ("name", record.name is None or bool(re.fullmatch(NAME, record.name))),
        ("folder", record.folder is None or _is_plain(record.folder)),
        ("cgroups", all(_is_plain(path, name) for path in record.cgroups)),
        ("scratch", record.scratch is None or _is_plain(record.scratch, f"cellbed-{name}")),
        ("pages", record.pages is None or _is_plain(record.pages, f"cellbed-{name}")),
        ("control", record.control is None or _is_plain(record.control, f"{name}.sock")),
        ("engine", record.engine in (None, *ENGINES)),
    ):
        if not is_right:
            raise ValueError(f"not a record of {name}: {key}: {getattr(record, key)!r}; remove the file")
    return record


def _is_plain(path: str, name: str | None = None) -> bool:
    """Return whether a path is absolute, without ``..`` and the like, and ends with `name`."""
    plain = path.startswith("/") and os.path.normpath(path) == path and "\0" not in path
    return plain and name in (None, Path(path).name)


def _own_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def boot_identifier() -> str:
    """Return the kernel's random identifier of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def process_start(process: int) -> int | None:
    """Return the start of a process in clock ticks since boot (proc(5), ``stat`` field 22); ``None`` if it is gone."""
    fields = status_of(process)
    return None if fields[0] in ENDED else int(fields[19])


def status_of(process: int) -> list[str]:
    """Return the fields of a process in proc(5) ``stat``, from its state on; the state ``X`` if the process is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ["X"]
    return text.rpartition(")")[2].split()

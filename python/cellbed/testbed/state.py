"""The registry of live runs and shells, so that what a killed one leaves can be found and undone.

Each live run has one JSON file in ``$XDG_STATE_HOME/cellbed/live``. What has to be undone is noted there *before* it is
done. A record is stale when its process is gone: process ids are reused, so the start time of the process and the
boot id of the machine are compared as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

RUN_VARIABLE = "CELLBED_RUN"
"""Environment variable that marks every process of a run with the run's identifier."""


@dataclass(slots=True)
class Record:
    """One live run or shell.

    identifier: unique name, also the value of ``CELLBED_RUN`` in its processes.
    kind: ``"run"`` or ``"shell"``.
    process, process_start, boot: the supervising process, its start in clock ticks since boot, the boot id.
    folder: the run's folder, or ``None``.
    cgroups: cgroup folders to remove, parents first.
    undo: commands (argument vectors) that restore what was changed outside, run last first.
    control: path of the emulator's control socket, or ``None``.
    """

    identifier: str
    kind: str
    process: int
    process_start: int
    boot: str
    folder: str | None = None
    cgroups: list[str] = field(default_factory=list)
    undo: list[list[str]] = field(default_factory=list)
    control: str | None = None

    @classmethod
    def create(cls, kind: str, folder: Path | None = None) -> Record:
        """Register the calling process as the supervisor of a new run or shell."""
        record = cls(
            identifier=f"{kind}-{os.getpid()}-{secrets.token_hex(3)}",
            kind=kind,
            process=os.getpid(),
            process_start=process_start(os.getpid()) or 0,
            boot=boot_identifier(),
            folder=str(folder) if folder else None,
        )
        record.save()
        return record

    def note_cgroup(self, path: Path) -> None:
        """Note a cgroup folder that is about to be made."""
        self.cgroups.append(str(path))
        self.save()

    def note_undo(self, command: list[str]) -> None:
        """Note a command that will undo what is about to be done."""
        self.undo.append(command)
        self.save()

    def note_control(self, path: Path) -> None:
        """Note the control socket that is about to be made; see :func:`cellbed.testbed.control.control_path`."""
        self.control = str(path)
        self.save()

    def save(self) -> None:
        """Write the record whole: to a temporary file, then renamed."""
        path = self._path()
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1))
        temporary.rename(path)

    def remove(self) -> None:
        """Forget the record: everything is undone. A control socket that its emulator left goes with it."""
        if self.control is not None:
            with contextlib.suppress(OSError):
                Path(self.control).unlink()
        self._path().unlink(missing_ok=True)

    def is_stale(self) -> bool:
        """Whether the supervising process is gone."""
        return self.boot != boot_identifier() or process_start(self.process) != self.process_start

    def _path(self) -> Path:
        return live_folder() / f"{self.identifier}.json"


def live_folder() -> Path:
    """The folder of the registry."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "cellbed" / "live"


def records() -> list[Record]:
    """All records of this user, oldest first. A file that is not a record is left alone."""
    found: list[tuple[float, Record]] = []
    folder = live_folder()
    if not folder.is_dir():
        return []
    for path in folder.glob("*.json"):
        try:
            found.append((path.stat().st_mtime, Record(**json.loads(path.read_text()))))
        except (OSError, ValueError, TypeError):
            continue
    return [record for _, record in sorted(found, key=lambda pair: pair[0])]


def boot_identifier() -> str:
    """The kernel's random identifier of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_start(process: int) -> int | None:
    """Start of a process in clock ticks since boot (proc(5), ``stat`` field 22), or ``None`` if it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    after_name = text[text.rindex(")") + 2 :].split()
    return None if after_name[0] == "Z" else int(after_name[19])

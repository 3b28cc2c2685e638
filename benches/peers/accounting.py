"""What the processes of an emulator cost, the programs that run behind it left out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


def _child_ids() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _is_traffic(pid: int, program: str) -> bool:
    try:
        return program.encode() in (Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    except OSError:
        return False


def _split(root: int, program: str) -> tuple[list[int], list[int]]:
    """What descends from `root`, it included: the emulator's processes, and those that run `program` behind the link.

    A shell's own command line names the program too, so only a process without children counts as that program.
    """
    children = _child_ids()
    of_emulator, of_traffic, waiting = [], [], [root]
    while waiting:
        pid = waiting.pop()
        is_leaf = not children.get(pid)
        (of_traffic if is_leaf and _is_traffic(pid, program) else of_emulator).append(pid)
        waiting += children.get(pid, [])
    return of_emulator, of_traffic


def family(root: int, program: str) -> list[int]:
    """The processes of the emulator that was started as `root`, without those that run `program` behind its link."""
    return _split(root, program)[0]


def traffic(root: int, program: str) -> list[int]:
    """The processes that run `program` behind that link."""
    return _split(root, program)[1]


def cpu_seconds(pids: list[int]) -> float:
    """Processor time of all threads, by the scheduler's own clock: counting ticks deceives where work is periodic."""
    total = 0
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue
    return total / 1e9


@dataclass(frozen=True, slots=True)
class Reading:
    """Time (s, monotonic), processor time (s) and a counter, all at one moment."""

    time: float
    cpu: float
    count: int

    @classmethod
    def now(cls, pids: list[int], count: int) -> Reading:
        return cls(time.monotonic(), cpu_seconds(pids), count)

    def rate_until(self, later: Reading) -> float:
        """The counter's growth a second."""
        return (later.count - self.count) / (later.time - self.time)

    def share_until(self, later: Reading) -> float:
        """Processor time per time: 1.0 is one core."""
        return (later.cpu - self.cpu) / (later.time - self.time)

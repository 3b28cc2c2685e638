"""Recording campaigns: a recording at each due time, continued after a crash, a restart or a reboot.

A time is due `every` after the one before, by the wall clock in UTC. Each due time gets one turn in ``campaign.json``,
which is written before a recording begins. So no time is recorded twice.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from cellbed.support.errors import CellbedError
from cellbed.support.readable import duration_words
from cellbed.support.units import DURATION
from cellbed.support.whole_files import write_whole
from cellbed_node import inputs
from cellbed_node.temporary import hold

if TYPE_CHECKING:
    from rich.table import Table

_DAY = 86_400 * 10**9
SPAN = replace(DURATION, units={**DURATION.units, "day": _DAY, "days": _DAY}, examples=("2 h", "3 days"))
"""A duration of hours or days."""
STATE = "campaign.json"
_MOST_TURNS = 100_000
_LONGEST_WAIT_S = 30.0
"""Maximum sleep between two looks at the wall clock, which can be set, or go on while the machine is asleep."""
_LATEST_S = 300.0
"""Maximum delay of the begin of a recording; a later time is missed."""
_PATIENCE_S = 60.0
"""Maximum wait for the recorder of a killed campaign, which ends its recording."""


class Turn(BaseModel, frozen=True, extra="allow"):
    """A due time. folder: name in the campaign's folder. seconds: length of the recording. problem: one sentence."""

    due: AwareDatetime
    outcome: Literal["recording", "recorded", "failed", "missed"]
    folder: str | None = None
    began: AwareDatetime | None = None
    ended: AwareDatetime | None = None
    seconds: float | None = None
    problem: str | None = None


class Campaign(BaseModel, frozen=True, extra="allow"):
    """The state of a campaign, as in ``campaign.json``. arguments: of the recorder, the same for all recordings."""

    format: Literal["cellbed-campaign"] = "cellbed-campaign"
    version: Literal[1] = 1
    begins: AwareDatetime
    every_s: float = Field(gt=0, allow_inf_nan=False)
    for_s: float = Field(gt=0, allow_inf_nan=False)
    arguments: tuple[str, ...]
    turns: tuple[Turn, ...] = ()

    @property
    def count(self) -> int:
        """The number of due times: the first at the begin, the last before the end."""
        return max(1, -int(-self.for_s // self.every_s))

    def due(self, number: int) -> datetime:
        """Return the due time of a turn, counted from 0."""
        return self.begins + timedelta(seconds=number * self.every_s)


class Clock:
    """The wall clock. interrupted: whether the user has asked for the end."""

    def __init__(self) -> None:
        self.interrupted = False
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 due times are times of the day

    def wait(self, seconds: float) -> None:
        """Wait for this time, or until :meth:`interrupt`."""
        select.select([self._pipe[0]], [], [], seconds)

    def interrupt(self) -> None:
        """Ask for the end. Can be called by handlers of signals."""
        self.interrupted = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipe[1], b"!")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The end of a recording. seconds: its length; None without one. problem: a sentence; None if there was none.

    misused: whether the recorder refused its arguments.
    """

    seconds: float | None
    problem: str | None = None
    misused: bool = False


Record = Callable[[Path, float], Recorded]
"""Records into a new folder, for at most this time in seconds."""


def run_campaign(
    folder: Path, every_ns: int, for_ns: int, arguments: Sequence[str], record: Record, clock: Clock
) -> Campaign:
    """Record at each due time until the end of the campaign or an interruption. Continue a campaign in `folder`.

    Args:
        folder: The folder of the campaign; one folder in it per recording, named by the due time.
        every_ns: Time between due times.
        for_ns: Time from the first due time to the end.
        arguments: Arguments of the recorder, noted in the state.
        record: Makes a recording.
        clock: The clock.

    Returns:
        The final state.

    Raises:
        CellbedError: The campaign in `folder` is another one, or the recorder refuses the arguments at the first time.
    """
    if not every_ns or not for_ns or for_ns > every_ns * _MOST_TURNS:
        raise CellbedError(f"a campaign has 1 to {_MOST_TURNS} times: choose other values of --every and --for")
    begins = clock.now().replace(microsecond=0)
    asked = Campaign(begins=begins, every_s=every_ns / 1e9, for_s=for_ns / 1e9, arguments=tuple(arguments))
    folder.mkdir(parents=True, exist_ok=True)
    lock = _lock(folder, clock)
    try:
        campaign = _settle(folder, _load(folder, asked), clock)
        while len(campaign.turns) < campaign.count and not clock.interrupted:
            early_s = (campaign.due(len(campaign.turns)) - clock.now()).total_seconds()
            if early_s > 0:
                clock.wait(min(early_s, _LONGEST_WAIT_S))
            elif missed := _missed(campaign, clock.now()):
                campaign = _add(folder, campaign, *missed)
            else:
                campaign = _take_turn(folder, campaign, record, clock)
    finally:
        os.close(lock)
    return campaign


def _lock(folder: Path, clock: Clock) -> int:
    """Return a descriptor with the lock of a campaign's folder. A recorder that outlives a killed campaign has it."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            descriptor = hold(folder)
        except BlockingIOError:
            if time.monotonic() > end or clock.interrupted:
                raise CellbedError(f"{folder}: another process runs this campaign") from None
            time.sleep(0.1)
        else:
            os.set_inheritable(descriptor, True)
            return descriptor


def _load(folder: Path, asked: Campaign) -> Campaign:
    path = folder / STATE
    try:
        found = Campaign.model_validate_json(inputs.content(path))
    except FileNotFoundError:
        return asked
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise CellbedError(f"{path}: not the state of a campaign: {reason}: choose another --out") from None
    for name, option in (("every_s", "--every"), ("for_s", "--for"), ("arguments", "the recorder's options")):
        if getattr(found, name) != getattr(asked, name):
            raise CellbedError(f"{folder}: its campaign had other {option}: repeat them, or choose another --out")
    return found


def _settle(folder: Path, campaign: Campaign, clock: Clock) -> Campaign:
    """Complete the turn of a process that was killed during its recording."""
    if not campaign.turns or campaign.turns[-1].outcome != "recording":
        return campaign
    turn = campaign.turns[-1]
    seconds = None if turn.folder is None else recorded_seconds(folder / Path(turn.folder).name)
    outcome: Literal["failed", "recorded"] = "failed" if seconds is None else "recorded"
    text = "cellbed was killed before anything was recorded" if seconds is None else "cut off: cellbed was killed"
    settled = turn.model_copy(update={"outcome": outcome, "seconds": seconds, "problem": text, "ended": clock.now()})
    return _add(folder, campaign.model_copy(update={"turns": campaign.turns[:-1]}), settled)


def recorded_seconds(folder: Path) -> float | None:
    """Return the length of the recording in `folder`, completed after a crash; None if there is none."""
    from cellbed.recordings.errors import RecordingError
    from cellbed.recordings.recording import read_description

    try:
        return read_description(folder).duration_ns / 1e9
    except RecordingError:
        return None


def _missed(campaign: Campaign, now: datetime) -> list[Turn]:
    """Return turns for the due times that have passed too long ago."""
    latest = timedelta(seconds=min(_LATEST_S, campaign.every_s / 2))
    before = campaign.turns[-1].ended if campaign.turns else None
    missed: list[Turn] = []
    for number in range(len(campaign.turns), campaign.count):
        due = campaign.due(number)
        if now - due <= latest:
            break
        why = "the recording before it had not ended" if before is not None and before > due else "nothing ran then"
        missed.append(Turn(due=due, outcome="missed", problem=why))
    return missed


def _take_turn(folder: Path, campaign: Campaign, record: Record, clock: Clock) -> Campaign:
    due, began = campaign.due(len(campaign.turns)), clock.now()
    name = due.strftime("%Y-%m-%dT%H-%M-%SZ")
    turn = Turn(due=due, outcome="recording", folder=name, began=began)
    try:
        _save(folder, campaign.model_copy(update={"turns": (*campaign.turns, turn)}))
        limit_s = (due - began).total_seconds() + campaign.every_s
        done = record(folder / name, limit_s)
    except OSError as error:  # a full disk
        done = Recorded(None, f"{folder}: cannot be written: {error.strerror or error}")
    if done.misused and not campaign.turns:
        with contextlib.suppress(OSError):
            (folder / STATE).unlink()
            folder.rmdir()
        raise CellbedError(done.problem or "the recorder refuses its arguments")
    outcome = "failed" if done.seconds is None else "recorded"
    ended = {"outcome": outcome, "seconds": done.seconds, "problem": done.problem, "ended": clock.now()}
    return _add(folder, campaign, turn.model_copy(update=ended))


def _add(folder: Path, campaign: Campaign, *turns: Turn) -> Campaign:
    """Return the campaign with further turns, reported and saved. A full disk does not end a campaign."""
    for turn in turns:
        words = (f"{_when(turn.due)}: {turn.outcome}", turn.problem)
        print(*filter(None, words), sep=": ", file=sys.stderr, flush=True)
    campaign = campaign.model_copy(update={"turns": (*campaign.turns, *turns)})
    try:
        _save(folder, campaign)
    except OSError as error:
        print(f"warning: {folder / STATE}: cannot be written: {error.strerror or error}", file=sys.stderr, flush=True)
    return campaign


def _save(folder: Path, campaign: Campaign) -> None:
    """Write the state so that a power failure leaves either the old one or the new one."""

    def fill(path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.write(campaign.model_dump_json(indent=1, exclude_none=True) + "\n")
            file.flush()
            os.fsync(file.fileno())

    write_whole(folder / STATE, fill)


def _when(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def table(campaign: Campaign) -> Table:
    """Return a table of all turns, with counts of outcomes as caption."""
    from rich import box
    from rich.table import Table

    table = Table("due (UTC)", "outcome", "length", "folder", "problem", box=box.SIMPLE_HEAD)
    for turn in campaign.turns:
        length = "" if turn.seconds is None else duration_words(turn.seconds)
        table.add_row(_when(turn.due), turn.outcome, length, turn.folder or "", turn.problem or "")
    outcomes = [turn.outcome for turn in campaign.turns]
    counts = ", ".join(f"{outcomes.count(each)} {each}" for each in ("recorded", "failed", "missed"))
    more = "" if len(outcomes) == campaign.count else "; the same command continues"
    table.caption = f"{len(outcomes)} of {campaign.count} times: {counts}{more}"
    return table

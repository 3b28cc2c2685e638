"""Radio cells: groups of endpoints whose links share the time of one cell."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from cellbed.archive import TraceError
from cellbed.scenario.fields import Unlimited, quantity
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.mobile import MobileLink
from cellbed.scenario.nodes import AnyMobileLink, Name, NodeGroup
from cellbed.scenario.table import Path, Table, written
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION


class PlainScheduler(Table):
    """A scheduler without parameters."""

    kind: Literal["round-robin", "max-rate", "shortest-remaining", "priority"] = Field(description="Kind of scheduler.")


class ProportionalFair(Table):
    """The user with the highest ratio of its rate in the slot to its average throughput."""

    kind: Literal["proportional-fair"] = Field(description="Kind of scheduler.")
    window: Annotated[int, quantity(DURATION, "1 ms", "1000 s")] = Field(
        written("1 s"), description="Time constant of the average throughput."
    )
    begin: Literal["zero", "fair-share"] = Field(
        "zero", description="Average of a user that enters: none, or the mean of those in the cell."
    )


def _as_table(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


_KINDS = Literal["round-robin", "proportional-fair", "max-rate", "shortest-remaining", "priority"]
_Tables = Annotated[PlainScheduler | ProportionalFair, Field(discriminator="kind")]
Scheduler = Annotated[_Tables, BeforeValidator(_as_table, json_schema_input_type=_KINDS | _Tables)]
"""The scheduler that assigns slots: the name of a kind, or its table."""


class Cell(Table):
    """A radio cell: its users share its time slot by slot, uplink and downlink independently."""

    IN_WORDS: ClassVar[dict[str, str]] = {
        "round-robin": "round robin",
        "proportional-fair": "proportional fair",
        "max-rate": "max-rate",
        "shortest-remaining": "shortest remaining first",
        "priority": "strict priority",
    }

    scheduler: Scheduler = Field(
        written("proportional-fair"),
        description="Who gets a slot: 'round-robin', 'proportional-fair', 'max-rate', 'shortest-remaining', "
        "'priority', or a table. Recordings: learned.",
        examples=["proportional-fair", "round-robin"],
    )
    slot: Annotated[int, quantity(DURATION, "10 us", "1 s")] = Field(written("1 ms"), description="Length of a slot.")
    site: Name | None = Field(
        None,
        description="Site of [sites] at which the cell's tower is. Default: none, it is where the core links meet.",
        examples=["north"],
    )

    def __str__(self) -> str:
        """Return the cell in a few words."""
        window = getattr(self.scheduler, "window", None)
        words = self.IN_WORDS[self.scheduler.kind] + (f" over {DURATION.format(window)}" if window else "")
        words += " from the fair share on" if getattr(self.scheduler, "begin", "zero") == "fair-share" else ""
        return f"{words}, slots of {DURATION.format(self.slot)}"


Cells = dict[Name, Cell]


def cell_misfits(
    cells: Mapping[str, Cell], groups: Mapping[str, NodeGroup], mobile: AnyMobileLink | None, duration: int
) -> Iterator[tuple[Path, str]]:
    """Yield misfits between cells and groups: (path, what to do).

    mobile: default link of groups. duration: duration of the workload, ns.
    """
    for name, group in groups.items():
        where: Path = ("nodes", name, "cell")
        if group.cell is None:
            if group.priority:
                text = "only users of a cell have a priority: write 'cell', or remove this key"
                yield ("nodes", name, "priority"), text
            if group.route:
                text = "a route begins in a cell: write 'cell' in the group, or remove the route"
                yield ("nodes", name, "route"), text
        elif group.node_class != "endpoint":
            yield where, "only endpoints have a mobile link: remove this key"
        elif group.cell not in cells:
            there = f"write one of {', '.join(cells)}" if cells else f"write [cells.{group.cell}]"
            yield where, f"there is no cell '{group.cell}': {did_you_mean(group.cell, cells)}{there}"
        else:
            visited = [group.cell, *(handover.cell for handover in group.route)]
            if group.priority and all(cells[it].scheduler.kind != "priority" for it in visited if it in cells):
                text = f"the scheduler of [cells.{group.cell}] has no priorities: write scheduler = 'priority' there"
                yield ("nodes", name, "priority"), f"{text}, or remove this key"
            if (link := group.link or mobile) is not None and (objection := _objection(link)):
                yield where, objection
            for path, text in _route_misfits(cells, group, group.link or mobile, duration):
                yield ("nodes", name, "route", *path), text
    for name in cells:
        if not any(name in (group.cell, *(each.cell for each in group.route)) for group in groups.values()):
            text = f"no group of nodes is in this cell: write cell = '{name}' in one, or remove the cell"
            yield ("cells", name), text


def _route_misfits(
    cells: Mapping[str, Cell], group: NodeGroup, link: AnyMobileLink | None, duration: int
) -> Iterator[tuple[Path, str]]:
    """Yield problems of the handovers of a group in a cell: (path below the route, what to do)."""
    present, entered = group.cell, -1
    for index, handover in enumerate(group.route):
        if handover.cell not in cells:
            text = f"there is no cell '{handover.cell}': {did_you_mean(handover.cell, cells)}"
            yield (index, "cell"), f"{text}write one of {', '.join(cells)}"
        elif handover.cell == present:
            yield (index, "cell"), f"the endpoints are in the cell '{present}' already: write another one"
        if handover.at <= max(entered, 0):
            when = f"they enter the cell '{present}' at {DURATION.format(max(entered, 0))}"
            yield (index, "at"), f"{when}: write a later time, and handovers in order of time"
        if handover.at >= duration:
            text = f"the workload ends after {DURATION.format(duration)}: write an earlier time"
            yield (index, "at"), text
        if handover.change is not None and not isinstance(link, MobileLink | None):
            yield (index,), "this kind of link does not change: remove the keys of the new cell's link"
        if objection := _objection_to([handover.up, handover.down]):
            yield (index,), objection
        present, entered = handover.cell, handover.enters


def _objection(link: AnyMobileLink) -> str | None:
    """Return why a link cannot share a cell; None if it can."""
    if getattr(link, "fallback", None) is not None:
        return "a link of two radios cannot share a cell: remove this key, or 'fallback' of the link"
    try:
        capacities = [each for ways in (link, *link.changes) for each in (ways.up, ways.down)]
    except TraceError as error:
        return str(error)
    return _objection_to(capacities)


def _objection_to(capacities: Sequence[object]) -> str | None:
    if any(isinstance(each, Replay) for each in capacities):
        text = "a recording shares a cell by the method conditional alone, since others have a schedule for each burst"
        return f"{text}: write method = 'conditional', a trace, a rate or a radio link"
    if any(isinstance(each, Unlimited) for each in capacities):
        return "a link without a limit has nothing to share: write a trace, a rate or a radio link"
    return None

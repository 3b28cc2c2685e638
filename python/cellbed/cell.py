"""One direction of a radio cell in virtual time: arrays of each user's arrivals in, arrays of outcomes out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from cellbed import _core
from cellbed.link import Link, arrivals_of, column_of, model_of, time_of
from cellbed.outcomes import Outcomes
from cellbed.scenario.cells import Cell as Table
from cellbed.scenario.problems import problems

User = tuple[str, list[tuple[int, int, str]], int, list[tuple[int, int | None]]]
"""Stages, their changes, priority and visits, in the model's format."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Outcomes of the users of a cell.

    Attributes:
        users: Outcomes of each user's packets.
        served: Time for which each user had the cell with packets waiting, ns (int64).
    """

    users: tuple[Outcomes, ...]
    served: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Shared(users={list(self.users)}, served={self.served.tolist()})"


class Cell:
    """One direction of a radio cell, at rest at time 0; a scheduler divides its time among the users::

        Cell([{"rate": "12 Mbit/s"}, {"rate": "lte-suburban.up", "start": "7 s"}], scheduler="round-robin")

    Args:
        users: The link that each user would have alone: a :class:`cellbed.Link` or its arguments, with a limited rate
            or a radio link.
        scheduler: ``"round-robin"``, ``"max-rate"``, ``"proportional-fair"`` (default), ``"shortest-remaining"``,
            ``"priority"``, or a table as in a scenario.
        slot: Length of a slot.
        priorities: Priority of each user, 0 the highest, for ``"priority"``.
        visits: For each user, pairs of begin and end in order, ``None`` for an open end; default: always. Outside of
            its visits a user has its channel alone.

    Raises:
        ValueError: A wrong value, named in the error.
    """

    def __init__(
        self,
        users: Sequence[Link | Mapping[str, Any]],
        *,
        scheduler: str | Mapping[str, Any] = "proportional-fair",
        slot: str = "1 ms",
        priorities: Sequence[int] | None = None,
        visits: Sequence[Sequence[Sequence[str | int | None]]] | None = None,
    ) -> None:
        data = {"scheduler": dict(scheduler) if isinstance(scheduler, Mapping) else scheduler, "slot": slot}
        try:
            self._table = Table.model_validate(data)
        except ValidationError as error:
            found = problems(error.errors(include_url=False), data, Table)
            raise ValueError("; ".join(f"{problem.key}: {problem.text}" for problem in found)) from None
        if isinstance(users, Link | Mapping) or not users:
            raise ValueError("users: give a list of at least one user")
        self._users = tuple(_link(number, user) for number, user in enumerate(users))
        given = [0] * len(self._users) if priorities is None else list(priorities)
        if priorities is not None and self._table.scheduler.kind != "priority":
            raise ValueError("priorities: only the scheduler 'priority' has them: write scheduler='priority'")
        self._priorities = column_of("priorities", given, np.uint32, "a whole number for each user").tolist()
        if len(given) != len(self._users):
            raise ValueError(f"priorities: {len(given)} for {len(self._users)} users: give one for each")
        self._visits = _visits(visits, len(self._users))
        nothing = arrivals_of([], [], None, None)
        for number, each in enumerate(self._links()):
            try:
                self._share([each], nothing, np.empty(0, np.uint32))
            except ValueError as error:
                raise ValueError(f"users[{number}]: {error}") from None

    def __repr__(self) -> str:
        return f"<Cell of {len(self._users)} users, {self._table}>"

    @property
    def users(self) -> tuple[Link, ...]:
        """The link that each user would have alone."""
        return self._users

    def run(
        self,
        times: Sequence[npt.ArrayLike],
        sizes: npt.ArrayLike | Sequence[npt.ArrayLike],
        *,
        flows: Sequence[npt.ArrayLike] | None = None,
        ecn: Sequence[npt.ArrayLike] | None = None,
        to_come: Sequence[npt.ArrayLike] | None = None,
    ) -> Shared:
        """Return the outcomes of packets, from the start until the last one has left.

        The packets of each user are numbered from 0. Among simultaneous packets, those of the first user come first.

        Args:
            times: For each user, the arrivals of its packets, as in :meth:`cellbed.Link.run`.
            sizes: For each user, as in :meth:`cellbed.Link.run`; or one size for all.
            flows: For each user, as in :meth:`cellbed.Link.run`.
            ecn: For each user, as in :meth:`cellbed.Link.run`.
            to_come: For each user and packet, the bytes that the user will send beyond its queue from this packet on,
                for ``"shortest-remaining"``.

        Raises:
            ValueError: A wrong value, named in the error.
        """
        count = len(self._users)
        columns: dict[str, Any] = {"times": times, "sizes": sizes, "flows": flows, "ecn": ecn, "to_come": to_come}
        if isinstance(sizes, int | np.integer):
            columns["sizes"] = [sizes] * count
        for name, column in columns.items():
            if column is not None and (not hasattr(column, "__len__") or len(column) != count):
                raise ValueError(f"{name}: give a list of {count}, one row for each user")
        packets = [_packets(number, {k: c and c[number] for k, c in columns.items()}) for number in range(count)]
        lengths = [len(each[0]) for each in packets]
        users = np.repeat(np.arange(count, dtype=np.uint32), lengths)
        numbers = np.concatenate([np.arange(length, dtype=np.uint64) for length in lengths])
        merged: list[Any] = [None if each[0] is None else np.concatenate(each) for each in zip(*packets, strict=True)]
        order = np.argsort(merged[0], kind="stable")
        when, size, flow, mark, bytes_to_come = [None if each is None else each[order] for each in merged]
        table, served = self._share(self._links(), (when, size, flow, mark), users[order], bytes_to_come)
        found = Outcomes(*table)
        own, number = users[order][found.packet], numbers[order][found.packet]
        outcomes = []
        for user in range(count):
            rows = np.flatnonzero(own == user)
            rows = rows[np.argsort(number[rows], kind="stable")]
            outcomes.append(replace(found[rows], packet=number[rows]))
        return Shared(tuple(outcomes), np.array(served, np.int64))

    def _links(self) -> list[User]:
        return [
            (*model_of(link), level, visits)
            for link, level, visits in zip(self._users, self._priorities, self._visits, strict=True)
        ]

    def _share(self, links: list[User], arrivals: Any, users: Any, to_come: Any = None) -> Any:
        scheduler = json.dumps(self._table.scheduler.stage())
        return _core.share_cell(scheduler, self._table.slot, links, arrivals, users, to_come)


def _link(number: int, user: Link | Mapping[str, Any]) -> Link:
    if not isinstance(user, Link):
        try:
            user = Link(**user)
        except (TypeError, ValueError) as error:
            raise ValueError(f"users[{number}]: {error}") from None
    return user


def _visits(
    visits: Sequence[Sequence[Sequence[str | int | None]]] | None, users: int
) -> list[list[tuple[int, int | None]]]:
    """Return the times at which each user is in the cell, ns."""
    if visits is None:
        return [[(0, None)]] * users
    if isinstance(visits, str) or len(visits) != users:
        raise ValueError(f"visits: {len(visits)} for {users} users: give a list of visits for each")
    found = []
    for number, of_user in enumerate(visits):
        last: int | None = 0
        times: list[tuple[int, int | None]] = []
        for place, visit in enumerate(of_user):
            try:
                begin, end = visit
                enters, leaves = time_of(begin if begin is not None else "0 s"), None if end is None else time_of(end)
            except (TypeError, ValueError) as error:
                raise ValueError(f"visits[{number}][{place}]: {visit!r} is not a pair of times: {error}") from None
            if last is None or enters < last or (leaves is not None and leaves <= enters):
                raise ValueError(
                    f"visits[{number}][{place}]: it must end after it begins, and begin after the one before"
                )
            last = leaves
            times.append((enters, leaves))
        if not times:
            raise ValueError(f"visits[{number}]: the user is never in the cell: leave it out of the users")
        found.append(times)
    return found


def _packets(number: int, columns: Mapping[str, Any]) -> list[Any]:
    """Return the columns of a user's packets."""
    to_come = columns["to_come"]
    try:
        found = arrivals_of(columns["times"], columns["sizes"], columns["flows"], columns["ecn"])
        if (np.diff(found[0]) < 0).any():
            raise ValueError("times are not sorted: sort the packets by their arrival")
        rest = None if to_come is None else column_of("to_come", to_come, np.uint64, "whole bytes", len(found[0]))
        for name, column in zip(("sizes", "flows", "ecn", "to_come"), (*found[1:], rest), strict=True):
            if column is not None and len(column) != len(found[0]):
                raise ValueError(f"{name} has {len(column)} values for {len(found[0])} packets")
        if (found[0] < 0).any():
            raise ValueError("times contain a negative one: they count from the start of the cell, from 0 on")
        if not found[1].all():
            raise ValueError("sizes contain 0: a packet has at least one byte")
        if found[3] is not None and (found[3] > 3).any():
            raise ValueError("ecn contains a number above 3: give the ECN field, 0 to 3")
    except ValueError as error:
        raise ValueError(f"users[{number}]: {error}") from None
    return [*found, rest]

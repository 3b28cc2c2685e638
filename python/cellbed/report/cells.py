"""Radio cells of several runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cellbed.report import formats, ranking

if TYPE_CHECKING:
    from cellbed.measure.cells import CellSummary
    from cellbed.measure.summary import Summary


def compare(summaries: Sequence[Summary]) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Yield the cells of several runs: name, and labelled rows with a text for each run."""
    of_runs = [{cell.name: cell for cell in summary.cells} for summary in summaries]
    for name in dict.fromkeys(name for cells in of_runs for name in cells):
        cells = [each.get(name) for each in of_runs]

        def row(text: Callable[[CellSummary], str], cells: list[CellSummary | None] = cells) -> list[str]:
            return [formats.NOTHING if cell is None else text(cell) for cell in cells]

        rows = [
            ("throughput", row(lambda cell: formats.rate(cell.throughput_mbit_s))),
            ("Jain's index of throughputs", row(lambda cell: _index(cell.fairness))),
            ("Jain's index of shares of time", row(lambda cell: _index(cell.time_fairness))),
        ]
        users = list(dict.fromkeys(user.direction for cell in cells if cell is not None for user in cell.users))
        for direction in users[: ranking.visible_rows(len(users))]:
            rows.append((f"throughput of {direction}", row(partial(_user, direction))))
        if more := len(users) - ranking.visible_rows(len(users)):
            rows.append((f"and {more} users more", [""] * len(cells)))
        yield name, rows


def _user(direction: str, cell: CellSummary) -> str:
    """Return the throughput of a user, and its share of the throughput of all users in the cell."""
    total = sum(user.throughput_mbit_s for user in cell.users)
    found = next((user for user in cell.users if user.direction == direction), None)
    if found is None:
        return formats.NOTHING
    return formats.rate(found.throughput_mbit_s) + (
        f" ({formats.share(found.throughput_mbit_s / total)})" if total else ""
    )


def _index(fairness: float | None) -> str:
    return formats.NOTHING if fairness is None else f"{fairness:.3f}"

"""The applications in virtual time: the same files, trains and pages, over a path that no clock runs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cellbed import Link
from cellbed.errors import CellbedError
from cellbed.experiments.evaluation.adaptation import play
from cellbed.experiments.evaluation.applications import (
    ROUND_TRIP,
    Downloads,
    Measured,
    Pages,
    Player,
    Protocol,
    RoundTrips,
    Trains,
    download,
    page,
    train,
)
from cellbed.experiments.evaluation.network import Network
from cellbed.experiments.evaluation.order import Step
from cellbed.experiments.evaluation.pages import pages
from cellbed.simulation import Path, Session

_SECOND = 1_000_000_000
_PATIENCE = 120 * _SECOND


def perform(step: Step, network: Network) -> list[Measured]:
    """Run the application of a step on a network that begins where the step does.

    Errors: :class:`CellbedError` for stages that make no link.
    """
    try:
        path = Path(Link.of_stages(network.uplink), Link.of_stages(network.downlink))
    except ValueError as error:
        raise CellbedError(str(error)) from None
    match step.application:
        case RoundTrips() as application:
            return _round_trips(path, application)
        case Trains() as application:
            return _trains(path, application, step.seed)
        case Downloads() as application:
            return _downloads(path, application, step.seed)
        case Pages() as application:
            return _pages(path, application, step.seed)
        case Player() as application:
            return _player(path, application, step.seed)


def _round_trips(path: Path, application: RoundTrips) -> list[Measured]:
    found = path.round_trips(
        count=application.packets,
        interval=_nanos(application.interval_s),
        request=application.bytes,
        answer=application.bytes,
    )
    return [(ROUND_TRIP, value) for value in _seconds(found.taken.tolist())]


def _trains(path: Path, application: Trains, seed: int) -> list[Measured]:
    lengths = list(application.lengths)
    random.Random(seed).shuffle(lengths)
    gap, found = _nanos(application.gap_s), list[Measured]()
    for length in (length for length in lengths for _ in range(application.trains)):
        at = path.now + gap
        taken = path.trains(
            at, lengths=[length], packet=application.bytes, acknowledgement=application.ack_bytes, until=at + _PATIENCE
        ).completion.tolist()
        found += [(train(length), value) for value in _seconds(taken)]
    return found


def _downloads(path: Path, application: Downloads, seed: int) -> list[Measured]:
    found: list[Measured] = []
    for pause, size in application.turns(seed):
        at = path.now + _nanos(pause)
        taken = path.downloads(at, sizes=[size], request=8, until=at + _PATIENCE).taken.tolist()
        found += [(download(size), value) for value in _seconds(taken)]
    return found


def _pages(path: Path, application: Pages, seed: int) -> list[Measured]:
    chance = random.Random(seed)
    shapes = {each.name: [(one.bytes, one.parent) for one in each.objects] for each in pages()}
    loads: list[tuple[str, Protocol]] = [(name, one) for name in application.names for one in application.protocols]
    chance.shuffle(loads)
    found: list[Measured] = []
    for name, protocol in loads:
        at = path.now + _nanos(chance.uniform(*application.pause_s))
        taken = path.page(at, objects=shapes[name], protocol=protocol, until=at + _PATIENCE).taken
        found += [(page(name, protocol), value) for value in _seconds([taken])]
    return found


def _player(path: Path, application: Player, seed: int) -> list[Measured]:
    rules = list(application.rules)
    random.Random(seed).shuffle(rules)
    found: list[Measured] = []
    for rule in rules:
        session = path.session(request=8)

        def fetch(size: int, session: Session = session) -> tuple[float, float]:
            done = session.fetch(size)
            return float(done.started[0]) / _SECOND, float(done.finished[0]) / _SECOND

        found += play(application, rule, fetch)
    return found


def _nanos(seconds: float) -> int:
    return round(seconds * _SECOND)


def _seconds(taken: Sequence[int]) -> list[float | None]:
    return [value / _SECOND if value >= 0 else None for value in taken]

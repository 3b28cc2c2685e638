"""The model of a kind in virtual time: its loads, its servers, and the measurement of its profile.

The model of a kind is the object ``VIRTUAL`` in the module ``virtual`` of its package.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cellbed.workloads.kind import Configure, Deployment

if TYPE_CHECKING:
    import polars as pl

    from cellbed.runformat.events import Journal
    from cellbed.testbed.plan import Plan
    from cellbed.workloads.virtual.world import World

T = TypeVar("T")
Packets = Callable[[Collection[int]], Any]
"""Returns the packets of a run to or from service ports (:data:`cellbed.measure.packets.RECORD`)."""
Sample = Mapping[str, Any]
"""The times of a request, ns by part, and its reply."""
FEWEST = 10
"""Minimum number of requests of a profile."""
_NEAREST = 8
"""Number of samples with similar sizes to draw from."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The measurement of the profile of a kind: a run over fast links.

    samples: returns the samples of an application in such a run. Arguments: its table in ``run.json``, its rows of
    ``requests.parquet`` and of ``messages.parquet``, and the packets of ports. keys: keys of each sample. rate: of
    requests, low enough that programs wait half of the time or more, as usual: a program that is always busy is faster
    than one that has to wake up. seconds: duration. queued: whether workers of a service take the requests from a
    queue. Its profile is measured with CPU limits, which cost more than their quota: a service that always computes
    under a limit of one processor takes 3 % longer. Such a profile does not contain the competition of requests for a
    quota, which services without a queue have. files: keys of the kind's table with files. load: keys of the kind's
    table that are left out. arrivals: for a table of the kind, if not Poisson.
    """

    samples: Callable[[Mapping[str, Any], pl.DataFrame, pl.DataFrame, Packets], list[dict[str, Any]]]
    keys: frozenset[str]
    rate: str
    seconds: int = 20
    queued: bool = False
    files: tuple[str, ...] = ()
    load: tuple[str, ...] = ()
    arrivals: Callable[[Mapping[str, Any]], dict[str, Any] | None] = lambda _: None


class Draw:
    """Draws a sample for each request, the same for the same seed and request.

    The sample has the same input, if there is one, else a similar size. Successive requests draw all samples in random
    order before any sample repeats, so that rare long times are as frequent as measured. Samples of cold programs are
    drawn for the first requests; for others only if there are few others. each: times of a server and of an endpoint
    for each further simultaneous request, ns. idle_ns: idle time until a server closes a connection.
    """

    def __init__(self, samples: list[dict[str, Any]], seed: int) -> None:
        warm = [sample for sample in samples if "cold" not in sample and "first" not in sample]
        self._samples, self._seed = warm if len(warm) >= FEWEST else samples, seed
        self._first = {sample["first"]: sample for sample in samples if "first" in sample}
        self._cold = [sample for sample in samples if "cold" in sample]
        self.each: Sequence[int] = samples[0].get("each", (0, 0))
        self.idle_ns: int | None = samples[0].get("idle")
        self._orders: dict[tuple[str, int, int], list[int]] = {}
        self._of_input: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for sample in samples:
            if "input" in sample:
                self._of_input[sample["input"]].append(sample)
        self.sample = lru_cache(maxsize=1 << 12)(self._sample)  # asked several times for each request

    def _sample(self, request: str, of_input: str | None = None, size: int = 0) -> Sample:
        """Return the sample of a request. request: series and number, as ``endpoint/number``. size: bytes of the
        payload of its input."""
        found = self._samples
        if of_input is not None:
            found = (
                self._of_input.get(of_input) or sorted(found, key=lambda each: abs(each["bytes_up"] - size))[:_NEAREST]
            )
        series, _, number = request.rpartition("/")
        lap, place = divmod(int(number), len(found))
        order = self._orders.get((series, len(found), lap))
        if order is None:
            shuffled = random.Random(f"{self._seed}/{series}/{len(found)}/{lap}/profile")
            order = self._orders[series, len(found), lap] = shuffled.sample(range(len(found)), len(found))
        return found[order[place]]

    def cold(self, request: str, arrived: int) -> Sample:
        """Return the sample of a request. arrived: number of earlier requests at its server, which begins cold."""
        found = [sample for sample in self._cold if sample["cold"] == arrived]
        return random.Random(f"{self._seed}/{request}").choice(found) if found else self.sample(request)

    def first(self, endpoint: str) -> Sample | None:
        """Return the sample of the first request of an endpoint, else of another endpoint, if known."""
        return self._first.get(endpoint) or next(iter(self._first.values()), None)


@dataclass(frozen=True, slots=True)
class Setting:
    """A run in virtual time. raw: folder of the programs' files. samples: by name of the application. stack: closes
    open resources at the end. cache: folder that `prepare` has filled."""

    world: World
    raw: Path
    seed: int
    samples: Mapping[str, list[dict[str, Any]]]
    journal: Journal
    stack: ExitStack
    cache: Path

    def draw(self, each: Deployment) -> Draw:
        """Return the samples of an application."""
        return Draw(self.samples[each.name], self.seed)

    def clients(self, each: Deployment, configure: Configure, settings: Callable[..., T]) -> list[T]:
        """Return the settings of the load generators of an application."""
        return [settings(**configure(each, self.raw, index, self.seed)) for index in range(len(each.clients))]


class Load(Protocol):
    """A program with a load on its node. Kinds with a load generator use
    :class:`~cellbed.workloads.virtual.client.Client`."""

    @property
    def over(self) -> bool:
        """Return whether the load has ended."""

    def start(self, t0_ns: int) -> None:
        """Schedule the load. t0_ns: start of the schedule."""

    def finish(self) -> None:
        """Close the program and write its files."""


class Model:
    """The base of models of kinds in virtual time.

    Attributes:
        sampling: Measurement of the kind's profile, if needed.
        covers: The modelled programs, if the kind has several.
        moves: Whether its servers can move to another host.
    """

    sampling: Sampling | None = None
    covers: Sequence[str] = ()
    moves: bool = False

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        """Yield the names of parts of an application without model. deployments: deployments of all applications."""
        yield from ()

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Load]:
        """Make the servers of an application listen, and return the loads of its clients."""
        raise NotImplementedError


def answered(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the requests with a reply that is no error, without the time that they waited for each other in the
    generator: a prediction simulates this wait."""
    import polars as pl

    busy_ns = pl.col("sent_ns").shift(1).cum_max().over("endpoint", order_by="intended_ns").fill_null(0)
    waited_s = pl.max_horizontal(busy_ns - pl.col("intended_ns"), 0) / 1e9
    own = requests.with_columns(part_generator=pl.max_horizontal(pl.col("part_generator") - waited_s, 0.0))
    return own.filter(pl.col("error").is_null(), pl.col("status").is_in(["ok", "late"]))


def nanoseconds(span: float | None) -> int:
    """Return a part of a request's latency, in seconds, as in a sample: ns."""
    return max(0, round(span * 1e9)) if span is not None else 0

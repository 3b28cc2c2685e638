"""Flow sizes and flow traces, in the formats of the public pHost simulator (github.com/NetSys/simulator)."""

from __future__ import annotations

import bisect
import codecs
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from cellbed.support.errors import CellbedError, quote
from cellbed.support.units import UnitError
from cellbed_node import inputs

PACKET = 1460
"""Bytes of data in a full packet, and unit of flow-size files: the simulator rounds a size drawn from such a file to
whole packets (``FlowCreationForInitializationEvent``, with its default ``bytes_mode: 0``)."""
_LARGEST_FILE = 1 << 28
_MOST_BYTES = 10**15
"""Maximum bytes of a flow."""
_MOST_SECONDS = 1e6
_MOST_HOSTS = 2**32

Sizes = list[tuple[float, float]]
"""Points of a cumulative distribution, linear in between: size in bytes, and share of flows of at most this size."""
Trace = list[tuple[int, ...]]
"""Flows in order of time: bytes, source, destination, start in ps, and the user if there is one."""


class FlowFileError(CellbedError):
    """A file of flow sizes or flows that cannot be read: ``FILE:LINE: problem and remedy``."""


def unit_of(path: Path) -> int:
    """Return the unit of the sizes in a file, bytes. With three columns (pHost's files) the unit is a packet, with two
    (HPCC's files) a byte. Raises FlowFileError."""
    _, words = next(rows_of(path), (0, []))
    return 1 if len(words) == 2 else PACKET


def read_sizes(path: Path, unit: int | None = None) -> Sizes:
    """Return the distribution in a file with the columns size in units, 1, cumulative share; the 1 may be missing.

    unit: bytes; default: result of `unit_of`. Sizes and shares must not decrease. The last share is 1, or 100 if shares
    are in percent. A first share above 0 is the share of flows of the first size. Empty lines and text after ``#`` are
    ignored.

    Raises FlowFileError.
    """
    points: Sizes = []
    where = str(path)
    unit = unit or unit_of(path)
    for line, words in rows_of(path):
        where = f"{path}:{line}"
        if len(words) not in (2, 3):
            raise FlowFileError(
                f"{where}: {_columns(words)}: write three, separated by spaces: 'SIZE 1 CUMULATIVE-SHARE', or two "
                "without the 1"
            )
        size, share = _number(words[0], where), _number(words[-1], where)
        if size == 0 == share and not points:
            size = 1 / unit  # a curve that begins at the origin
        if not 0 < size * unit <= _MOST_BYTES:
            raise FlowFileError(f"{where}: size {words[0]} is out of range: write more than 0, at most 10^15 bytes")
        if not 0 <= share <= 100:
            raise FlowFileError(f"{where}: cumulative share {words[-1]} is out of range: write 0 to 1, or 0 to 100 (%)")
        if points and size * unit < points[-1][0]:
            raise FlowFileError(f"{where}: size {words[0]} is below the line before: sort the lines by size")
        if points and share < points[-1][1]:
            raise FlowFileError(
                f"{where}: cumulative share {words[-1]} is below the line before: add up the shares of all "
                "smaller sizes"
            )
        points.append((size * unit, share))
    if not points:
        raise FlowFileError(f"{path}: empty: write lines 'SIZE 1 CUMULATIVE-SHARE'")
    whole = points[-1][1]
    if whole not in (1, 100):
        raise FlowFileError(f"{where}: the last cumulative share is {whole!r}: write 1, or 100 where shares are in %")
    return [(size, share / whole) for size, share in points]


def read_trace(path: Path, hosts: int = _MOST_HOSTS, users: Mapping[int, int] | None = None) -> Trace:
    """Return the flows in a file with five columns: number, bytes, source, destination, start in µs; and optionally a
    sixth, the number of the user, for flows to a radio cell.

    Hosts and users are numbered from 0. The result is sorted by start, and the first flow starts at 0.

    hosts: number of hosts. users: numbers of users by the host that receives their flows.

    Raises FlowFileError.
    """
    flows: Trace = []
    for line, words in rows_of(path):
        where = f"{path}:{line}"
        if len(words) not in (5, 6):
            raise FlowFileError(
                f"{where}: {_columns(words)}: write five, separated by spaces: "
                "'NUMBER BYTES SOURCE DESTINATION START-US'"
            )
        size = _whole(words[1], "size", 1, _MOST_BYTES, where)
        source, destination = (_whole(word, "host", 0, hosts - 1, where) for word in words[2:4])
        if source == destination:
            raise FlowFileError(f"{where}: source and destination are both host {source}: write two different hosts")
        start = _number(words[4], where)
        if not 0 <= start <= _MOST_SECONDS * 1e6:
            raise FlowFileError(f"{where}: start {words[4]} is out of range: write 0 to 10^12 µs")
        user: tuple[int, ...] = ()
        if len(words) == 6:
            if not users:
                raise FlowFileError(f"{where}: a user in the sixth column: remove it, or add [radio]")
            if destination not in users:
                of_users = " or ".join(str(host) for host in sorted(users)[:3])
                raise FlowFileError(f"{where}: users are behind host {of_users}: write it as destination")
            user = (_whole(words[5], "user", 0, users[destination] - 1, where),)
        flows.append((size, source, destination, round(start * 1e6), *user))
    if not flows:
        raise FlowFileError(f"{path}: empty: write lines 'NUMBER BYTES SOURCE DESTINATION START-US'")
    flows.sort(key=lambda flow: flow[3])
    earliest = flows[0][3]
    return [(*flow[:3], flow[3] - earliest, *flow[4:]) for flow in flows]


def lognormal(mean: float, deviation: float, least: float, most: float) -> Sizes:
    """Return a log-normal distribution with this mean and standard deviation, cut off at `least` and `most`; bytes.

    The result has points at equal steps of the logarithm, with the cumulative share after Johnson, Kotz & Balakrishnan,
    Continuous Univariate Distributions, 1994, §14. The truncation changes mean and deviation.

    Raises UnitError if hardly any flow is in the range.
    """
    variance = math.log1p((deviation / mean) ** 2)
    location, scale = math.log(mean) - variance / 2, math.sqrt(variance)
    steps = 200
    sizes = [least * (most / least) ** (step / steps) for step in range(steps + 1)]
    below = [(1 + math.erf((math.log(size) - location) / (scale * math.sqrt(2)))) / 2 for size in sizes]
    span = below[-1] - below[0]
    if not span > 1e-9:
        raise UnitError("nearly no flow is between 'least' and 'most': move them closer to the mean")
    return [(size, (share - below[0]) / span) for size, share in zip(sizes, below, strict=True)]


_CAMPUS = (
    (64, 4.3082), (128, 32.3376), (256, 56.8711), (512, 71.1101), (1024, 79.0397), (1500, 82.6085), (4096, 89.7285),
    (10**4, 94.0991), (10**5, 98.4030), (10**6, 99.6050), (10**7, 99.9165), (10**8, 99.9876),
)  # fmt: skip
"""Size in bytes, and share of flows of at most this size, %: Jurkiewicz, Rzym and Boryło, "How Many Mice Make an
Elephant?", arXiv:1809.03486, 2018, data set agh_201506 (4 · 10^9 flows between a campus and the Internet)."""


def load_published(name: str) -> Sizes:
    """Return a synthetic distribution of one of the :data:`PUBLISHED` names.

    ``ftp-ngmn``: files after NGMN Alliance, "Radio Access Performance Evaluation Methodology", 2008, annex A:
    log-normal, mean 2 MB, standard deviation 0.722 MB, maximum 5 MB. ``campus``: :data:`_CAMPUS`, linear in between,
    without the 0.0124 % of flows above 100 MB.
    """
    if name == "ftp-ngmn":
        return lognormal(2e6, 0.722e6, 1, 5e6)
    return [(size, share / _CAMPUS[-1][1]) for size, share in _CAMPUS]


PUBLISHED = ("ftp-ngmn", "campus")


def mean_bytes(sizes: Sizes) -> float:
    """Return the mean of a distribution that is linear between its points."""
    total = sizes[0][0] * sizes[0][1]
    for (smaller, before), (larger, share) in pairwise(sizes):
        total += (smaller + larger) / 2 * (share - before)
    return total


def draw(sizes: Sizes, share: float) -> int:
    """Return the size, bytes, at this share of the flows: the inverse of the cumulative distribution."""
    at = bisect.bisect_left(sizes, share, key=lambda point: point[1])
    if at == 0:
        return max(1, round(sizes[0][0]))
    (smaller, before), (larger, beyond) = sizes[at - 1], sizes[at]
    return max(1, round(smaller + (larger - smaller) * (share - before) / (beyond - before)))


def rows_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and words of lines, without empty lines and comments. Raises FlowFileError."""
    try:
        content = inputs.content(path, _LARGEST_FILE)
    except OSError as error:
        raise FlowFileError(f"{path}: cannot read this file: {error.strerror}") from None
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FlowFileError(f"{path}:{line}: not text: give a text file of numbers") from None
    for number, row in enumerate(text.split("\n"), 1):
        if words := row.partition("#")[0].split():
            yield number, words


def _columns(words: Sequence[str]) -> str:
    return f"{len(words)} column{'s' * (len(words) != 1)}"


def _number(word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in word or not word.isascii():
        raise FlowFileError(f"{where}: {quote(word)} is not a number")
    return value


def _whole(word: str, what: str, least: int, most: int, where: str) -> int:
    value = _number(word, where)
    if not least <= value <= most or value != int(value):
        raise FlowFileError(f"{where}: {what} {quote(word)} is not a whole number from {least} to {most}")
    return int(value)

"""Applications over a path in virtual time."""

import doctest
import os
from pathlib import Path as File
from typing import Any, Literal

import numpy as np
import pytest

from cellbed.link import Link
from cellbed.path import Path, Tcp
from emulator_process import constant, delay
from kernel_downloads import kernel_downloads

MS = 1_000_000


@pytest.fixture
def path() -> Path:
    return Path(Link(rate="20 Mbit/s", delay="20 ms"), Link(rate="50 Mbit/s", queue="300 kB", delay="20 ms"))


def test_round_trips_are_the_sum_of_their_parts(path: Path) -> None:
    trips = path.round_trips(1_000_000_000, count=3, interval=50 * MS, request=1250, answer=625)
    assert trips.sent.tolist() == [1_000_000_000, 1_050_000_000, 1_100_000_000]
    assert trips.taken.tolist() == [40 * MS + 500_000 + 100_000] * 3
    assert path.now == 1_140_600_000


def test_lost_round_trips_are_told() -> None:
    path = Path(Link(delay="5 ms", loss="30 %"), Link(delay="5 ms"))
    trips = path.round_trips(count=1000, interval=MS)
    assert 600 < trips.answered.sum() < 800
    assert set(trips.taken[trips.answered]) == {10 * MS}
    assert (trips.taken[~trips.answered] == -1).all()


def test_trains_arrive_at_the_link_s_rate_and_are_acknowledged(path: Path) -> None:
    trains = path.trains(lengths=[1, 50])
    assert np.diff(trains.arrivals[1]).tolist() == [224_000] * 49  # 1400 bytes at 50 Mbit/s
    assert trains.completion.tolist() == [40_264_000, 40_040_000 + 50 * 224_000]  # 100 bytes at 20 Mbit/s take 40 µs
    uplink = path.trains(lengths=[3], uplink=True)
    assert np.diff(uplink.arrivals[0]).tolist() == [560_000] * 2


def test_a_path_goes_on_where_it_was_and_a_copy_goes_its_own_way(path: Path) -> None:
    copy = path.copy()
    first = path.downloads(sizes=[100_000])
    assert copy.now == 0
    assert copy.downloads(sizes=[100_000]).taken.tolist() == first.taken.tolist()
    # On the heels of a download that another disturbs: packets of the first are still in the queue.
    path.trains(lengths=[200], until=path.now)
    assert path.downloads(sizes=[1000]).taken > copy.downloads(sizes=[1000]).taken
    with pytest.raises(ValueError, match="is past"):
        path.downloads(0, sizes=[1])


def test_downloads_one_after_the_other(path: Path) -> None:
    sizes = [1000, 100_000, 1_000_000]
    downloads = path.copy().downloads(5 * MS, sizes=sizes, thinking=[10 * MS] * 2)
    assert downloads.started[0] == 5 * MS
    assert (downloads.started[1:] - downloads.finished[:-1]).tolist() == [10 * MS] * 2
    assert (np.diff(downloads.taken) > 0).all()
    kept = path.copy().downloads(sizes=sizes, keep_connection=True)
    assert (kept.taken[1:] < downloads.taken[1:]).all()
    of_numpy = Tcp(initial_window=np.int64(10), pacing=np.bool_(False))  # type: ignore[arg-type]
    both = [path.copy().downloads(sizes=sizes, tcp=tcp).taken.tolist() for tcp in (Tcp(), of_numpy)]
    assert both[0] == both[1]
    cut = path.copy().downloads(sizes=[10_000_000], until=500 * MS)
    assert cut.taken.tolist() == [-1]


class Delaying:
    """A network outside of the model, with a fixed delay."""

    def __init__(self) -> None:
        self.inside: list[tuple[int, int]] = []

    def send(self, direction: int, at_ns: int, number: int, size: int) -> None:
        if size == 13:
            raise RuntimeError("refused")
        self.inside.append((at_ns + 20_000_000 + direction, number))

    def advance(self, until_ns: int) -> tuple[int, list[int]]:
        now = min([until_ns, *(at for at, _ in self.inside)])
        departed = [number for at, number in self.inside if at <= now]
        self.inside = [packet for packet in self.inside if packet[0] > now]
        return now, departed


def test_a_path_over_an_outside_network_is_that_of_links_with_the_same_delay() -> None:
    equal = Path(Link(delay="20 ms"), Link.of_stages([{"kind": "delay", "fixed_ns": 20_000_001}]))
    outside = Path(Link(), Link(), outside=Delaying())
    for path in (outside, equal):
        assert path.trains(lengths=[1, 5]).completion.tolist() == [40_000_001] * 2
    sizes = [1_000, 300_000]
    assert outside.downloads(sizes=sizes).taken.tolist() == equal.downloads(sizes=sizes).taken.tolist()
    with pytest.raises(ValueError, match="cannot be copied"):
        outside.copy()


def test_an_error_of_an_outside_network_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match="refused"):
        Path(Link(), Link(), outside=Delaying()).round_trips(count=3, interval=1_000_000, request=13)


def test_a_changing_link_is_that_of_its_description() -> None:
    downlink = Link(rate="50 Mbit/s", delay="20 ms", changes=[{"at": "1 s", "rate": "5 Mbit/s"}])
    path = Path(Link(delay="20 ms"), downlink)
    before, after = path.downloads(sizes=[500_000]).taken, path.downloads(2_000 * MS, sizes=[500_000]).taken
    assert before < 400 * MS
    assert after > 800 * MS


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda path: path.downloads(sizes=[0]), "sizes has 0 bytes"),
        (lambda path: path.downloads(sizes=[1], tcp=Tcp(control="no-such")), 'no control "no-such"'),  # type: ignore[arg-type]
        (lambda path: path.downloads(sizes=[1], tcp=Tcp(initial_window=0)), "at least one segment"),
        (lambda path: path.round_trips(count=1, interval=1, request=70_000), "request is 70000 bytes"),
        (lambda path: path.trains(lengths=[0]), r"lengths\[0\] is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(path: Path, run: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(path)


def test_the_examples_of_the_documents_run() -> None:
    page = File(__file__).parents[2] / "docs" / "reference" / "simulation.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (failed, tried > 3) == (0, True)


SIZES = (1_000, 10_000, 30_000, 100_000, 250_000, 500_000, 1_000_000, 3_000_000)
LINKS = {
    # Mbit/s up and down, ms one way, bytes of queue
    "fast": (10, 50, 20, 1_000_000),
    "shallow queue": (5, 20, 25, 150_000),
    "slow": (2, 5, 40, 100_000),
}


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="/dev/net/tun cannot be opened")
@pytest.mark.parametrize("control", ["cubic", "bbr"])
@pytest.mark.parametrize("link", LINKS)
def test_tcp_takes_as_long_as_the_kernel_s(link: str, control: Literal["cubic", "bbr"]) -> None:
    up, down, one_way, queue = LINKS[link]
    uplink = [constant(up * 10**6, queue), delay(one_way)]
    downlink = [constant(down * 10**6, queue), delay(one_way)]
    rounds = 5
    _, taken = kernel_downloads(uplink, downlink, SIZES * rounds, control)
    measured = np.array(taken).reshape(rounds, -1)
    path = Path(Link.of_stages(uplink), Link.of_stages(downlink))
    tcp = Tcp(control=control)
    modelled = np.array([path.copy().downloads(sizes=[size], tcp=tcp).taken[0] for size in SIZES])
    # A machine that is busy only ever makes it take longer.
    assert modelled == pytest.approx(measured.min(axis=0), rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="/dev/net/tun cannot be opened")
def test_tcp_takes_as_long_as_the_kernel_s_at_the_same_times_of_a_trace() -> None:
    uplink, downlink = Link(rate="lte-suburban.up", delay="20 ms"), Link(rate="lte-suburban.down", delay="20 ms")
    sizes = SIZES[:7] * 6
    started, taken = kernel_downloads(uplink.stages, downlink.stages, sizes)
    path = Path(uplink, downlink, turnaround=100_000)
    modelled = [path.copy().downloads(at, sizes=[size]).taken[0] for at, size in zip(started, sizes, strict=True)]
    # A packet that is a little later may miss its opportunity and wait long for the next: single downloads may differ.
    ratio = np.array(modelled) / np.array(taken)
    assert np.median(ratio) == pytest.approx(1, abs=0.05)
    assert np.mean(np.abs(ratio - 1)) < 0.1

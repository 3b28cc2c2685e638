"""Every shipped law compiles, fills a link and withstands any input."""

import multiprocessing
import shutil
import signal
import struct
from multiprocessing.connection import Connection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.laws.law import load_shipped
from host_laws import LOSS, TIMEOUT, UNLIMITED, HostLaw, Sample, drive

LARGEST = 1 << 24
FIELDS = [str(field[0]) for field in Sample._fields_]
STEP_BYTES = 2 * (1 + len(FIELDS))
# An acknowledgement with its fields (now_us: since the last one), or an event.
Step = dict[str, int] | int

every_law = pytest.mark.parametrize("name", load_shipped())


class RangedLaw(HostLaw):
    """A law whose window is checked after each call, before TCP limits it."""

    def ack(self, now_s: float, **values: Any) -> int:
        window = super().ack(now_s, **values)
        assert 1 <= window <= LARGEST, f"{window} segments at {now_s} s, {values}"
        return window


@every_law
@pytest.mark.parametrize("target", ["host", "kernel"])
def test_law_compiles(name: str, target: Any) -> None:
    if target == "kernel" and not shutil.which("clang"):
        pytest.skip("clang is missing: apt install clang")
    assert load_shipped()[name].compiled(target).stat().st_size


ANY = float("inf")
# A segment needs 40 ms and 1 ms of the bottleneck at 1000/s, and 1 ms for each that is queued before it.
LINKS = [
    ("bbr3", 1000, 0.04, 400, 10, 0.95, (0, 1.25 * 0.04), 0),
    ("bbr3", 1000, 0.04, 20, 10, 0.9, (0, 1), 0.02 * 10_000),
    ("c2tcp", 2000, 0.04, 1000, 10, 0.8, (0, 0.08), ANY),
    ("cubic-off", 2000, 0.04, 1000, 10, 0.8, (0.3, 1), ANY),
    # The paper's analysis of its dynamics: from 0 to 2.5 / delta = 5 segments, on average half of this.
    ("copa", 1000, 0.04, 500, 8, 0.98, (0.04 + 2.5e-3, 0.04 + 4.5e-3), ANY),
    ("copa", 5000, 0.04, 500, 8, 0.98, (0.04 + 0.5e-3, 0.04 + 0.9e-3), ANY),
    ("exll", 1000, 0.04, 1000, 6, 0.99, (0.041, 0.0461), 0),  # 5 ms of calibration
    *(("sprout", rate, 0.04, 1000, 10, 0.95, (0, 0.04 + 0.1), 0) for rate in (300, 500, 900)),
    # W = RTT / ms rests where W (RTT - 41 ms) / 41 ms is from 2 to below 5: RTT from (41 + sqrt(41^2 + 4 * 82)) / 2 =
    # 42.9 ms to (41 + sqrt(41^2 + 4 * 205)) / 2 = 45.5 ms, once the queue of slow start has shrunk in the first 12 s.
    ("vegas", 1000, 0.04, 200, 30, 0.99, (0.0429, 0.0455), 0),
    ("verus", 833, 0.04, 2000, 10, 0.98, (0, 6 * 0.04), ANY),
    ("verus", 5000, 0.02, 2000, 10, 0.98, (0, 6 * 0.02), ANY),
    *(("vivace", rate, 0.04, 500, 8, 0.9, (0, 0.044), 0) for rate in (1000, 5000)),
]


@pytest.mark.parametrize(("name", "packets_per_s", "rtt", "queue", "duration", "least", "rtts", "losses"), LINKS)
def test_law_fills_a_link_with_the_delay_of_its_publication(
    name: str,
    packets_per_s: int,
    rtt: float,
    queue: int,
    duration: float,
    least: float,
    rtts: tuple[float, float],
    losses: float,
) -> None:
    driven = drive(HostLaw(name), packets_per_s=packets_per_s, rtt=rtt, queue=queue, duration=duration)
    assert driven.utilisation > least
    assert rtts[0] <= driven.mean_rtt <= rtts[1]
    assert driven.losses <= losses


@every_law
def test_law_fills_half_of_a_link_within_the_bounds_of_the_window(name: str) -> None:
    # 10 Mbit/s in packets of 1500 bytes; 40 ms are 33 of them.
    driven = drive(RangedLaw(name), packets_per_s=833, rtt=0.04, queue=67, duration=10)
    assert driven.utilisation >= 0.5


def _value(word: int) -> int:
    """Return a 32-bit number of any magnitude: 11 bits shifted by 0 to 21, zero, or near the largest number."""
    bits, kind = divmod(word, 32)
    if kind < 22:
        return bits << kind
    return 0 if kind < 28 else 0xFFFFFFFF - bits


def _steps(data: bytes) -> list[Step]:
    steps: list[Step] = []
    for kind, *words in struct.iter_unpack(f"<{1 + len(FIELDS)}H", data):
        steps.append({field: _value(word) for field, word in zip(FIELDS, words, strict=True)})
        # As in TCP, a timeout comes after losses.
        steps += [[], [], [LOSS], [LOSS, TIMEOUT]][kind % 4]
    return steps


def _play(law: HostLaw, steps: list[Step], pipe: Connection) -> None:
    """Call the law as the kernel does. Sends the number of each step, and a violation, with which it ends."""
    now_us = 0
    for number, step in enumerate(steps):
        pipe.send(number)
        if isinstance(step, int):
            law.event(step)
            if not law.owns_window:
                law.window.cwnd = 1 if step == TIMEOUT else law.window.ssthresh
        else:
            now_us += step["now_us"]
            law.ack(now_us / 1e6, **{field: value for field, value in step.items() if field != "now_us"})
        law.window.cwnd = min(max(law.window.cwnd, 1), LARGEST)
        if not 2 <= law.window.ssthresh <= UNLIMITED:
            pipe.send(f"ssthresh is {law.window.ssthresh}")
            return


def _violation(law: HostLaw, steps: list[Step]) -> str:
    """Play steps in their own process, which a division by zero kills; returns a violation or an empty string."""
    processes = multiprocessing.get_context("fork")
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=_play, args=(law, steps, sender))
    process.start()
    sender.close()
    number, found = 0, ""
    try:
        while True:
            match receiver.recv():
                case int(number):
                    pass
                case violation:
                    found = str(violation)
    except EOFError:
        process.join()
    if process.exitcode:
        found = f"killed by {signal.Signals(-process.exitcode).name}" if process.exitcode < 0 else "an exception"
    return found and f"{found} at step {number} of {steps[: number + 1]}"


@pytest.fixture(scope="module")
def fresh_laws() -> dict[str, HostLaw]:
    """Connections that stay as they began: other processes play with their copies."""
    return {name: HostLaw(name) for name in load_shipped()}


@every_law
@settings(max_examples=15)
@given(data=st.lists(st.binary(min_size=STEP_BYTES, max_size=STEP_BYTES), min_size=30, max_size=120).map(b"".join))
def test_law_withstands_any_acknowledgements_and_events(fresh_laws: dict[str, HostLaw], name: str, data: bytes) -> None:
    if violation := _violation(fresh_laws[name], _steps(data)):
        pytest.fail(violation)

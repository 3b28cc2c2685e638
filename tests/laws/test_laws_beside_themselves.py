"""Several flows of one law over a link, in virtual time, beside the implementations of their authors.

The expected figures are from the authors' unmodified code over the same link in an event simulation (`benches/laws.py`
has all of them): Copa's classes of genericCC, and Linux's tcp_vegas.c, tcp_htcp.c and tcp_highspeed.c.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from in_process import run_scenario
from scenario_text import iperf3_table, scenario_head

PAUSES = [[f"{second} s", "25 ms"] for second in range(4, 60, 4)]
"""Outages of the uplink: acknowledgements pause, as on a machine whose processors are busy, and the queue drains."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Flows over one link, without their first 10 s.

    rate: IP bytes, Mbit/s. queueing: mean time in the bottleneck with transmission, ms. fairness: Jain's index.
    """

    rate: float
    queueing: float
    fairness: float


def share(folder: Path, law: str, flows: int, *, rate: str, queue: str, **more: Any) -> Shared:
    droptail = {"kind": "droptail", "limit": queue}
    folder.mkdir(exist_ok=True)
    text = scenario_head(
        {"endpoint": {"cpus": 1.0}, "edge": {"cpus": 1.0}},
        mobile={"up": "unlimited", "down": rate, "base_delay": "20 ms", "queue": droptail, **more},
        core={"edge": "0 ms"},
        duration="65 s",
        skip="10 s",
        transport={"congestion_control": law},
    )
    run = run_scenario(folder, text + iperf3_table("bulk", f"-t 60 -R -P {flows}"), "--virtual")
    transfers = pl.read_parquet(run / "connections.parquet").filter(pl.col("to_client_bytes") > 10_000)
    assert transfers.height == flows
    carried, packets = transfers["to_client_wire_bytes"], transfers["to_client_packets"]
    return Shared(
        rate=carried.sum() * 8 / 50e6,
        queueing=(transfers["to_client_queue_s"] * packets).sum() / packets.sum() * 1e3,
        fairness=carried.sum() ** 2 / (flows * (carried**2).sum()),
    )


@pytest.mark.parametrize(
    ("flows", "rate", "queueing"),
    [
        # genericCC, begun at distances from 0 to 1.5 s: 15.7 to 18.2 Mbit/s with 5.1 to 6.2 ms. Flows that stay in the
        # competitive mode have over 60 ms.
        (2, 18.2 * 0.95, 5.1 + 1.2),
        # genericCC: 18.7 to 19.6 Mbit/s with 7.8 to 47.2 ms: flows enter the competitive mode and leave it again.
        pytest.param(4, 19.0 * 0.95, 47.2 + 1.2, marks=pytest.mark.slow),
    ],
)
def test_copa_keeps_the_queue_short_beside_itself_as_genericcc(
    tmp_path: Path, flows: int, rate: float, queueing: float
) -> None:
    # Delayed acknowledgements: 5 % of the rate, two packets in the queue.
    shared = share(tmp_path, "copa", flows, rate="20 Mbit/s", queue="400 kB")
    assert shared.rate > rate
    assert shared.queueing < queueing
    assert shared.fairness > 0.98


@pytest.mark.parametrize(
    ("flows", "queueing", "fairness"),
    [
        # tcp_vegas.c: 47.9 ms, 0.70; 103.8 and 107.9 ms, 0.59 and 0.61, with distances of 1 and 0 ms.
        (2, 47.9, 0.8),
        pytest.param(4, 107.9, 0.8, marks=pytest.mark.slow),
    ],
)
def test_vegas_keeps_an_unfair_base_round_trip_while_the_queue_never_drains_as_tcp_vegas(
    tmp_path: Path, flows: int, queueing: float, fairness: float
) -> None:
    shared = share(tmp_path, "vegas", flows, rate="4 Mbit/s", queue="1 MB")
    assert shared.fairness < fairness
    assert shared.queueing == pytest.approx(queueing, rel=0.15)


@pytest.mark.parametrize(
    ("flows", "fairness"),
    [
        # tcp_vegas.c with the same pauses, with distances of 1 and 0 ms: 0.98; 0.84 and 0.86.
        (2, 0.98),
        pytest.param(4, 0.85, marks=pytest.mark.slow),
    ],
)
def test_vegas_converges_when_pauses_of_acknowledgements_drain_the_queue_as_tcp_vegas(
    tmp_path: Path, flows: int, fairness: float
) -> None:
    outage = {"uplink": PAUSES}
    # Flows that the pauses hit differently: over such rates the index of four flows is between 0.75 and 0.96.
    rates = [f"{rate} Mbit/s" for rate in ((3.9, 3.95, 4, 4.05, 4.1) if flows == 4 else (4,))]
    found = [
        share(tmp_path / str(number), "vegas", flows, rate=rate, queue="1 MB", outage=outage).fairness
        for number, rate in enumerate(rates)
    ]
    assert sum(found) / len(found) == pytest.approx(fairness, abs=0.03)


@pytest.mark.parametrize(
    ("law", "flows", "queueing"),
    [
        # tcp_htcp.c and tcp_highspeed.c, both with indices of at least 0.98.
        ("htcp-cellbed", 1, 98.3),
        ("highspeed-cellbed", 1, 125.2),
        pytest.param("htcp-cellbed", 2, 116.7, marks=pytest.mark.slow),
        pytest.param("htcp-cellbed", 4, 122.8, marks=pytest.mark.slow),
        pytest.param("highspeed-cellbed", 2, 121.5, marks=pytest.mark.slow),
        pytest.param("highspeed-cellbed", 4, 129.4, marks=pytest.mark.slow),
    ],
)
def test_laws_for_high_speed_share_a_link_as_those_of_linux(
    tmp_path: Path, law: str, flows: int, queueing: float
) -> None:
    shared = share(tmp_path, law, flows, rate="20 Mbit/s", queue="400 kB")
    assert shared.rate > 19.9
    assert shared.queueing == pytest.approx(queueing, rel=0.16)
    assert shared.fairness > 0.97


def test_c2tcp_shares_a_link_as_the_patch_of_its_authors(tmp_path: Path) -> None:
    # The functions of the patch: 31 ms, index 0.97. A window of 1 until the delayed acknowledgement: 0.52.
    shared = share(tmp_path, "c2tcp", 2, rate="20 Mbit/s", queue="1 MB")
    assert shared.fairness > 0.9
    assert shared.queueing < 40


def test_sprout_shares_a_link_as_the_program_of_its_authors(tmp_path: Path) -> None:
    # SproutConnection: index 1.00. Flows that take their own pauses for outages: 0.54, two of them have 2 segments.
    shared = share(tmp_path, "sprout", 4, rate="20 Mbit/s", queue="400 kB")
    assert shared.fairness > 0.95
    # Of 1000 packets/s at most 82 are forecast: four windows of 82 segments without the 67 of the round trip.
    assert shared.queueing < (4 * 82 - 67) * 1500 * 8 / 20e6 * 1e3

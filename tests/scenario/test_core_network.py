"""Core links: places with distributions, records of round trips, and what becomes of them in a plan."""

import math
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive_examples import add
from cellbed.archive import Archive
from cellbed.link import Link
from cellbed.outcomes import Fate
from cellbed.scenario import ScenarioError, load
from cellbed.scenario.core import RoundTripRecord
from cellbed.scenario.places import PLACES, ROUTE, Hours, RoundTrips
from cellbed.testbed.plan import Direction, make_plan
from scenario_text import GOOD

MS = 1_000_000
S = 1000 * MS
HOURS: tuple[Hours, ...] = ("off-peak", "peak")


def core(folder: Path, written: str) -> tuple[Direction, Direction]:
    """Both directions of the core link that is written so."""
    path = folder / "scenario.toml"
    path.write_text(GOOD.replace('edge = "base-edge"', f"edge = {written}"))
    up, down = (way for way in make_plan(load(path)).directions if way.link == "core-edge-0")
    return up, down


def at(points: list[tuple[int, int]], time: int) -> float:
    """The value of a delay series at a time."""
    for (begin, low), (end, high) in pairwise(points):
        if begin <= time < end:
            return low + (high - low) * (time - begin) / (end - begin)
    return points[-1][1]


def percentile(trips: RoundTrips, share: float, hours: Hours) -> int:
    """A quantile of the round-trip times, ns, over many changes of route."""

    def below(queue: int) -> float:
        return NormalDist().cdf(math.log(queue / trips.typical_queue(hours)) / trips.sigma) if queue > 0 else 0.0

    low, high = min(least for _, least in trips.routes), 10**12
    while high - low > 1000:
        middle = (low + high) // 2
        under = sum(part * below(middle - least) for part, least in trips.routes)
        low, high = (middle, high) if under < share else (low, middle)
    return high


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_median_is_the_published_round_trip_time(place) -> None:
    assert percentile(place.round_trips, 0.5, "off-peak") == pytest.approx(2 * place.one_way, rel=0.005)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_tail_is_long_on_the_right_and_longer_in_peak_hours(place) -> None:
    low, median, high = (percentile(place.round_trips, share, "off-peak") for share in (0.01, 0.5, 0.99))
    assert high - median > 1.5 * (median - low)
    assert percentile(place.round_trips, 0.99, "peak") > high
    # "Slightly different", as the thesis has it (section 5.3): the median moves by less than a tenth.
    assert median < percentile(place.round_trips, 0.5, "peak") <= 1.1 * median + 1000


def test_the_clouds_of_the_studies_are_as_far_as_published() -> None:
    # Lim et al., Table II: from the phone, and from there to the edge at the tower; COSM-IC, Table I.
    published = {"att-cloud-5g": 40.7 - 6.1, "att-cloud-4g": 47.2 - 17.2, "open-ireland": 112, "aws-ireland": 90}
    for name, trip in published.items():
        assert PLACES[name].one_way == pytest.approx(trip / 2 * MS)
    for name, deviation in (("att-cloud-5g", 7.4), ("att-cloud-4g", 0.6)):
        queue, sigma = PLACES[name].round_trips.queue, PLACES[name].round_trips.sigma
        spread = math.exp(sigma**2)  # of a log-normal distribution
        assert queue * math.sqrt(spread * (spread - 1)) == pytest.approx(deviation * MS, rel=0.1)


def test_a_core_link_limits_each_flow(tmp_path: Path) -> None:
    written = '{ kind = "delay", delay = "att-cloud-5g", rate = "10 Gbit/s", flow_limit = "1 Gbit/s" }'
    for way in core(tmp_path, written):
        stage, _, bottleneck, _ = way.stages[1:]
        assert stage == {"kind": "flow-limit", "bit_rate": 10**9, "burst_bytes": 65536, "queue_bytes": 10**6}
        assert "at most 1 Gbit/s of each flow" in way.description
        # Two flows at 2 Gbit/s each get 1 Gbit/s each; the rest is dropped.
        sent = np.arange(0, 100 * MS, 6000)
        flows = np.arange(len(sent)) % 2
        link = Link.of_stages([stage, bottleneck])
        outcomes = link.run(np.repeat(sent, 2), 1500, flows=np.repeat(flows, 2))
        for flow in (0, 1):
            through = (np.repeat(flows, 2)[outcomes.packet] == flow) & (outcomes.fate == Fate.DELIVERED)
            assert 1500 * 8 * through.sum() == pytest.approx(1e9 * 0.1 + 8 * 65536 + 8e6, rel=0.01)
    with pytest.raises(ScenarioError, match=r"core\.edge\.flow_limit\.rate: .* at least '1 kbit/s'"):
        core(tmp_path, '{ kind = "delay", delay = "5 ms", flow_limit = "1 bit/s" }')


def test_paris_has_two_modes_and_the_others_one() -> None:
    assert [name for name, place in PLACES.items() if len(place.round_trips.routes) == 2] == ["eu-west-3"]
    drawn = PLACES["eu-west-3"].round_trips.over(200 * ROUTE, "off-peak", Random(1))
    trips = sorted(trip for _, trip in drawn)
    nearer, farther = (
        sum(low <= trip < high for trip in trips) / len(trips)
        for low, high in ((19 * MS, 22 * MS), (22.2 * MS, 30 * MS))
    )
    assert nearer == pytest.approx(0.6, abs=0.1)
    assert farther == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("hours", HOURS)
@pytest.mark.parametrize("name", PLACES)
def test_what_is_drawn_has_the_distribution(name: str, hours: Hours) -> None:
    model = PLACES[name].round_trips
    single = RoundTrips(((1.0, model.routes[0][1]),), model.queue, model.sigma)
    trips = sorted(trip for _, trip in single.over(3000 * S, hours, Random(7)))
    for share in (0.05, 0.5, 0.95, 0.99):
        drawn = trips[int(share * len(trips))] - single.routes[0][1]
        assert drawn == pytest.approx(percentile(single, share, hours) - single.routes[0][1], rel=0.05)


def test_a_place_varies_and_its_directions_share_what_was_drawn(tmp_path: Path) -> None:
    up, down = core(tmp_path, '{ kind = "place", name = "us-east-1", hours = "peak" }')
    (delay_up,), (delay_down,) = ([stage for stage in way.stages if stage["kind"] == "delay"] for way in (up, down))
    points_up, points_down = delay_up["series"], delay_down["series"]
    assert len({delay for _, delay in points_up}) > 100
    for time in range(0, 10 * S, 250 * MS):
        assert abs(at(points_up, time) - at(points_down, time)) <= 2
    assert "us-east-1 in peak hours (synthetic)" in up.description
    assert core(tmp_path, '{ kind = "place", name = "us-east-1", hours = "peak" }')[0].stages == up.stages


def test_a_split_is_kept(tmp_path: Path) -> None:
    record = tmp_path / "pings.csv"
    record.write_text("time_s,rtt_ms\n0,10\n1,20\n2,20\n")
    up, down = core(tmp_path, '{ kind = "round-trips", record = "pings.csv", split = 0.25 }')
    up_at, down_at = (lambda time, way=way: at(way.stages[-1]["series"], time) for way in (up, down))
    assert (up_at(100 * MS), down_at(100 * MS)) == (2.5 * MS, 7.5 * MS)
    assert (up_at(1500 * MS), down_at(1500 * MS)) == (5 * MS, 15 * MS)
    # Three seconds later it starts again.
    assert (up_at(3100 * MS), down_at(3100 * MS)) == (2.5 * MS, 7.5 * MS)


def test_a_core_link_replays_recorded_rates_from_the_start_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "pings.csv").write_text("time_s,rtt_ms\n0,10\n1,20\n2,20\n")
    (tmp_path / "wan.up").write_text("1\n2\n3\n4\n")
    table = 'kind = "round-trips", record = "pings.csv", start = "1 s", up = "wan.up"'
    up, down = core(tmp_path, f'{{ {table}, down = {{ kind = "series", steps = [["0 s", "9 Mbit/s"]] }} }}')
    schedule = up.stages[2]["schedule"]
    assert (schedule["kind"], schedule["offset_ns"], Path(schedule["path"]).name) == ("trace", S, "wan.up")
    assert up.trace is not None
    assert up.trace["name"] == "wan.up"
    assert down.stages[2]["schedule"]["kind"] == "series"
    assert at(up.stages[-1]["series"], 0) == 10 * MS
    # The other direction has the constant rate, if there is one.
    _, down = core(tmp_path, f'{{ {table}, rate = "5 Mbit/s" }}')
    assert down.stages[2]["schedule"] == {"kind": "constant", "bit_rate": 5_000_000}
    (tmp_path / "wan.up").write_text("1\nx\n")
    with pytest.raises(ScenarioError, match=r"links\.core\.edge\.up: .*wan\.up.*2"):
        core(tmp_path, f"{{ {table} }}")


def test_rate_queue_and_loss_of_a_core_link(tmp_path: Path) -> None:
    table = '{ kind = "place", name = "base-edge", rate = "1 Gbit/s", loss = "0.1 %", queue = { kind = "codel" } }'
    up, _ = core(tmp_path, table)
    loss, _, bottleneck, _ = up.stages
    assert loss["probability"] == 0.001
    assert bottleneck["schedule"] == {"kind": "constant", "bit_rate": 10**9}
    assert bottleneck["queue"]["kind"] == "codel"


def test_a_core_link_with_a_fixed_delay_can_have_an_outage(tmp_path: Path) -> None:
    up, down = core(tmp_path, '{ kind = "delay", delay = "3 ms", outage = { uplink = [["2 s", "500 ms"]] } }')
    assert [stage["outages_ns"] for way in (up, down) for stage in way.stages if stage["kind"] == "gate"] == [
        [[2 * 10**9, 5 * 10**8]],
        [],
    ]
    assert up.stages[-1]["fixed_ns"] == down.stages[-1]["fixed_ns"] == 3_000_000
    # Where there is no rate, packets wait during an outage in a queue with a limit, too.
    assert up.stages[2]["queue"]["bytes"] == 10**6


def test_a_record_that_is_not_there_is_looked_for_in_the_archive(tmp_path: Path, archive: Archive) -> None:
    add(archive, "walk")
    with pytest.raises(ScenarioError, match=r"the archive has no 'wlak', and there is no file .*did you mean 'walk'\?"):
        core(tmp_path, '{ kind = "round-trips", record = "wlak" }')


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("time_s,rtt_ms\n0,10\n", "two round-trip times"),
        ("time_s,rtt_ms\n0,10\n0,11\n", "times must rise"),
        ("time_s,delay_ms\n0,10\n", "no column of the round-trip time"),
        ("time_s,rtt_ms\n0,-1\n1,2\n", "is outside 0"),
    ],
)
def test_a_bad_record_is_refused_at_its_line(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "pings.csv").write_text(content)
    with pytest.raises(ScenarioError, match=complaint):
        core(tmp_path, '{ kind = "round-trips", record = "pings.csv" }')


@given(
    gaps=st.lists(st.integers(1, 50), min_size=2, max_size=20),
    start=st.integers(0, 3000),
    duration=st.integers(1, 3000),
)
def test_a_record_goes_round_and_round(gaps: list[int], start: int, duration: int) -> None:
    times = [sum(gaps[:index]) for index in range(len(gaps))]
    record = RoundTripRecord(
        "r", Path("r"), "", tuple((time, 100 + index) for index, time in enumerate(times)), sum(gaps)
    )
    found = record.over(start, duration)

    def held(time: int) -> int:
        """What holds at a time, by walking the record."""
        position = time % record.duration
        return next(trip for begun, trip in reversed(record.samples) if begun <= position)

    assert found[0][0] == 0
    assert all(early < late for (early, _), (late, _) in pairwise(found))
    for time in range(min(duration, 200)):
        (*_, (_, now)) = (sample for sample in found if sample[0] <= time)
        assert now == held(start + time)


def test_the_documentation_has_the_distributions(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "scenario" / "links-core.md").read_text()
    for place in PLACES.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| {place.name} |"))
        for cell, hours in zip(row.split("|")[4:6], HOURS, strict=True):
            shares = (percentile(place.round_trips, share, hours) for share in (0.01, 0.5, 0.95, 0.99))
            assert cell.strip() == ", ".join(f"{share / MS:.2f}" for share in shares) + " ms"

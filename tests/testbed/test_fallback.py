"""Links of two radios: when they change, and what becomes of packets then."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cellbed.archive.generation.radio import Handover, RadioLink
from cellbed.link import Link
from cellbed.outcomes import Fate
from cellbed.path import Path as Route
from cellbed.path import Tcp
from cellbed.scenario import ScenarioError, parse
from cellbed.testbed.plan import Direction, make_plan
from scenario_text import GOOD

MS, SECOND = 1_000_000, 1_000_000_000
RADIOS = """
[links.mobile.fallback]
up = "2 Mbit/s"
down = "5 Mbit/s"
base_delay = "30 ms"
"""
TIMES = RADIOS + 'when = [["20 s", "10 s"]]\n'
BEHIND = GOOD.replace('down = "unlimited"', 'down = "20 Mbit/s"')


def planned(fallback: str, text: str, folder: Path = Path()) -> tuple[Direction, ...]:
    """All directions of a scenario."""
    return make_plan(parse(text + fallback, source="x.toml", folder=folder)).directions


def directions(fallback: str, text: str = BEHIND, folder: Path = Path()) -> tuple[Direction, Direction]:
    """Both directions of the mobile link of a scenario."""
    up, down, *_ = planned(fallback, text, folder)
    return up, down


def stays(direction: Direction, interruption: int = 50 * MS) -> list[tuple[int, int]]:
    """The stays on the fallback, ns, by the delay that comes with it."""
    at = [at - interruption for at, _, stage in direction.stage_changes if stage["kind"] == "delay"]
    return list(zip(at[::2], at[1::2], strict=True))


def model(direction: Direction) -> Link:
    return Link.of_stages(direction.stages, direction.stage_changes)


def test_a_radio_takes_over_and_gives_back() -> None:
    up, down = directions(TIMES)
    assert stays(up) == stays(down) == [(20 * SECOND, 30 * SECOND)]
    gate = {
        "kind": "gate",
        "outages_ns": [[20 * SECOND, 50 * MS], [30 * SECOND, 50 * MS]],
        "flushes_ns": [20 * SECOND, 30 * SECOND],
        "in_flight": True,
    }
    assert gate in up.stages
    assert "from 20.05 s on 5 Mbit/s, 30 ms one way; from 30.05 s on 20 Mbit/s, 10 ms one way" in down.description
    sent = np.arange(0, 40 * SECOND, 10 * MS)
    outcomes = model(down).run(sent, 1250)
    through = outcomes.fate == Fate.DELIVERED
    assert set(outcomes.arrived[~through] // SECOND) == {19, 29}  # in flight when the radio changed
    taken = outcomes.departed - outcomes.arrived
    for second, expected in ((10, 10.5), (25, 32), (35, 10.5)):
        assert taken[sent == second * SECOND].tolist() == [expected * MS]


def test_packets_are_lost_or_forwarded_as_configured() -> None:
    rate = 25_000_000  # above both radios
    sent = np.arange(19 * SECOND, 21 * SECOND, 1250 * 8 * SECOND // rate)
    lost = {}
    for packets in ("drop", "forward"):
        _, down = directions(TIMES + f'packets = "{packets}"\nqueue = {{ kind = "droptail", limit = "100 MB" }}\n')
        outcomes = model(down).run(sent, 1250)
        dropped = outcomes.fate != Fate.DELIVERED
        lost[packets] = int(dropped.sum())
        assert set(outcomes.departed[dropped]) == ({20 * SECOND} if packets == "drop" else set())
    # A second of 5 Mbit/s too much in the queue, and 10 ms of 20 Mbit/s in flight.
    assert lost == {"drop": pytest.approx(5e6 / 1e4 + 20, abs=2), "forward": 0}


def test_cubic_repairs_losses_at_each_change_of_the_radio() -> None:
    repairs, seconds = {}, {}
    for packets in ("drop", "forward"):
        when = f'when = {{ kind = "handovers", every = "5 s", stay = "1 s" }}\npackets = "{packets}"\n'
        up, down = directions(RADIOS + when)
        download = Route(model(up), model(down)).downloads(sizes=[50_000_000], tcp=Tcp("cubic"))
        repairs[packets], seconds[packets] = int(download.repairs[0]), download.taken[0] / 1e9
    assert repairs["drop"] > repairs["forward"]
    assert seconds["drop"] > 1.02 * seconds["forward"]


def test_handovers_are_random_and_each_endpoint_has_its_own() -> None:
    when = 'when = { kind = "handovers", every = "14 s", stay = "2 s" }\n'
    text = BEHIND.replace('duration = "60 s"', 'duration = "30 min"').replace("count = 1", "count = 2")
    first, _, second, *_ = planned(RADIOS + when, text)
    assert stays(first) != stays(second)
    assert stays(first) == stays(directions(RADIOS + when, text)[0])
    found = stays(first)
    assert {end - begin for begin, end in found} == {2 * SECOND}
    assert all(later - end > 50 * MS for (_, end), (later, _) in pairwise(found))
    assert 1800 / len(found) == pytest.approx(14, rel=0.15)


def test_the_radio_changes_where_a_generated_trace_has_its_handovers(tmp_path: Path) -> None:
    link = RadioLink("lowband-good", handover=Handover(5 * SECOND))
    at = pl.concat(link.saturated("downlink", 40 * SECOND, 1).chunks())["at_ns"].to_numpy()
    (tmp_path / "drive.down").write_text("".join(f"{ms}\n" for ms in (at + MS - 1) // MS))
    silent = np.diff(at)
    gaps = at[:-1][silent > 60 * MS]  # five whole bins of 10 ms
    text = BEHIND.replace('"20 Mbit/s"', '"drive.down"').replace('"60 s"', '"40 s"')
    when = 'when = { kind = "signal", below = "1 Mbit/s", stay = "500 ms" }\n'
    up, down = directions(RADIOS + when, text, tmp_path)
    assert stays(up) == stays(down)
    begins = np.array([begin for begin, _ in stays(down)])
    assert 5 <= len(gaps) <= len(begins) <= (silent >= 50 * MS).sum()
    after = begins[np.searchsorted(begins, gaps)]
    assert ((after > gaps + 49 * MS) & (after < gaps + 61 * MS)).all()
    # A weaker signal than any: the second radio has the link until the end.
    (always,) = stays(directions(RADIOS + when.replace("1 Mbit/s", "900 Gbit/s"), text, tmp_path)[0])
    assert always[0] == 50 * MS
    assert always[1] > 40 * SECOND


@pytest.mark.parametrize(
    ("fallback", "text", "error"),
    [
        (TIMES.replace("10 s", "50 ms"), BEHIND, "fallback.when[0]: the stay would end within the interruption"),
        (TIMES.replace('"10 s"]]', '"10 s"], ["30.02 s", "1 s"]]'), BEHIND, "fallback.when[1]: begins within"),
        (TIMES.replace("20 s", "80 s"), BEHIND, "fallback.when[0]: the workload ends after 60 s"),
        (TIMES, GOOD, "links.mobile.down: of a link of two radios"),
        (RADIOS + 'when = { kind = "signal", below = "1 Mbit/s" }\n', BEHIND, "no signal that varies: write a trace"),
        (RADIOS + 'when = { kind = "handovers", every = "3 s" }\n', BEHIND, "every: half of the time or more"),
        (RADIOS + 'when = { kind = "handover" }\n', BEHIND, "handovers"),
        (TIMES, BEHIND.replace("count = 1", 'cell = "macro"') + "\n[cells.macro]\n", "two radios cannot share a cell"),
        (RADIOS, BEHIND, "fallback.when: missing"),
    ],
)
def test_rules_that_do_not_fit_are_refused_in_a_line(fallback: str, text: str, error: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        directions(fallback, text)
    assert error in str(caught.value)
    assert str(caught.value).count("\n") == 0

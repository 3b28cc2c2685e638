"""`cellbed.Link`: a direction of a link in virtual time, over arrays."""

import inspect
import itertools
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cellbed
from cellbed import Cell, Fate, Link, Outcomes
from cellbed.scenario import load_text
from cellbed.scenario.queues import QUEUES
from cellbed.testbed.plan import make_plan
from page_examples import PAGE, examples
from scenario_text import GOOD

MS = 1_000_000


def arrivals(gaps: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.cumsum(np.array(gaps, np.int64))


def by_packet(parts: list[Outcomes]) -> list[tuple[Any, ...]]:
    """Rows of outcomes, in order of packet."""
    names = Outcomes.__slots__
    rows = itertools.chain(*(zip(*(getattr(part, name).tolist() for name in names), strict=True) for part in parts))
    return sorted(rows, key=lambda row: row[0])


RATES = st.sampled_from(
    ["12 Mbit/s", "1 Mbit/s", "1 Gbit/s", "lte-suburban.up", "unlimited", "token-bucket rate=3Mbit/s burst=9000B"]
)
QUEUES = st.sampled_from(
    [*(each for each in QUEUES if each != "classes"), {"kind": "classes", "classes": [{"limit": "3 packets"}]},
     "3 packets", "20 kB", "drophead 5 packets", "codel target=1ms interval=5ms", "fqcodel flows=4",
     "red minimum=3000B maximum=9000B ecn=true"]
)  # fmt: skip
DELAYS = st.sampled_from(["0 ms", "20 ms", "1 ns", "normal mean=10ms deviation=5ms"])
LOSSES = st.sampled_from(["0", "10 %", "gilbert-elliott to_bad=0.1 to_good=0.5"])
PACKETS = st.lists(
    st.tuples(st.integers(0, 3 * MS) | st.just(0), st.integers(1, 3000), st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=150,
)


@settings(max_examples=40, deadline=None)
@given(RATES, QUEUES, DELAYS, LOSSES, PACKETS, st.integers(1, 40))
def test_every_packet_has_one_outcome_however_packets_are_fed(
    rate: str, queue: Any, delay: str, loss: str, packets: list[tuple[int, int, int, int]], portion: int
) -> None:
    link = Link(rate=rate, queue=queue, delay=delay, loss=loss)
    gaps, sizes, flows, ecn = (list(column) for column in zip(*packets, strict=True))
    times = arrivals(gaps)
    whole = link.run(times, sizes, flows=flows, ecn=ecn)

    assert whole.packet.tolist() == list(range(len(packets)))
    assert np.array_equal(whole.arrived, times)
    assert whole.size.tolist() == sizes
    assert np.count_nonzero(whole.delivered) + np.count_nonzero(whole.dropped) == len(packets)

    def columns(at: slice) -> dict[str, Any]:
        return {"times": times[at], "sizes": sizes[at], "flows": flows[at], "ecn": ecn[at]}

    for step in (1, portion):
        fed = Link(rate=rate, queue=queue, delay=delay, loss=loss)
        parts = [fed.send(**columns(slice(at, at + step))) for at in range(0, len(packets), step)]
        departures = np.concatenate([part.departed for part in parts])
        assert np.all(np.diff(departures) >= 0), "what happens is reported in order of time"
        assert fed.held == len(packets) - len(departures)
        parts.append(fed.drain())
        assert by_packet(parts) == by_packet([whole])
        assert fed.held == 0


def test_a_run_starts_from_a_link_at_rest_and_leaves_the_sent_packets_alone() -> None:
    link = Link(rate="12 Mbit/s", delay="5 ms")
    link.send([0, 0, 0], 1500)
    assert link.run([0], 1500).departed.tolist() == [6 * MS]
    assert (link.held, link.queue) == (3, (3, 4500))
    assert link.advance("1 ms").departed.tolist() == []
    assert link.queue == (2, 3000)
    assert link.advance(6 * MS).packet.tolist() == [0]
    assert link.drain().departed.tolist() == [7 * MS, 8 * MS]
    assert link.now == 8 * MS


def test_copies_have_rows_behind_theirs() -> None:
    outcomes = Link(delay="1 ms", duplication=0.99).run(np.arange(4) * MS, 100)
    assert outcomes.packet.tolist() == sorted(outcomes.packet.tolist())
    assert set(outcomes.packet.tolist()) == {0, 1, 2, 3}
    assert len(outcomes) > 4
    assert np.array_equal(outcomes.departed, (outcomes.packet + 1).astype(np.int64) * MS)
    damaged = Link(corruption=0.99).run(np.zeros(200, np.int64), 100)
    assert set(np.unique(damaged.corrupt_bit) >= 0) == {False, True}
    assert damaged.corrupt_bit.max() < 800


def test_what_never_leaves_says_so(tmp_path: Path) -> None:
    trace = tmp_path / "two.up"
    trace.write_text("1\n2\n")
    outcomes = Link(rate=str(trace), loop=False).run([0, 0, 0], 1500)
    assert outcomes.fate.tolist() == [Fate.DELIVERED, Fate.DELIVERED, Fate.HELD]
    assert outcomes.departed.tolist() == [1 * MS, 2 * MS, -1]
    assert repr(outcomes) == "Outcomes(delivered=2, held=1)"
    assert repr(outcomes[outcomes.delivered]) == "Outcomes(delivered=2)"
    assert outcomes.delay.tolist() == [1 * MS, 2 * MS]


def test_changes_known_beforehand_and_asked_for_are_the_same() -> None:
    times = np.arange(60) * MS
    known = Link(rate="12 Mbit/s", changes=[{"at": "20 ms", "rate": "6 Mbit/s"}, {"at": "40 ms", "queue": "2 packets"}])
    asked = Link(rate="12 Mbit/s")
    asked.change("20 ms", rate="6 Mbit/s")
    asked.change(40 * MS, queue="2 packets")
    whole = known.run(times, 1500)
    assert by_packet([asked.send(times, 1500), asked.drain()]) == by_packet([whole])
    assert np.all(np.diff(whole.departed[:19]) == MS)
    assert np.all(np.diff(whole.departed[21:30]) == 2 * MS)
    assert Fate.QUEUE_FULL not in whole.fate[:20]
    assert Fate.QUEUE_FULL in whole.fate[41:]


def test_red_set_on_a_running_link_knows_its_mean_rate() -> None:
    rate = {"kind": "series", "steps": [["0 s", "100 Mbit/s"], ["1 s", "1 Mbit/s"]], "period": "100 s"}
    begun = Link(rate=rate, queue="red adaptive=true minimum=3000B maximum=9000B")
    changed = Link(rate=rate, queue="red minimum=4000B maximum=8000B")
    changed.change(0, queue="red adaptive=true minimum=3000B maximum=9000B")
    times = arrivals([1_000 * MS] + [5 * MS] * 4000)  # above the rate of 1 Mbit/s
    parts = [[link.send(times, 1500), link.drain()] for link in (begun, changed)]
    assert by_packet(parts[0]) == by_packet(parts[1])
    assert sum(part.dropped.sum() for part in parts[0]) > 100


def test_a_link_does_what_the_emulator_is_told_for_a_scenario() -> None:
    text = GOOD.replace('up = "12 Mbit/s"', 'up = "lte-suburban.up"\nloss = "1 %"').replace("10 ms", "12 ms")
    text = text.replace('"droptail", limit = "1 MB"', '"codel", limit = "100 packets"').replace('"0 s"', '"3 s"')
    scenario = load_text(text, Path("x.toml"))
    reported = make_plan(scenario).directions[0].config["stages"]
    link = Link(rate="lte-suburban.up", delay="12 ms", queue="codel 100 packets", loss="1 %", start="3 s")

    def unseeded(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in stage.items() if key != "seed"} for stage in stages]

    assert unseeded(link.stages) == unseeded([stage for stage in reported if stage["kind"] != "gate"])
    times = np.sort(np.random.default_rng(1).integers(0, 10**10, 10_000))
    raw = Link.of_stages(link.stages)
    assert by_packet([raw.run(times, 1500)]) == by_packet([link.run(times, 1500)])
    assert not np.array_equal(
        Link(loss=0.5, seed=1).run(times, 1500).fate, Link(loss=0.5, seed=2).run(times, 1500).fate
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Link(loss=float("nan")), "loss: "),
        (lambda: Link(changes=[{"at": "1 s", "rat": "1 Mbit/s"}]), "rat: unknown key"),
        (lambda: Link.of_stages([{"kind": "delay", "fixed_ns": -1}]), r"stages\[0\]: invalid value"),
        (lambda: Link.of_stages([{"kind": "loss", "probability": float("nan"), "seed": 1}]), "stages"),
        (lambda: Link.of_stages([{"kind": {1, 2}}]), "that JSON cannot represent"),
        (lambda: Link.of_stages([], [(5, 0, {"kind": "delay", "fixed_ns": 1})]), "there is no stage 0"),
        (lambda: Link(delay="1 ms").run([2, 1], 1500), r"times\[1\] is 1 ns, before the 2 ns"),
        (lambda: Link().run([-1], 1500), r"times\[0\] is -1 ns: times count from the start"),
        (lambda: Link().run([0, 1, 2], [1500, 1500]), "there are 3 times, but sizes has 2"),
        (lambda: Link().run([0], [1500], flows=[1, 2]), "flows has 2"),
        (lambda: Link().run([0], [0]), r"sizes\[0\] is 0"),
        (lambda: Link().run([0], [2**32]), "sizes has 4294967296"),
        (lambda: Link().run([0.5], 1500), "times has dtype float64: give whole nanoseconds"),
        (lambda: Link().run([0], 1500.0), "sizes has dtype float64"),
        (lambda: Link().run([[0, 1], [2, 3]], 1500), "times has 2 dimensions"),
        (lambda: Link().run([[0], [1, 2]], 1500), "times is not an array of numbers"),
        (lambda: Link().run([2**70], 1500), "times"),
        (lambda: Link().advance(-1), "not a time of a link"),
        (lambda: Link().advance(1.5), "1.5 is not a time"),
        (lambda: Link().change("1 s", delay="5 ms"), "has no delay stage"),
        (lambda: Link(delay="1 ms").change_stage(0, 1, {"kind": "delay", "fixed_ns": 1}), "there is no stage 1"),
        (lambda: Link(delay="1 ms").change_stage(0, 0, {"kind": "loss", "probability": 0, "seed": 1}), "another kind"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_in_a_sentence(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_time_goes_forwards_only() -> None:
    link = Link(delay="1 ms")
    link.send([5 * MS], 100)
    with pytest.raises(ValueError, match=r"times\[0\] is 4000000 ns, but .* to 5000000 ns already"):
        link.send([4 * MS], 100)
    with pytest.raises(ValueError, match="4000000 ns is past"):
        link.advance("4 ms")
    with pytest.raises(ValueError, match="is past"):
        link.change("4 ms", delay="2 ms")
    assert link.send([], []).packet.tolist() == []
    assert link.drain().departed.tolist() == [6 * MS]


def test_arrays_of_any_make_are_read() -> None:
    link = Link(rate="1 Mbit/s")
    expected = link.run([0, 1, 2, 3], 100).departed.tolist()
    for dtype in (np.int32, np.uint8, np.uint64, ">i8"):
        assert link.run(np.arange(4).astype(dtype), np.full(4, 100, dtype)).departed.tolist() == expected
    assert link.run(np.arange(8)[::2] // 2, np.full(8, 100)[::2]).departed.tolist() == expected
    assert len(link.run([], [])) == 0


def test_several_threads_may_use_one_link() -> None:
    link, times, results = Link(rate="lte-suburban.up", delay="20 ms"), np.arange(100_000) * MS, []
    threads = [threading.Thread(target=lambda: results.append(link.run(times, 1500).departed)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, results[0]) for result in results)


def test_the_examples_of_links_do_what_the_page_says() -> None:
    text = PAGE.read_text()
    failed, tried = examples(text[text.index("## A link over arrays") :])
    assert tried > 10
    assert failed == 0


def test_the_site_lists_what_docstrings_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    from library_reference import generate

    shown = generate(PAGE.read_text())
    assert "`help(" in PAGE.read_text()
    assert "`help(" not in shown
    for described in (cellbed.run, Link, Cell):
        section = shown.split(f"<!--Args:cellbed.{described.__name__}-->")[1].split("<!--end-->")[0]
        listed = set(re.findall(r"^\* `(\w+)`", section, re.MULTILINE))
        assert listed == set(inspect.signature(described).parameters)

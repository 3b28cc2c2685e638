"""A generated mobile link: from a scenario, a shell's options and the library to the path model."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cellbed import Link
from cellbed.scenario import Scenario, ScenarioError, parse
from cellbed.scenario.radio import PROFILES
from cellbed.scenario.settings import read_settings
from cellbed.shell.options import EachWay, OptionError, Recorded, parse_link
from cellbed.support.stages import describe
from cellbed.testbed.links.stages import RateChangeError, changed
from cellbed.testbed.plan import make_plan
from scenario_text import GOOD

RADIO = '\n[links.mobile]\nkind = "radio"\nprofile = "lowband-driving"\n'
MS = 10**6
SECOND = 10**9


def radio(profile: str, way: str, **more: Any) -> Link:
    """One direction of a link."""
    return Link(rate={"kind": "radio", "profile": profile, "way": way}, **more)


def read(mobile: str) -> Scenario:
    """The good scenario with another mobile link."""
    text = re.sub(r"\n\[links\.mobile\]\n(.+\n)*", lambda _: mobile, GOOD)
    assert mobile in text
    return parse(text, source="radio.toml", folder=Path())


def stages(scenario: Scenario, way: str) -> list[dict[str, Any]]:
    (direction,) = (each for each in make_plan(scenario).directions if each.name == f"mobile-0.{way}")
    return direction.stages


def test_both_directions_of_a_radio_link_have_one_seed_and_no_other_limit() -> None:
    scenario = read(RADIO)
    (up,) = (stage for stage in stages(scenario, "uplink") if stage["kind"] == "radio")
    (down,) = (stage for stage in stages(scenario, "downlink") if stage["kind"] == "radio")
    assert up == {"kind": "radio", "profile": "lowband-driving", "way": "uplink", "seed": down["seed"], "offset_ns": 0}
    assert down["way"] == "downlink"
    assert {stage["kind"] for stage in stages(scenario, "uplink")} == {"loss", "gate", "radio", "delay"}


def test_every_endpoint_has_surroundings_of_its_own() -> None:
    text = re.sub(r"\n\[links\.mobile\]\n(.+\n)*", lambda _: RADIO, GOOD).replace("count = 1", "count = 2")
    plan = make_plan(parse(text, source="radio.toml", folder=Path()))
    seeds = {stage["seed"] for each in plan.directions for stage in each.stages if stage["kind"] == "radio"}
    assert len(seeds) == 2


def test_a_radio_link_can_lose_packets_and_wait_elsewhere() -> None:
    more = 'queue = { uplink = { kind = "codel" } }\nloss = "1 %"\nstart = "5 s"\n'
    scenario = read(RADIO + more)
    loss, _, up, _ = stages(scenario, "uplink")
    assert (loss["probability"], up["queue"]["kind"], up["offset_ns"]) == (0.01, "codel", 5_000_000_000)
    assert "queue" not in stages(scenario, "downlink")[2]
    direction = make_plan(scenario).directions[0]
    assert direction.description.startswith("radio lowband-driving (synthetic) from 5 s, CoDel queue")
    assert (direction.played.name, direction.played.synthetic) == ("radio lowband-driving", True)


def test_a_radio_link_has_the_constants_of_the_scenario_in_each_direction() -> None:
    sleep = '{ after = "100 ms", cycle = "160 ms", awake = "10 ms" }'
    written = f"constants = {{ uplink = {{ signal_db = 3.0 }}, downlink = {{ sleep = {sleep}, coupled = true }} }}\n"
    scenario = read(RADIO + written)
    (up,), (down,) = (
        [each for each in stages(scenario, way) if each["kind"] == "radio"] for way in ("uplink", "downlink")
    )
    assert (up["signal_db"], "sleep" in up) == (3.0, False)
    assert down["sleep"] == {"after_ns": 100 * MS, "cycle_ns": 160 * MS, "awake_ns": 10 * MS}
    assert Link.of_stages([up]).run([0], [100]).delivered[0]
    assert scenario.resolved() == Scenario.model_validate(scenario.resolved()).resolved()


def test_a_resolved_scenario_says_the_same() -> None:
    resolved = read(RADIO).resolved()["links"]["mobile"]
    assert (resolved["kind"], resolved["profile"], resolved["start"]) == ("radio", "lowband-driving", "0 s")
    assert read(RADIO).resolved() == Scenario.model_validate(read(RADIO).resolved()).resolved()


@pytest.mark.parametrize(
    ("mobile", "message"),
    [
        (RADIO.replace("driving", "drivin"), "'lowband-drivin' is not known: did you mean 'lowband-driving'?"),
        (RADIO + 'up = "12 Mbit/s"\n', "up: unknown key for kind = 'radio'"),
        ('\n[links.mobile]\nkind = "radio"\n', "profile: missing: write profile ="),
        (RADIO + "constants = { sleeps = 1 }\n", "unknown field `sleeps`"),
        (
            RADIO + "constants = { users = { count = 1000, every_ns = 1, length_ns = 1 } }\n",
            "a number of users of 1000",
        ),
        (RADIO + 'constants = { harq = { decode = "soon" } }\n', "'soon'"),
        (RADIO + "constants = { seed = 1 }\n", "'seed' is not a constant"),
    ],
)
def test_mistakes_are_told_where_they_are(mobile: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read(mobile)
    assert message in str(error.value)
    assert str(error.value).startswith("radio.toml:")
    assert "links.mobile" in str(error.value)


def test_a_shell_takes_a_radio_link_and_a_queue_only_if_asked() -> None:
    link = parse_link(radio="midband-crowded", folder=Path())
    kinds = [stage["kind"] for stage in link.downlink.stages]
    assert kinds == ["loss", "gate", "radio", "delay"]
    assert "queue" not in link.downlink.stages[2]
    assert link.uplink.stages[2]["seed"] == link.downlink.stages[2]["seed"]
    assert link.downlink.description == "radio midband-crowded (synthetic)"
    waiting = parse_link(radio="midband-crowded", queue=EachWay("100 packets"), folder=Path())
    assert waiting.uplink.stages[2]["queue"]["packets"] == 100


def test_a_shell_refuses_what_does_not_go_together() -> None:
    with pytest.raises(OptionError, match="--down: a radio link has its own rate"):
        parse_link(radio="lowband-good", downlink="5 Mbit/s", folder=Path())
    with pytest.raises(OptionError, match="replays no recording"):
        parse_link(radio="lowband-good", recorded=Recorded("walk"), folder=Path())
    with pytest.raises(OptionError, match="--up: a radio link has both directions: write --radio lowband-good"):
        parse_link(uplink="radio profile=lowband-good way=uplink", folder=Path())


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_carries_packets_both_ways(profile: str) -> None:
    for way in ("uplink", "downlink"):
        outcomes = radio(profile, way, seed=3).run([0] * 50, 1400)
        assert (outcomes.departed > 5_000_000).all()


def test_both_directions_with_one_seed_meet_the_same_handovers() -> None:
    probes = list(range(SECOND, 120 * SECOND, 5 * MS))

    def handovers(way: str, seed: int) -> list[int]:
        """Begins of gaps in the departures, in s."""
        departed = radio("lowband-driving", way, seed=seed).run(probes, 100).departed
        return [round(int(departed[at]) / SECOND, 1) for at in np.flatnonzero(np.diff(departed) > 80 * MS)]

    assert handovers("uplink", 1)
    assert handovers("uplink", 1) == handovers("downlink", 1)
    assert handovers("uplink", 2) != handovers("uplink", 1)


def test_a_radio_link_of_the_library_has_the_profiles_queue_or_one_asked_for() -> None:
    assert "queue" not in radio("lowband-good", "uplink").stages[0]
    link = Link(
        rate="radio profile=lowband-good way=uplink",
        queue="10 packets",
        delay="5 ms",
        changes=[{"at": "1 s", "queue": "5 packets"}],
    )
    assert [stage["kind"] for stage in link.stages] == ["radio", "delay"]
    assert link.stages[0]["queue"]["packets"] == 10
    assert link.run([0] * 50, 1400).dropped.sum() == 40
    assert link.run([2 * SECOND] * 50, 1400).dropped.sum() == 45


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": {"kind": "radio", "profile": "midband-good"}}, "way: missing"),
        (
            {"rate": {"kind": "radio", "profile": "midband-good", "way": "uplink"}, "mahimahi": True},
            "mahimahi: not allowed with a radio",
        ),
    ],
)
def test_the_library_refuses_what_is_no_radio_link(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Link(**settings)


def test_a_live_radio_link_gets_another_queue_and_no_rate() -> None:
    stages = list(parse_link(radio="lowband-good", folder=Path()).uplink.stages)
    [(index, after)] = changed(stages, read_settings(["queue=codel"], Path()), "uplink")
    assert (index, after["kind"], after["queue"]["kind"]) == (2, "radio", "codel")
    assert describe([after]) == "radio lowband-good (synthetic), CoDel queue of 1 MB at 5 ms"
    assert changed(stages, read_settings(["down"], Path()), "uplink") == [(1, stages[1] | {"down": True})]
    with pytest.raises(RateChangeError, match="neither into nor from a radio link"):
        changed(stages, read_settings(["rate=5 Mbit/s"], Path()), "uplink")
    with pytest.raises(ValueError, match="neither into nor from a radio link"):
        Link(rate="5 Mbit/s").change("1 s", rate={"kind": "radio", "profile": "lowband-good", "way": "uplink"})

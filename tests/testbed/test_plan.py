"""What a scenario asks of its links reaches the emulator: stages in order, changes by stage, everything seeded."""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from cellbed.experiments.description import cautions, deployments
from cellbed.scenario import ScenarioError, parse
from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.plan import Direction, Plan, make_plan
from emulator_process import line_of_two
from in_process import cellbed
from link_examples import EXAMPLES, read, write_recordings
from scenario_text import GOOD, app_table, scenario_head

MS, SECOND = 1_000_000, 1_000_000_000
CHANGE = "\n[[links.mobile.changes]]\n"


def planned(text: str, where: Path = Path()) -> Plan:
    return make_plan(parse(text, source="x.toml", folder=where))


def up(plan: Plan) -> Direction:
    return plan.path("endpoint-0", "edge-0")[0]


def down(plan: Plan) -> Direction:
    return plan.path("edge-0", "endpoint-0")[-1]


def kinds(direction: Direction) -> list[str]:
    return [stage["kind"] for stage in direction.stages]


def test_directions_may_differ() -> None:
    line = "duplication = { downlink = 0.01 }\ncorruption = { uplink = 0.02 }\nloss = { uplink = 0.1 }\n"
    plan = planned(GOOD.replace("[links.core]", line + "[links.core]"))
    assert kinds(up(plan)) == ["loss", "corruption", "gate", "bottleneck", "delay"]
    assert kinds(down(plan)) == ["loss", "duplication", "gate", "bottleneck", "delay"]
    assert [stage["probability"] for stage in up(plan).stages[:2]] == [0.1, 0.02]
    assert down(plan).stages[0]["probability"] == 0.0


def test_random_stages_have_seeds_of_their_own_that_follow_the_scenario_s() -> None:
    text = GOOD.replace("count = 1", "count = 2").replace("[links.core]", "loss = 0.1\nduplication = 0.1\n[links.core]")

    def seeds(text: str) -> list[int]:
        return [stage["seed"] for way in planned(text).directions for stage in way.stages if stage.get("probability")]

    assert len(seeds(text)) == len(set(seeds(text))) == 8
    assert seeds(text) == seeds(text)
    assert not set(seeds(text)) & set(seeds(text.replace("seed = 1", "seed = 2")))


def test_a_change_concerns_only_what_it_names() -> None:
    first = 'at = "10 s"\nup = "2 Mbit/s"\nloss = { downlink = "1 %" }\n'
    second = 'at = "20 s"\nup = "2 Mbit/s"\nbase_delay = "40 ms"\ncorruption = { downlink = 0.001 }\n'
    plan = planned(GOOD + CHANGE + first + CHANGE + second)
    changes = up(plan).config["changes"]
    assert [(change["at_ns"], change["stage"]) for change in changes] == [(10_000 * MS, 2), (20_000 * MS, 3)]
    assert changes[0]["to"]["schedule"] == {"kind": "constant", "bit_rate": 2_000_000}
    assert changes[0]["to"]["queue"] == up(plan).stages[2]["queue"]
    assert changes[1]["to"] == {"kind": "delay", "fixed_ns": 40 * MS}
    # What is only there from a change on is there from the start and does nothing.
    assert kinds(down(plan)) == ["loss", "corruption", "gate", "bottleneck", "delay"]
    assert down(plan).stages[1]["probability"] == 0.0
    reported = [
        (change["at_ns"], change["stage"], change["to"].get("probability")) for change in down(plan).config["changes"]
    ]
    assert reported == [(10_000 * MS, 0, 0.01), (20_000 * MS, 1, 0.001), (20_000 * MS, 4, None)]


def test_a_queue_that_changes_keeps_the_schedule_and_its_seed() -> None:
    text = GOOD.replace('"droptail", limit = "1 MB"', '"pie"') + CHANGE
    direction = up(planned(text + 'at = "1 s"\nqueue = { kind = "pie", target = "20 ms", ecn = true }\n'))
    (change,) = direction.config["changes"]
    queue, before = change["to"]["queue"], direction.stages[2]["queue"]
    assert (queue["target_ns"], queue["ecn"]) == (20 * MS, True)
    assert queue["seed"] == before["seed"]
    assert change["to"]["schedule"] == direction.stages[2]["schedule"]


def test_recordings_begin_where_the_run_begins(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("time_s,delay_ms\n0,10\n10,20\n20,20\n")
    line = 'base_delay = { kind = "series", file = "d.csv" }'
    text = GOOD.replace('base_delay = "10 ms"', line).replace('start = "0 s"', 'start = "5 s"')
    text = text.replace('"12 Mbit/s"', '{ kind = "series", steps = [["0 s", "1 Mbit/s"], ["9 s", "2 Mbit/s"]] }')
    plan = planned(text, tmp_path)
    *_, bottleneck, delay = up(plan).stages
    assert delay["series"] == [[0, 15 * MS], [5_000 * MS, 20 * MS], [15_000 * MS, 20 * MS]]
    assert bottleneck["schedule"]["offset_ns"] == 5_000 * MS
    assert list(up(plan).recordings()) == ["d.csv"]


def test_cautions_about_many_starts_are_few() -> None:
    text = GOOD.replace("count = 1", 'count = 400\nstagger = "1700 ms"').replace('"12 Mbit/s"', '"lte-suburban.up"')
    said = cautions(planned(text))
    assert any("goes round" in line for line in said)
    assert len(said) < 20
    assert re.fullmatch(r"lte-suburban: [0-9]+ more starts in it are not checked", said[-1])


def test_a_dry_run_states_nodes_of_one_place_that_are_apart_and_replicas_without_load(tmp_path: Path) -> None:
    def notes(edit: dict[str, str]) -> list[str]:
        text = GOOD
        for before, after in edit.items():
            text = text.replace(before, after)
        (tmp_path / "x.toml").write_text(text)
        done = cellbed("run", tmp_path / "x.toml", "--dry-run", "--overcommit", "--json", status=0)
        # Limits of all nodes together exceed a smaller machine.
        return [each for each in json.loads(done.stdout)["cautions"] if not each.startswith("the nodes may use ")]

    assert notes({}) == []
    (apart, idle) = notes({"[nodes.edge]": "[nodes.edge]\ncount = 3"})
    assert apart.startswith("the 3 nodes of edge are at one place, but each has a core link of its own: a packet from")
    assert idle.startswith("2 of the 3 nodes of edge get no load: a client uses one of them, and there are 1; balance")
    store = '[nodes.store]\nclass = "edge"\ncpus = 1.0\nmemory = "64 MiB"\n'
    service = '[apps.db]\nkind = "program"\nserver = { on = "store", command = "sleep 9" }\n'
    (apart, idle) = notes({"[workload]": f"{store}count = 2\n{service}[apps.load]"})
    assert "the 3 nodes of edge, store are at one place" in apart
    assert idle.startswith("1 of the 2 nodes of store get no load: their name means the first; balance = ")
    assert notes({"[workload]": f'{store}core = "9 ms"\n{service}[apps.load]'}) == []
    site = {"[nodes.edge]": '[sites.a]\ncore = "1 ms"\n[nodes.edge]\nsite = "a"'}
    assert notes(site | {"[workload]": f"{store}{service}[apps.load]"}) == []


def test_limits_that_the_machine_can_give_each_node_but_not_all_are_a_note(tmp_path: Path) -> None:
    def notes(cpus: float, *options: str) -> list[str]:
        text = GOOD.replace("cpus = 1.0", f"cpus = {cpus}").replace("cpus = 2.0", f"cpus = {cpus}")
        (tmp_path / "x.toml").write_text(text)
        done = cellbed("run", tmp_path / "x.toml", "--dry-run", "--json", *options, status=0)
        return [each for each in json.loads(done.stdout)["cautions"] if each.startswith("the nodes may use ")]

    processors = len(os.sched_getaffinity(0))
    assert notes(processors / 2) == []
    (note,) = notes(0.75 * processors)
    assert f"{1.5 * processors:g} CPUs together, and this machine has {processors}: while all are busy" in note
    assert notes(0.75 * processors, "--virtual") == notes(0.75 * processors, "--no-limits") == []


def test_dry_run_folds_equal_nodes_and_links(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(GOOD.replace("count = 1", 'count = 500\nstagger = "5 s"'))
    shown = cellbed("run", path, "--dry-run", env={"COLUMNS": "300"}).stdout
    assert re.search(r"endpoint-0 … endpoint-499 +endpoint +namespace .* 100\.64\.0\.2 … 100\.64\.1\.245", shown)
    assert len(shown.splitlines()) < 30
    assert len(json.loads(cellbed("run", path, "--dry-run", "--json").stdout)["directions"]) == 1002


@pytest.mark.needs_tun
def test_the_emulator_takes_every_kind(tmp_path: Path) -> None:
    write_recordings(tmp_path)
    every = [up(make_plan(read(line, tmp_path))) for line in EXAMPLES]
    config = line_of_two([], [])
    before = len(config["directions"])
    for number, direction in enumerate(every):
        config["vertices"].append({"name": f"t{number}", "namespace": None})
        way = {"name": f"{number}", "from": "endpoint", "to": f"t{number}", "stages": direction.stages}
        config["directions"].append(way)
    emulator = Emulator.start(config)
    assert len(emulator.counters()) == before + len(every)
    emulator.stop()


def test_groups_have_their_own_nodes_links_and_applications() -> None:
    text = scenario_head(
        {
            "phone": {"class": "endpoint", "count": 2, "stagger": "5 s", "link": {"up": "1 Mbit/s", "start": "1 s"}},
            "car": {"class": "endpoint"},
            "near": {"class": "edge", "aliases": ["db.shop.svc"]},
            "far": {"class": "edge", "core": "3 ms"},
        },
        mobile={"up": "5g-midband.up", "down": "9 Mbit/s"},
        core={"edge": "1 ms"},
    )
    image = {"kind": "image-classification", "rate": "1 /s"}
    text += app_table("one", **image, client="phone", server="far")
    text += app_table("two", **image, client="car", server="near", start="10 s", stop="20 s")
    plan = planned(text)
    assert [node.name for node in plan.nodes] == ["phone-0", "phone-1", "car-0", "near-0", "far-0"]
    assert len({node.ipv4 for node in plan.nodes}) == 5
    uplinks = {way.link: way for way in plan.directions if way.way == "uplink"}
    assert list(uplinks) == ["mobile-phone-0", "mobile-phone-1", "mobile-car-0", "core-near-0", "core-far-0"]
    assert [uplinks[f"mobile-phone-{each}"].playing.start_ns for each in (0, 1)] == [1000 * MS, 6000 * MS]
    assert uplinks["mobile-phone-0"].stages[2]["schedule"]["bit_rate"] == 1_000_000
    assert uplinks["mobile-car-0"].played is not None
    assert uplinks["core-far-0"].stages[-1]["fixed_ns"] == 3 * MS
    one, two = deployments(plan)
    assert [node.name for node in one.clients] == ["phone-0", "phone-1"]
    assert [node.name for node in two.servers] == ["near-0"]
    assert (two.start_ns, two.stop_ns) == (10_000 * MS, 20_000 * MS)
    hosts = plan.hosts.splitlines()
    assert f"{plan.node('near-0').ipv4} near" in hosts
    assert f"{plan.node('near-0').ipv4} two" in hosts
    assert f"{plan.node('near-0').ipv4} db.shop.svc" in hosts


def test_namespace_in_front_of_a_machine_is_a_router() -> None:
    text = GOOD.replace("[nodes.edge]", '[nodes.edge]\nbackend = { kind = "vm" }').split("[workload]")[0]
    plan = planned(text)
    endpoint, edge, _ = plan.emulator_config()["vertices"]
    assert "behind" not in endpoint
    assert edge["behind"] == [f"{plan.node('edge-0').ipv4}/32", f"{plan.node('edge-0').ipv6}/128"]
    assert not set(edge["addresses"]) & {*edge["behind"], *endpoint["addresses"]}
    assert edge["sysctls"]["net.ipv4.ip_forward"] == "1"


def test_a_cell_is_shared_by_the_links_of_its_groups() -> None:
    text = GOOD.replace("count = 1", 'count = 2\ncell = "macro"\npriority = 3').replace('"unlimited"', '"24 Mbit/s"')
    plan = planned(text + '\n[cells.macro]\nscheduler = "priority"\nslot = "500 us"\n')
    up, down = (cell.config for cell in plan.cells)
    users = [{"direction": f"mobile-{number}.uplink", "priority": 3} for number in range(2)]
    assert up == {"name": "macro.uplink", "scheduler": {"kind": "priority"}, "slot_ns": 500_000, "users": users}
    assert [user["direction"] for user in down["users"]] == ["mobile-0.downlink", "mobile-1.downlink"]
    assert plan.emulator_config()["cells"] == [up, down]
    assert str(plan.cells[0]) == "strict priority, slots of 500 µs, 2 users"
    wrong = (text + "\n[cells.marco]\n", "did you mean 'marco'", "no group of nodes"), (
        text.replace("24 Mbit/s", "unlimited") + '\n[cells.macro]\nscheduler = "priority"\n', "nothing to share"
    )  # fmt: skip
    _refused(wrong)


def _refused(wrong: Iterable[tuple[str, ...]]) -> None:
    for mistaken, *words in wrong:
        with pytest.raises(ScenarioError) as caught:
            planned(mistaken)
        assert all(word in str(caught.value) for word in words)


ROUTE = """
[cells.macro]
[cells.small]
[[nodes.endpoint.route]]
at = "10 s"
cell = "small"
queued = "drop"
up = "6 Mbit/s"
[[nodes.endpoint.route]]
at = "20 s"
cell = "macro"
interruption = "2 s"
"""


def test_a_route_moves_links_from_cell_to_cell(tmp_path: Path) -> None:
    text = GOOD.replace("count = 1", 'count = 2\ncell = "macro"').replace('"unlimited"', '"24 Mbit/s"') + ROUTE
    plan = planned(text)
    at, there, again, back = 10 * SECOND, 10 * SECOND + 50 * MS, 20 * SECOND, 22 * SECOND
    visits = {
        cell.name: [(user.get("from_ns"), user.get("until_ns")) for user in cell.config["users"]] for cell in plan.cells
    }
    assert visits["macro.uplink"] == visits["macro.downlink"] == 2 * [(None, at), (back, None)]
    assert visits["small.uplink"] == 2 * [(there, again)]
    up, down = plan.directions[:2]
    gate = {"kind": "gate", "outages_ns": [[at, there - at], [again, back - again]], "flushes_ns": [at]}
    assert gate in up.stages
    assert gate in down.stages
    assert [(when, stage["schedule"]["bit_rate"]) for when, _, stage in up.stage_changes] == [(there, 6_000_000)]
    assert down.stage_changes == []
    assert [str(move) for move in plan.moves] == [
        "handover of endpoint from macro to small in 50 ms, packets in the queue dropped",
        "handover of endpoint from small to macro in 2 s, packets in the queue forwarded",
    ]
    (tmp_path / "x.toml").write_text(text)
    assert (
        f"at 10 s: {plan.moves[0]}" in cellbed("run", tmp_path / "x.toml", "--dry-run", env={"COLUMNS": "300"}).stdout
    )
    _refused(
        [
            (text.replace('cell = "small"', 'cell = "smal"'), "did you mean 'small'", "cells.small: no group"),
            (text.replace('cell = "small"', 'cell = "macro"'), "in the cell 'macro' already"),
            (text.replace("20 s", "10 s"), "enter the cell 'small' at 10.05 s", "in order of time"),
            (text.replace('at = "20 s"', 'at = "20 h"'), "the workload ends after"),
            (text.replace("6 Mbit/s", "unlimited"), "nothing to share"),
        ]
    )

"""Sites: nodes that share a switch and a core link; endpoints that move from site to site, and who serves them."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cellbed.measure.outages import find_outages
from cellbed.measure.packets import RECORD
from cellbed.measure.servers import server_summaries
from cellbed.scenario import ScenarioError, parse
from cellbed.scenario.fields import ConstantRate
from cellbed.testbed.plan import Plan, make_plan
from in_process import run_apart
from node_programs import SERVER
from predicted_runs import predict_http
from scenario_text import app_table, scenario_head, server_keys, tables

MS = 1_000_000
AT, ENTERS = 2_000 * MS, 2_050 * MS
TRANSFER = 160 * MS + 20 * MS
"""20 MB at 1 Gbit/s, then the delay between the sites."""
SITES = {
    "north": {"core": {"kind": "delay", "delay": "8 ms", "rate": "1 Gbit/s"}, "delay": "1 ms"},
    "south": {"core": "12 ms", "delay": "1 ms", "rate": "5 Gbit/s"},
}
NEAR_NORTH = {"memory": "128 MiB", "class": "edge", "site": "north"}
NODES = {
    **{"near-north": NEAR_NORTH, "plain": NEAR_NORTH, "follower": NEAR_NORTH},
    "near-south": {"memory": "128 MiB", "class": "edge", "site": "south"},
    "endpoint": {"cpus": 1.0, "cell": "north", "route": [{"at": "2 s", "cell": "south"}]},
}
CELLS = {"north": {"site": "north"}, "south": {"site": "south"}}
SCENARIO = scenario_head(NODES, core={}, name="sites", duration="4 s") + tables(sites=SITES, cells=CELLS)


def web(app: str, server: str, on: str, **keys: str) -> str:
    """Return the table of a load of requests. server: name in its URL."""
    command = [sys.executable, "-I", "-S", "SERVER", "8080"]
    url = f"http://{{{server}.address}}:8080/"
    return app_table(app, "http", url=url, rate="20 /s", **keys, server=server_keys(command, 8080, on))


BRIEF = {"timeout": "1 s", "drain": "1 s"}
APPS = (
    web("fixed", "fixed", "plain", **BRIEF)
    + web("nearest", "nearest", "near-north", **BRIEF, edge_policy="nearest")
    + web("following", "following", "follower", **BRIEF, edge_policy="follow-me", state="20 MB")
)


def planned(text: str = SCENARIO + APPS) -> Plan:
    return make_plan(parse(text, source="x.toml", folder=Path()))


def test_links_join_the_sites_of_cells() -> None:
    plan = planned()
    ways = {each.name: each for each in plan.directions}
    up, down = ways["mobile-0.uplink"], ways["mobile-0.downlink"]
    assert up.config["moves"] == [{"at_ns": AT, "from": "endpoint-0", "to": "site.south"}]
    assert down.config["moves"] == [{"at_ns": AT, "from": "site.south", "to": "endpoint-0"}]
    # The server that follows is at no site until its state has arrived.
    follower = ways["port-follower-0.uplink"]
    assert (follower.source, follower.target) == ("site.north", "follower-0")
    assert follower.config["moves"] == [{"at_ns": ENTERS, "from": "site.south", "to": "follower-0"}]
    assert follower.parameters.outages == ((ENTERS, TRANSFER),)
    (change,) = follower.config["changes"]
    assert (change["at_ns"], change["to"]["schedule"]["bit_rate"]) == (ENTERS, 5_000_000_000)
    assert not {"moves", "changes"} & ways["port-plain-0.uplink"].config.keys()
    assert [str(move) for move in plan.moves] == [
        "handover of endpoint-0 from north to south in 50 ms, packets in the queue forwarded",
        "migration of follower-0 from north to south in 180 ms",
    ]
    assert [each.name for each in plan.path("endpoint-0", "near-south-0")] == [
        *("mobile-0.uplink", "site-north.uplink", "site-south.downlink", "port-near-south-0.uplink")
    ]
    assert len(plan.path("endpoint-0", "plain-0")) == 2
    # One address for the instances of both sites, by the name of the application.
    shared = {each["name"]: each["shared"] for each in plan.emulator_config()["vertices"] if "shared" in each}
    assert shared == {"near-north-0": ["100.65.0.3/32"], "near-south-0": ["100.65.0.3/32"]}
    assert "100.65.0.3 nearest\n" in plan.hosts
    assert f"{plan.node('follower-0').ipv4} following\n" in plan.hosts
    outage = '[[faults]]\nat = "1 s"\nfor = "2 s"\nkind = "outage"\nlink = "site-south"\n'
    (broken,) = (each for each in planned(SCENARIO + APPS + outage).directions if each.name == "site-south.uplink")
    assert broken.parameters.outages == ((1_000 * MS, 2_000 * MS),)


@pytest.mark.parametrize(
    ("wrong", "right", "words"),
    [
        ('edge"\nsite = "south"', 'edge"\nsite = "sout"', ("did you mean 'south'", "nodes.near-south.site")),
        ('[cells.south]\nsite = "south"', '[cells.south]\nsite = "sout"', ("did you mean 'south'", "cells.south.site")),
        ('[cells.south]\nsite = "south"', "[cells.south]", ("'south' is at no site", "apps.nearest.edge_policy")),
        ("[cells.south]\n", '[cells.south]\nedge = "near-south"\n', ("unknown key here", "x.toml", "cells.south")),
        ('edge"\nsite = "south"', 'edge"', ("the site 'south' has no instance", "apps.nearest.edge_policy")),
        ('core = "12 ms"', "", ("missing: write core = ", "sites.south.core")),
        ('core = "12 ms"', 'core = { kind = "place", name = "eu-west-3" }', ("varies: write kind = 'delay'",)),
        ("[cells.north]\n", '[sites.far]\ncore = "1 ms"\n[cells.north]\n', ("no nodes are at this site", "sites.far")),
        ("[nodes.plain]\n", '[nodes.plain]\ncore = "1 ms"\n', ("share its core link", "nodes.plain.core")),
        ('cell = "north"\n', 'cell = "north"\nsite = "north"\n', ("only edge and cloud", "nodes.endpoint.site")),
        ('"follower", command', '"near-south", command', ("begin at the site 'north'", "apps.following.server")),
        ('"follower", command', '"plain", command', ("has programs of other applications",)),
        ('\nstate = "20 MB"', "", ("missing: write the size", "apps.following.state")),
        (', rate = "1 Gbit/s"', "", ("have no rate", "apps.following.state")),
        ('cell = "north"', "", ("the clients are in no cell",)),
        ("near-south]\n", "near-south]\ncount = 2\n", ("one instance",)),
        (
            'cell = "south" }',
            'cell = "south" }, { at = "2100 ms", cell = "north" }',
            ("takes longer than the clients stay",),
        ),
    ],
)
def test_sites_and_policies_that_do_not_fit_are_refused(wrong: str, right: str, words: tuple[str, ...]) -> None:
    assert wrong in SCENARIO + APPS
    with pytest.raises(ScenarioError) as caught:
        planned((SCENARIO + APPS).replace(wrong, right))
    assert all(word in str(caught.value) for word in words), caught.value
    assert ("no nodes are at" in str(caught.value)) == ("no nodes are at this site" in words)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in virtual time."""
    return predict_http(tmp_path_factory.mktemp("predicted"), SCENARIO + APPS, "fixed", "nearest", "following")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one application under each policy."""
    folder = tmp_path_factory.mktemp("sites")
    return run_apart(folder, SCENARIO + APPS, server=SERVER)


def delays(run: Path, app: str) -> set[tuple[str, int, int]]:
    """Server of requests in each cell, and what the delay stages on the way there and back took, ms; without requests
    that were under way at a move."""
    t0 = json.loads((run / "run.json").read_text())["t0_ns"]
    requests = pl.read_parquet(run / "requests.parquet").filter(app=app).drop_nulls("reply_ns")
    begin, end = pl.col("intended_ns") - t0, pl.col("reply_ns") - t0
    calm = requests.filter((end < AT) | (begin > ENTERS + TRANSFER))
    rows = calm.select("server", pl.col("uplink_delayed_ns") / MS, pl.col("downlink_delayed_ns") / MS).rows()
    return {(server, up, down) for server, up, down in rows}


@pytest.mark.needs_tun
@pytest.mark.parametrize(
    ("app", "before", "after"),
    [
        ("fixed", ("plain-0", 11), ("plain-0", 31)),
        ("nearest", ("near-north-0", 11), ("near-south-0", 11)),
        ("following", ("follower-0", 11), ("follower-0", 11)),
    ],
)
def test_delays_are_those_of_the_links_on_the_way(
    run: Path, app: str, before: tuple[str, int], after: tuple[str, int]
) -> None:
    assert delays(run, app) == {(server, delay, delay) for server, delay in (before, after)}


@pytest.mark.needs_tun
def test_a_server_that_follows_is_away_for_handover_and_transfer(run: Path) -> None:
    description = json.loads((run / "run.json").read_text())
    t0, names = description["t0_ns"], [each["name"] for each in description["directions"]]
    log = np.fromfile(run / "raw" / "packets.bin", RECORD, offset=16)
    to_server = log[log["direction"] == names.index("port-follower-0.uplink")]
    waited = to_server[(to_server["arrived"] >= t0 + ENTERS) & (to_server["arrived"] < t0 + ENTERS + TRANSFER)]
    assert len(waited)
    # They leave as fast as the port of the new site carries them.
    assert (waited["released"] - t0 >= ENTERS + TRANSFER).all()
    assert (waited["released"] - t0 < ENTERS + TRANSFER + MS).all()
    leaving = log[np.isin(log["direction"], [names.index("mobile-0.uplink"), names.index("port-follower-0.downlink")])]
    # What was being sent when the handover began leaves a little later.
    leaving = leaving[leaving["arrived"] >= t0 + AT]
    of_follower = leaving[(leaving["destination_vertex"] == 3) | (leaving["source_vertex"] == 3)]
    assert description["nodes"][3]["name"] == "follower-0"
    assert len(of_follower)
    assert (of_follower["released"] >= t0 + ENTERS).all()
    summary = json.loads((run / "summary.json").read_text())
    spans = [(each["kind"], round(each["end_s"] - each["begin_s"], 1)) for each in summary["faults"]]
    assert [kind for kind, _ in spans] == ["handover", "migration"]


@pytest.mark.needs_tun
def test_the_report_shows_who_served_in_each_cell(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    rows: dict[tuple[str, ...], dict[str, Any]] = {
        (each["app"], each["policy"], each["cell"], each["server"], each["site"]): each for each in summary["servers"]
    }
    expected = {
        ("fixed", "fixed", "north", "plain-0", "north"): 22,
        ("fixed", "fixed", "south", "plain-0", "north"): 62,
        ("nearest", "nearest", "north", "near-north-0", "north"): 22,
        ("nearest", "nearest", "south", "near-south-0", "south"): 22,
        ("following", "follow-me", "north", "follower-0", "north"): 22,
        ("following", "follow-me", "south", "follower-0", "south"): 22,
    }
    assert expected.keys() <= rows.keys()
    assert {key: round(rows[key]["delay_s"] * 1e3) for key in expected} == expected
    assert sum(each["requests"] for each in rows.values()) == 3 * 80
    # The new instance knows no connection of the old one.
    broken = {each["name"]: each["reasons"] for each in summary["applications"]}
    assert broken["fixed"] == broken["following"] == {}
    assert any("reset" in reason for reason in broken["nearest"])
    for text in ((run.parents[1] / "output").read_text(), (run / "report.html").read_text()):
        assert "near-south-0 at south" in text
        assert "migration of follower-0 from north to south in 180 ms" in text
    assert server_summaries(json.loads((run / "run.json").read_text()) | {"sites": {}}, pl.DataFrame()) == []


def test_a_prediction_is_the_same(predicted: Path) -> None:
    for app, before, after in (
        ("fixed", ("plain-0", 11), ("plain-0", 31)),
        ("nearest", ("near-north-0", 11), ("near-south-0", 11)),
        ("following", ("follower-0", 11), ("follower-0", 11)),
    ):
        test_delays_are_those_of_the_links_on_the_way(predicted, app, before, after)
    test_a_server_that_follows_is_away_for_handover_and_transfer(predicted)
    test_the_report_shows_who_served_in_each_cell(predicted)


PARIS_CORE = {"kind": "delay", "delay": "30 ms", "rate": "8 Mbit/s"}
PARIS = {"class": "cloud", "site": "paris", "memory": "128 MiB"}
CITY = (
    scenario_head(
        {
            "endpoint": {"cpus": 1.0},
            "web": {"count": 2, **PARIS},
            "database": PARIS,
            "far": {"class": "cloud", "memory": "128 MiB"},
        },
        mobile={"up": "40 Mbit/s", "down": "40 Mbit/s"},
        core={"cloud": "20 ms"},
        name="city",
        duration="3 s",
    )
    + tables(sites={"paris": {"core": PARIS_CORE, "delay": "2 ms", "rate": "50 Mbit/s"}})
    + tables(faults=[{"at": "2 s", "for": "500 ms", "kind": "outage", "link": "site-paris"}])
)
CITY_APPS = (
    web("outer", "server", "web", client="endpoint")
    + web("inner", "server", "database", client="web")
    + web("away", "server", "far", client="web")
)


def test_packets_between_nodes_of_a_site_pass_their_ports_alone() -> None:
    plan = planned(CITY + CITY_APPS)
    paths = {
        ("web-0", "database-0"): ["port-web-0.downlink", "port-database-0.uplink"],
        ("endpoint-0", "web-1"): ["mobile-0.uplink", "site-paris.uplink", "port-web-1.uplink"],
        ("web-1", "endpoint-0"): ["port-web-1.downlink", "site-paris.downlink", "mobile-0.downlink"],
        ("web-0", "far-0"): ["port-web-0.downlink", "site-paris.downlink", "core-far-0.uplink"],
    }
    assert {ends: [each.name for each in plan.path(*ends)] for ends in paths} == paths
    assert [*plan.scenario.apart()] == []
    default = planned((CITY + CITY_APPS).replace('delay = "2 ms"\nrate = "50 Mbit/s"', "")).directions
    (port,) = (each for each in default if each.name == "port-web-0.uplink")
    assert (port.parameters.delay, port.capacity) == (25_000, ConstantRate(10_000_000_000))


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_apart(tmp_path_factory.mktemp("city"), CITY + CITY_APPS, server=SERVER)


@pytest.fixture(scope="module")
def predicted_city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return predict_http(tmp_path_factory.mktemp("predicted-city"), CITY + CITY_APPS, "outer", "inner", "away")


@pytest.mark.needs_tun
def test_requests_are_delayed_by_the_ports_and_core_links_on_their_way(city: Path) -> None:
    requests = pl.read_parquet(city / "requests.parquet").drop_nulls("reply_ns")
    expected = {"outer": 10 + 30 + 2, "inner": 2 + 2, "away": 2 + 30 + 20}
    found = requests.group_by("app").agg(pl.col("uplink_delayed_ns", "downlink_delayed_ns").unique() / MS)
    assert {app: (up, down) for app, up, down in found.rows()} == {app: ([ms], [ms]) for app, ms in expected.items()}
    shortest = dict(requests.group_by("app").agg(pl.col("latency_s").min()).rows())
    assert all(shortest[app] >= 2 * ms / 1e3 for app, ms in expected.items())
    description = json.loads((city / "run.json").read_text())
    names = [each["name"] for each in description["directions"]]
    vertices = {each["name"]: vertex for vertex, each in enumerate(description["nodes"])}
    log = np.fromfile(city / "raw" / "packets.bin", RECORD, offset=16)
    beside = log[
        np.isin(log["source_vertex"], [vertices["web-0"], vertices["web-1"]])
        & (log["destination_vertex"] == vertices["database-0"])
    ]
    crossed = {names[direction] for direction in np.unique(beside["direction"])}
    assert crossed == {"port-web-0.downlink", "port-web-1.downlink", "port-database-0.uplink"}


@pytest.mark.needs_tun
def test_an_outage_of_a_core_link_of_a_site_concerns_who_crosses_it(city: Path) -> None:
    description = json.loads((city / "run.json").read_text())
    found = find_outages(description, pl.read_parquet(city / "links.parquet"))
    assert {(each.link, each.way, each.endpoint, each.apps) for each in found} == {
        ("site-paris", way, "endpoint-0", ("outer",)) for way in ("uplink", "downlink")
    }


@pytest.mark.needs_tun
def test_ports_are_proved(city: Path) -> None:
    proofs = {each["what"]: each for each in json.loads((city / "run.json").read_text())["proof"]}
    for link in ("port-web-0", "port-web-1", "port-database-0", "site-paris"):
        for way in ("uplink", "downlink"):
            assert proofs[f"{link}.{way} delay"]["state"] == "holds"
            assert proofs[f"{link}.{way} rate"]["measured"] is not None, proofs[f"{link}.{way} rate"]


@pytest.mark.slow
def test_a_prediction_of_a_site_is_the_same(predicted_city: Path) -> None:
    test_requests_are_delayed_by_the_ports_and_core_links_on_their_way(predicted_city)
    test_an_outage_of_a_core_link_of_a_site_concerns_who_crosses_it(predicted_city)


def test_the_core_link_of_a_site_limits_the_sum_of_its_nodes(tmp_path: Path) -> None:
    # Two endpoints, which use one server each: 2 × 8 Mbit/s of replies.
    nodes = CITY[: CITY.index("[[faults]]")].replace("[nodes.endpoint]", "[nodes.endpoint]\ncount = 2")
    run = predict_http(tmp_path, nodes + CITY_APPS[: CITY_APPS.index("[apps.inner]")], "outer", size=50_000)
    links = pl.read_parquet(run / "links.parquet").filter(pl.col("time_s").is_between(1, 3, closed="left"))
    used = dict(links.group_by("direction").agg(pl.col("used_mbit_s").mean()).rows())
    assert used["site-paris.downlink"] == pytest.approx(8, rel=0.02)
    ports = [used[f"port-web-{number}.downlink"] for number in range(2)]
    assert min(ports) > 2

"""Nodes of class tower in scenarios: what does not fit is refused, and links end at the node in the plan."""

from pathlib import Path
from typing import Any

import pytest

from cellbed.experiments.virtual.run import NoModelError, check
from cellbed.scenario import parse
from cellbed.testbed.plan import Plan, make_plan
from scenario_text import app_table, refusal, scenario_head, tables

MAST: dict[str, Any] = {"class": "tower"}
NODES: dict[str, Any] = {"endpoint": {}, "cloud": {}}
CORE = {"cloud": "20 ms"}


def scenario(mast: dict[str, Any], more: dict[str, Any] | None = None, **others: Any) -> str:
    return scenario_head({**NODES, "mast": {**MAST, **mast}, **(more or {})}, core=CORE, **others)


def plan(text: str) -> Plan:
    return make_plan(parse(text, source="x.toml", folder=Path()))


@pytest.mark.parametrize(
    ("mast", "expected"),
    [
        ({"count": 2}, "nodes.mast.count: a tower has one node"),
        ({"core": "3 ms"}, "nodes.mast.core: a tower has no link of its own"),
        ({"link": {"up": "1 Mbit/s", "down": "1 Mbit/s"}}, "nodes.mast.link: a tower has no link of its own"),
        ({"stagger": "1 s"}, "nodes.mast.stagger: a tower has no link of its own"),
        ({"backend": {"kind": "vm"}}, "nodes.mast.backend: the packets of a tower pass this machine's kernel"),
        ({"backend": {"kind": "host", "ssh": "pi"}}, "nodes.mast.backend: the packets of a tower"),
        ({"site": "paris"}, "nodes.mast.site: there is no site 'paris'"),
        ({"cell": "small"}, "nodes.mast.cell: only endpoints have a mobile link"),
        ({"intercept": 0}, "nodes.mast.intercept"),
        ({"intercept": 65536}, "nodes.mast.intercept"),
    ],
)
def test_keys_that_do_not_fit_a_tower_are_refused(mast: dict[str, Any], expected: str) -> None:
    assert expected in refusal(scenario(mast))


@pytest.mark.parametrize(
    ("more", "others", "expected"),
    [
        ({"hill": MAST}, {}, "nodes.hill.class: 'mast' is the node of this tower"),
        ({"cloud": {"intercept": 80}}, {}, "nodes.cloud.intercept: only a node of class tower"),
        ({}, {"mobile": {"proxy": {"kind": "split"}}}, "links.mobile.proxy: packets pass the node of the tower (mast)"),
        ({}, {"faults": [{"kind": "outage", "link": "core-mast-0", "at": "1 s", "for": "1 s"}]}, "no link is called"),
    ],
)
def test_towers_that_do_not_fit_other_tables_are_refused(
    more: dict[str, Any], others: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(scenario({}, more, **others))


def test_a_tower_at_a_site_without_a_cell_is_refused() -> None:
    edge = {"class": "edge", "site": "paris"}
    text = scenario({"site": "paris"}, {"near": edge}, sites={"paris": {"core": "3 ms"}})
    assert "nodes.mast.site: no tower is at this site: write site = 'paris' in a cell" in refusal(text)


def test_links_end_at_the_node_and_its_address_is_of_no_other_class() -> None:
    found = plan(scenario({"intercept": 5000}))
    ends = {(each.name, each.source, each.target) for each in found.directions}
    assert ends == {
        ("mobile-0.uplink", "endpoint-0", "mast-0"),
        ("mobile-0.downlink", "mast-0", "endpoint-0"),
        ("core-cloud-0.uplink", "mast-0", "cloud-0"),
        ("core-cloud-0.downlink", "cloud-0", "mast-0"),
    }
    assert str(found.node("mast-0").ipv4) == "100.65.64.2"
    assert str(found.node("mast-0").ipv6) == "fd63:656c:6c62:5::2"
    config = found.emulator_config()
    vertices = {each["name"]: each for each in config["vertices"]}
    assert list(vertices) == ["endpoint-0", "cloud-0", "mast-0"]
    assert vertices["mast-0"]["tower"] == {"links": [["mobile-0.uplink", "mobile-0.downlink"]]}
    assert vertices["mast-0"]["sysctls"]["net.ipv4.ip_forward"] == "1"
    assert [each.name for each in found.path("endpoint-0", "cloud-0")] == ["mobile-0.uplink", "core-cloud-0.uplink"]
    assert [each.name for each in found.path("cloud-0", "mast-0")] == ["core-cloud-0.downlink"]
    assert not list(found.scenario.apart())


def test_a_scenario_without_a_tower_has_the_same_vertices_as_before() -> None:
    config = plan(scenario_head(NODES, core=CORE)).emulator_config()
    assert [each["name"] for each in config["vertices"]] == ["endpoint-0", "cloud-0", "tower"]
    assert not [each for each in config["vertices"] if "tower" in each]


def test_each_tower_of_a_site_has_a_node_and_links_move_from_one_to_the_other() -> None:
    route = [{"at": "2 s", "cell": "wide"}]
    found = plan(
        scenario(
            {},
            {"endpoint": {"cell": "small", "route": route}, "hill": {**MAST, "site": "paris"}},
            cells={"small": {"site": "paris"}, "wide": {}},
            sites={"paris": {"core": "3 ms"}},
        )
    )
    uplink = next(each for each in found.directions if each.name == "mobile-0.uplink")
    assert (uplink.target, uplink.moves) == ("hill-0", ((2_000_000_000, "endpoint-0", "mast-0"),))
    assert "from 2 s on at mast-0" in uplink.description
    path = [each.name for each in found.path("endpoint-0", "cloud-0")]
    assert path == ["mobile-0.uplink", "site-paris.uplink", "core-cloud-0.uplink"]


def test_a_crash_of_the_node_loses_the_packets_of_its_tower() -> None:
    crash = {"kind": "crash", "node": "mast-0", "at": "1 s", "for": "1 s"}
    found = plan(scenario({}, faults=[crash]))
    assert all([at for at, _ in each.changes] == [10**9, 2 * 10**9] for each in found.directions)


def test_virtual_time_refuses_the_class_by_name() -> None:
    server = {"on": "cloud", "command": "iperf3 --server", "ready": {"port": 5201}}
    client = {"on": "endpoint", "command": "iperf3 --client {server.address}"}
    text = scenario({}) + app_table("bulk", server=server, client=client) + tables()
    with pytest.raises(NoModelError, match=r"no model in virtual time for\n  node 'mast-0': class tower\n"):
        check(plan(text))

"""Simulations of data centres: files, results, folders, reports, interruption."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

import cellbed_datacentre
from any_text import many, value_or_line, value_or_sentence, words
from cellbed.scenario import ScenarioError
from cellbed.support.flow_files import FlowFileError, lognormal, mean_bytes, read_sizes, read_trace
from cellbed_datacentre import Simulation, SimulationError, _core, simulate
from cellbed_datacentre.file import json_schema, read_simulation
from cellbed_datacentre.simulation import by_size
from cellbed_datacentre.transports import MOBILE_USERS, AnyTransport
from hostile_files import KINDS, opened
from in_process import cellbed, completions, each_in_one_process

ROOT = Path(__file__).parents[1]
TRANSPORTS = [table.__name__ for table in get_args(AnyTransport)]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
GOOD: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "topology": {"kind": "leaf-spine", "racks": 2, "hosts_per_rack": 3, "spines": 2},
    "transport": {"kind": "pdcell"},
    "traffic": {"flows": 300, "load": 0.5, "sizes": "sizes.txt"},
}
SIZES = "# packets\n1 1 0\n1 1 0.5\n3 1 0.8\n100 1 1\n"
GRAPH = {
    "kind": "graph",
    "hosts": ["client", "near", "far"],
    "switches": ["left", "right"],
    "links": [
        {"between": ["client", "left"], "rate": "10 Gbit/s"},
        {"between": ["near", "left"], "rate": "10 Gbit/s"},
        {"between": ["left", "right"], "rate": "1 Gbit/s", "delay": "50 us"},
        {"between": ["right", "far"], "rate": "10 Gbit/s"},
    ],
}


def write(folder: Path, **changes: Any) -> Path:
    """Write a simulation file with some tables replaced, and return its path."""
    (folder / "sizes.txt").write_text(SIZES)
    path = folder / "small.toml"
    path.write_text(tomli_w.dumps(GOOD | changes))
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a simulation with three seeds, and the command's output."""
    folder = tmp_path_factory.mktemp("simulate")
    done = cellbed(
        "simulate", write(folder), "--seeds", 3, "--jobs", 3, "--json", "--out", folder / "out", cwd=folder, status=0
    )
    printed = json.loads(done.stdout)
    return Path(printed["folder"]), printed


def test_a_folder_has_tables_summary_and_report(results: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = results
    assert {path.name for path in folder.iterdir()} == {
        "flows.parquet", "ports.parquet", "report.html", "simulation.toml", "summary.json"
    }  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    flows = pl.read_parquet(folder / "flows.parquet")
    assert flows["seed"].unique(maintain_order=True).to_list() == [3, 4, 5]
    assert flows.group_by("seed").len()["len"].to_list() == [300] * 3
    assert flows["fct_s"].null_count() == 0
    assert flows["slowdown"].min() > 0.999  # type: ignore[operator]
    assert (flows["bytes"] % 1460).sum() == 0
    ports = pl.read_parquet(folder / "ports.parquet")
    assert set(ports["tier"]) == {"host to leaf", "leaf to host", "leaf to spine", "spine to leaf"}
    sent = ports.filter(tier="host to leaf")
    assert sent["bytes"].sum() > flows["bytes"].sum()
    assert sent["utilisation"].is_between(0, 1).all()
    summary = json.loads((folder / "summary.json").read_text())
    assert {key: value for key, value in printed.items() if key != "folder"} == summary
    assert summary["seeds"] == [3, 4, 5]
    assert summary["inputs"] == {"sizes.txt": hashlib.sha256(SIZES.encode()).hexdigest()}
    row = summary["by_size"][0]
    means = flows.group_by("seed").agg(pl.col("slowdown").mean())["slowdown"]
    assert row["count"] == 900
    assert row["slowdown_mean"]["value"] == pytest.approx(means.mean())
    assert row["slowdown_mean"]["low"] < row["slowdown_mean"]["value"] < row["slowdown_mean"]["high"]


def test_results_depend_on_the_seed_alone(results: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path = write(tmp_path)
    done = cellbed("simulate", path, "--seeds", 3, "--jobs", 1, "--out", tmp_path / "out", cwd=tmp_path, status=0)
    again = Path(done.stdout.splitlines()[-1]).parent
    for name in ("flows", "ports"):
        table = pl.read_parquet(results[0] / f"{name}.parquet")
        assert pl.read_parquet(again / f"{name}.parquet").equals(table)
    alone = simulate(path, seed=4)
    assert pl.read_parquet(again / "flows.parquet").filter(seed=4).drop("seed").equals(alone.flows)
    assert simulate(GOOD | {"seed": 4}, folder=tmp_path).flows.equals(alone.flows)
    assert not simulate(path).flows.equals(alone.flows)


def test_a_report_shows_flows_and_ports(results: tuple[Path, dict[str, Any]]) -> None:
    page = (results[0] / "report.html").read_text()
    for text in ("900 flows", "3 seeds, 3 to 5", "Flow completion time by size", "10–100 KiB", "Leaf to spine"):
        assert text in page
    assert page.count("<svg") == 2
    assert "did not finish" not in page


def test_a_radio_cell_is_reported(tmp_path: Path) -> None:
    traffic = GOOD["traffic"] | {"flows": 40}
    radio = {"users": 5, "load_of": "cell", "cqi": {"kind": "trace", "files": ["cqi.txt"]}, "host": "host-1"}
    (tmp_path / "cqi.txt").write_text("5 7\n15 9 2\n")
    done = cellbed("simulate", write(tmp_path, radio=radio, traffic=traffic), "--out", tmp_path, cwd=tmp_path, status=0)
    folder = Path(done.stdout.splitlines()[-1]).parent
    flows = pl.read_parquet(folder / "flows.parquet")
    assert set(flows["destination"]) == {1}
    assert set(flows["user"]) <= set(range(5))
    assert flows["slowdown"].null_count() == len(flows)
    counts = pl.read_parquet(folder / "radio-counts.parquet").row(0, named=True)
    assert counts["delivered_bytes"] >= flows["bytes"].sum()
    assert pl.read_parquet(folder / "radio-users.parquet")["mean_cqi"].is_between(2, 15).all()
    page = (folder / "report.html").read_text()
    assert "Radio cell" in page
    assert "Slowdown by size" not in page
    assert page.count("<svg") == 2
    (tmp_path / "cqi.txt").write_text("5 16\n")
    done = cellbed("simulate", write(tmp_path, radio=radio, traffic=traffic), "--out", tmp_path, cwd=tmp_path)
    assert "radio.cqi.files" in done.stderr


CELLS: list[dict[str, Any]] = [
    {
        "host": "host-1",
        "users": 6,
        "dus": [{}, {"carrier": {"kind": "nr", "bandwidth": "50 MHz"}, "fronthaul_delay": "50 us"}],
        "dual": True,
        "through": ["host-2", "host-3"],
        "through_delay": "10 us",
        "load_of": "cell",
    },
    {"host": "host-4", "users": 9, "dus": 3, "capacity": "150 Mbit/s", "cqi": "placed"},
]
HOSTS = ["host-1", "host-4"]


def test_the_report_of_one_central_unit_lists_its_distributed_units(tmp_path: Path) -> None:
    (tmp_path / "units.toml").write_text(
        'name = "units"\n[topology]\nkind = "leaf-spine"\nracks = 2\nhosts_per_rack = 4\nspines = 2\n'
        '[transport]\nkind = "pdcell"\n[traffic]\nflows = 20\nload = 0.5\nsizes = "20 kB"\n'
        "[radio]\nusers = 4\ndus = 2\n"
    )
    done = cellbed("simulate", "units.toml", "-o", "out", cwd=tmp_path, status=0)
    page = Path(done.stdout.strip().splitlines()[-1])
    text = (tmp_path / page).read_text()
    assert text.count("<th>Distributed unit</th>") == 1


def test_results_name_the_central_and_distributed_units_of_flows(tmp_path: Path) -> None:
    path = write(tmp_path, radio=CELLS, traffic=GOOD["traffic"] | {"flows": 80}, seed=2)
    done = cellbed("simulate", path, "--seeds", 2, "--json", "--out", tmp_path, cwd=tmp_path, status=0)
    summary = json.loads(done.stdout)
    folder = Path(summary["folder"])
    tables = {name: pl.read_parquet(folder / f"radio-{name}.parquet") for name in ("users", "units", "counts")}
    rows = {name: [len(table.filter(central_unit=host)) for host in HOSTS] for name, table in tables.items()}
    assert rows == {"users": [12, 18], "units": [4, 6], "counts": [2, 2]}
    flows = pl.read_parquet(folder / "flows.parquet")
    assert flows["fct_s"].null_count() == 0
    assert set(flows["central_unit"]) == set(HOSTS)
    first, second = (flows.filter(central_unit=name) for name in HOSTS)
    assert (first["user"] % 2 == first["distributed_unit"]).all()
    assert ((first["user"] + 1) % 2 == first["second_unit"]).all()
    assert (second["user"] % 3 == second["distributed_unit"]).all()
    assert second["second_unit"].null_count() == len(second)
    placed = tables["users"].filter(central_unit="host-4")
    assert placed["distance_m"].is_between(35, 500).all()
    units = summary["runs"][0]["radio"][1]["units"]
    assert [unit["distributed_unit"] for unit in units] == [0, 1, 2]
    assert {unit["central_unit"] for unit in units} == {"host-4"}
    received = tables["units"].group_by("central_unit").agg(pl.col("received_bytes").sum())
    assert dict(received.rows()) == dict(
        tables["counts"].group_by("central_unit").agg(pl.col("delivered_bytes").sum()).rows()
    )
    page = (folder / "report.html").read_text()
    assert "Distributed unit" in page
    assert "host-4, 2" in page
    assert " at host-1, seed 2" in page
    again = simulate(path)
    assert again.flows.equals(flows.filter(seed=2).drop("seed"))


def test_one_radio_table_may_be_a_list(tmp_path: Path) -> None:
    traffic = GOOD["traffic"] | {"flows": 30}
    one, listed = (simulate(write(tmp_path, radio=radio, traffic=traffic)) for radio in ({"dus": 1}, [{}]))
    assert one.flows.equals(listed.flows)
    assert "central_unit" not in one.flows.columns


@pytest.mark.parametrize("flows", [2, 4])
@pytest.mark.parametrize(
    ("carrier", "mbit_s"),
    # Two layers of the highest quality: of LTE the bits of a subframe, of NR the formula of TS 38.306, §4.1.2.
    [
        ({"kind": "lte", "bandwidth": "5 MHz"}, 37.688),
        ("lte", 102.048),
        ({"kind": "nr", "bandwidth": "20 MHz", "spacing": "15 kHz", "modulation": "64QAM"}, 170.06),
        ({"kind": "nr", "bandwidth": "100 MHz", "spacing": "30 kHz"}, 1168.5),
    ],
)
def test_users_share_the_peak_rate_of_a_carrier(tmp_path: Path, flows: int, carrier: Any, mbit_s: float) -> None:
    size = 30_000_000
    (tmp_path / "flows.txt").write_text("".join(f"{it} {size} {1 + it} 0 0 {it % 2}\n" for it in range(flows)))
    radio: dict[str, Any] = {"users": 2, "carrier": carrier, "block_errors": 0, "cqi": {"kind": "fixed", "low": 15}}
    found = simulate(write(tmp_path, radio=radio, traffic={"trace": "flows.txt"}))
    expected = flows * size * 1500 / 1460 * 8 / (mbit_s * 1e6)
    assert found.flows["fct_s"].max() == pytest.approx(expected, rel=0.02)
    if flows == 2:  # of several flows to a user the first one ends earlier
        assert found.flows["fct_s"].min() == pytest.approx(expected, rel=0.05)


def test_any_graph_of_hosts_and_switches_is_simulated(tmp_path: Path) -> None:
    trace = tmp_path / "flows.txt"
    trace.write_text("7 2920 0 2 1000000.5\n8 14600 0 1 1000000.25\n")
    found = simulate(write(tmp_path, topology=GRAPH, traffic={"trace": "flows.txt"}))
    assert found.flows.select("source", "destination", "bytes").rows() == [(0, 1, 14600), (0, 2, 2920)]
    assert found.flows["start_s"].to_list() == pytest.approx([0, 0.25e-6], abs=1e-15)
    # Two packets of 1500 bytes in sequence over the slow link.
    assert found.flows["fct_s"][1] > 50e-6 + 2 * 12e-6
    middle = found.ports.row(by_predicate=(pl.col("from") == "left") & (pl.col("to") == "right"), named=True)
    assert (middle["tier"], middle["rate_bit_s"]) == ("switch to switch", 1e9)
    assert middle["bytes"] > 2920


DEFS = json_schema()["$defs"]
TABLES = {table["properties"]["kind"]["const"]: table for name, table in DEFS.items() if name in TRANSPORTS}


def value_of(field: dict[str, Any]) -> Any:
    """Return a valid value of a key."""
    if "examples" in field or "enum" in field:
        return (field.get("examples") or field["enum"])[0]
    kind = next(form["type"] for form in field.get("anyOf", [field]) if "type" in form)
    return {"integer": 8, "number": 0.5, "boolean": True}[kind]


MODEL = {it["table"]["kind"]: it["table"] for it in json.loads(_core.transports())}


def test_files_and_their_reference_have_all_transports_of_the_simulator() -> None:
    page = (ROOT / "docs/simulation-file.md").read_text()
    section = page.partition("\n## `transport`\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r'^\| `"(\S+)"`', section, re.MULTILINE)) == sorted(MODEL) == sorted(TABLES)


@pytest.mark.parametrize("kind", TABLES)
def test_files_and_the_simulator_have_the_same_constants_of_a_transport(tmp_path: Path, kind: str) -> None:
    properties = TABLES[kind]["properties"]
    without_effect = {"control"} if kind == "dctcp" else set()
    assert set(properties) == {key.removesuffix("_ps") for key in MODEL[kind]} - without_effect
    transport = {key: value_of(field) for key, field in properties.items() if key != "kind"} | {"kind": kind}
    found = simulate(write(tmp_path, transport=transport, traffic=GOOD["traffic"] | {"flows": 50}))
    assert found.flows["fct_s"].null_count() == 0
    assert found.flows["slowdown"].min() > 0.999  # type: ignore[operator]


def test_the_simulator_has_every_key_of_a_radio_cell(tmp_path: Path) -> None:
    radio = {key: value_of(field) for key, field in DEFS["Radio"]["properties"].items()}
    radio |= {"scheduler": {"kind": "proportional-fair", "window": "50 ms"}}
    for cqi in ("gauss-markov", {"kind": "gauss-markov", "low": 2, "deviation": 1.5, "memory": "20 ms"}):
        found = simulate(write(tmp_path, radio=radio | {"cqi": cqi}, traffic=GOOD["traffic"] | {"flows": 10}))
        assert found.flows["fct_s"].null_count() == 0


def test_a_path_may_be_longer_than_the_timeouts_of_a_transport(tmp_path: Path) -> None:
    topology = GOOD["topology"] | {"hop_delay": "10 ms", "buffer": "1 GB"}
    found = simulate(write(tmp_path, topology=topology, transport={"kind": "phost"}))
    assert found.flows["fct_s"].null_count() == 0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"topology": {"kind": "leaf-spin"}}, "topology.kind: 'leaf-spin' is not known: did you mean 'leaf-spine'?"),
        ({"topology": {"kind": "leaf-spine", "racks": 1, "hosts_per_rack": 1}}, "topology.racks: 1 hosts: write 2 to"),
        ({"topology": GRAPH | {"hosts": ["a", "a"]}}, "topology.hosts[1]: the name 'a' occurs twice"),
        ({"topology": GRAPH | {"switches": ["left"]}}, "topology.links[2].between: there is no host or switch 'right'"),
        ({"topology": GRAPH | {"links": GRAPH["links"][:2]}}, "topology.links: no path leads from 'client' to "),
        ({"traffic": {"flows": 1, "load": 0.5}}, 'traffic.sizes: missing: write sizes = "100 kB"'),
        ({"traffic": {"trace": "sizes.txt"}}, "sizes.txt:2: 3 columns: write five"),
        ({"traffic": {"trace": "flows.txt"}}, "flows.txt:2: host '6' is not a whole number from 0 to 5"),
        ({"traffic": {"trace": "users.txt"}}, "users.txt:1: a user in the sixth column: remove it, or add [radio]"),
        ({"traffic": {"trace": "users.txt"}, "radio": {"users": 2}}, "users.txt:2: user '2' is not a whole number"),
        ({"traffic": {"trace": "users.txt"}, "radio": {"host": "host-3"}}, "users.txt:1: users are behind host 3"),
        *(
            ({"transport": {"kind": kind}, "radio": {}}, f"transport.kind: {kind} repeats packets long before")
            for kind, mobile in MOBILE_USERS.items()
            if not mobile
        ),
        (
            {"transport": {"kind": "phost", "repeats_carry_data": False}, "radio": {}},
            "transport.repeats_carry_data: a repeated packet without data does not reach a user",
        ),
        ({"radio": {"cqi": {"kind": "trace", "files": ["zero.txt"]}}}, "zero.txt: no channel quality above 0"),
        ({"radio": [{}, {"hosts": "host-1"}]}, "radio[1].hosts: unknown key; did you mean 'host'?"),
        ({"radio": [{}, {}]}, "radio[1]: two radio tables with one central unit"),
        ({"radio": [{"users": 99_999}, {"host": "host-1"}]}, "radio[0].users: 100099 users of all radio tables"),
        ({"radio": [{}, {"host": "host-9"}]}, "radio[1].host: there is no host 'host-9'"),
        ({"radio": [{}, {"host": "host-1", "share": 0.5}]}, "radio[1].share: applies to all radio tables"),
        ({"radio": {"carrier": {"kind": "lte", "bandwidth": "7 MHz"}}}, "radio.carrier.bandwidth: '7 MHz' is not"),
        (
            {"radio": {"carrier": {"kind": "nr", "spacing": "15 kHz"}}},
            "radio: NR has no bandwidth of 100 MHz with a spacing of 15 kHz: write another pair",
        ),
        ({"radio": {"carrier": {"kind": "nr", "spacing": "120 kHz"}}}, "radio: a fronthaul delay of 100 µs is more"),
        ({"radio": {"dus": 0}}, "radio.dus: 0 is too small"),
        ({"radio": {"dus": 8, "users": 7}}, "radio: 8 distributed units for 7 users: write 1 to 7 units"),
        ({"radio": {"dus": [{"carier": "nr"}]}}, "radio.dus[0].carier: unknown key; did you mean 'carrier'?"),
        ({"radio": {"dual": True}}, "radio: dual connectivity needs two distributed units: write dus = 2"),
        ({"radio": {"through": ["host-0"]}}, "radio: the central unit is among the hosts of the core: remove it from"),
        ({"radio": {"through": ["hots-1"]}}, "radio.through: there is no host 'hots-1': did you mean 'host-1'?"),
        ({"radio": {"cqi": {"kind": "placed", "radius_m": 3}}}, "radio.cqi.radius_m: 3 is too small"),
        ({"radio": {"cqi": {"kind": "trace", "files": ["users.txt", "x"]}}}, "users.txt:1: '1460' is not a whole"),
        ({"traffic": {"trace": "sizes.txt", "flows": 3}}, "traffic.flows: the trace contains the flows"),
        (
            {"traffic": GOOD["traffic"] | {"pattern": {"kind": "incast", "senders": 6}}},
            "traffic.pattern.senders: 6 senders and a receiver, but there are 6 hosts",
        ),
        (
            {"traffic": GOOD["traffic"] | {"pattern": {"kind": "to-one", "host": "host-6", "share": 0.2}}},
            "traffic.pattern.host: there is no host 'host-6'",
        ),
        (
            {"traffic": GOOD["traffic"] | {"sizes": {"kind": "lognormal", "mean": "10 GB", "deviation": "1 B"}}},
            "traffic.sizes: nearly no flow is between 'least' and 'most'",
        ),
        (
            {"traffic": GOOD["traffic"] | {"sizes": {"kind": "discrete", "sizes": ["1 kB"], "shares": [0.5]}}},
            "traffic.sizes: the shares add up to 0.5",
        ),
    ],
)
def test_mistakes_are_reported_at_their_lines(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    path = write(tmp_path, **changes)
    (tmp_path / "flows.txt").write_text("0 1460 0 1 0\n1 1460 6 1 1\n")
    (tmp_path / "users.txt").write_text("0 1460 1 0 0 1\n1 1460 1 0 1 2\n")
    (tmp_path / "zero.txt").write_text("# none\n0 0\n")
    done = cellbed("simulate", path, "--out", tmp_path / "out", cwd=tmp_path, status=2)
    assert line in done.stderr
    place, _, _ = done.stderr.removeprefix("error: ").partition(": ")
    assert int(place.rpartition(":")[2]) > 1 or "topology.kind" in line
    assert not (tmp_path / "out").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("[links.mobile]\nup = 3 Mbit/s\n")
    done = cellbed("simulate", tmp_path / "odd.toml")
    assert (done.returncode, "not a simulation" in done.stderr) == (2, True)
    (tmp_path / "file").touch()
    done = cellbed("simulate", write(tmp_path), "--out", tmp_path / "file")
    assert (done.returncode, "file: not a folder; choose" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "pipe" else pytest.mark.slow) for kind in KINDS]
)
def test_a_hostile_file_is_one_error(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "FILE")
    path = write(tmp_path, traffic=GOOD["traffic"] | {"sizes": "FILE"})
    commands = [("simulate", each, "--dry-run") for each in ("FILE", path)]
    found = each_in_one_process(tmp_path, commands)
    assert [shown[0] for shown in found] == ["2", "2"], found


def test_files_of_others_are_opened_by_one_module() -> None:
    # The same command has just written these tables.
    assert set(opened(Path(cellbed_datacentre.__file__).parent)) == {"folder.py"}


@pytest.mark.parametrize("verb", ["run", "sweep", "simulate"])
def test_a_file_of_another_kind_is_one_hint(tmp_path: Path, verb: str) -> None:
    scenario = ROOT.parent / "scenarios" / "cell-lte.toml"
    path, line, kind, right = (
        (scenario, 12, "scenario", "run")
        if verb == "simulate"
        else (ROOT / "examples" / "leaf-spine.toml", 12, "simulation", "simulate")
    )
    wanted = {"run": "scenario", "simulate": "simulation"}.get(verb, verb)
    done = cellbed(verb, path, cwd=tmp_path)
    hint = f"a {kind}, not a {wanted}: run `cellbed {right} {path}`, or give a {wanted} file"
    assert (done.returncode, done.stderr) == (2, f"error: {path}:{line}: {hint}\n")


def test_dry_run_and_schema_describe_a_file(tmp_path: Path) -> None:
    done = cellbed("simulate", write(tmp_path), "--dry-run", "--seeds", 2, "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["hosts"], found["flows"], found["seeds"]) == (6, 300, [3, 4])
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    assert "300 flows" in cellbed("simulate", write(tmp_path), "--dry-run", cwd=tmp_path).stdout
    assert json.loads(cellbed("schema", "simulation").stdout) == json_schema()
    assert "--seeds" in completions("cellbed simulate --", tmp_path)
    page = (ROOT / "docs" / "simulation-file.md").read_text()
    for table in [json_schema(), *json_schema()["$defs"].values()]:
        for key, field in table["properties"].items():
            assert f"`{key}`" in page, key
            assert field.get("description"), key


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is missing: pip install cellbed[dev]")
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(tomllib.loads(path.read_text()))) == []
    data = tomllib.loads(path.read_text())
    data["traffic"] |= {"flows": 200} if "flows" in data["traffic"] else {}
    found = simulate(data, folder=path.parent)
    assert found.flows["fct_s"].null_count() == 0


def test_a_simulation_ends_at_its_limit_and_reports_what_did_not_finish(tmp_path: Path) -> None:
    whole = simulate(write(tmp_path))
    end = float(np.median(whole.flows["start_s"])) + 1e-9
    path = write(tmp_path, until=f"{end * 1e9:.0f} ns", sampling="500 ns")
    cut = simulate(path)
    assert cut.duration_s == pytest.approx(end, abs=1e-9)
    assert len(cut.flows) == pytest.approx(150, abs=2)
    before = whole.flows.filter(pl.col("start_s") + pl.col("fct_s") < cut.duration_s)
    assert cut.flows.drop_nulls("fct_s")["fct_s"].to_list() == before["fct_s"].to_list()
    done = cellbed("simulate", path, "--out", "out", "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert (summary["flows"], summary["not_started"]) == (300, 300 - len(cut.flows))
    assert summary["unfinished"] == 300 - len(before) > summary["not_started"]
    queues = pl.read_parquet(Path(summary["folder"], "queues.parquet"))
    assert queues.drop("seed").equals(cut.queues)
    assert queues.filter(tier="host to leaf")["time_s"].diff().drop_nulls().to_numpy() == pytest.approx(5e-7)
    longest = dict(queues.group_by("tier").agg(pl.col("most_bytes").max()).rows())
    counted = dict(cut.ports.group_by("tier").agg(pl.col("most_queue_bytes").max()).rows())
    assert 0 < longest["leaf to host"] <= counted["leaf to host"]
    assert longest.keys() == counted.keys()
    page = Path(summary["folder"], "report.html").read_text()
    assert "Longest queue of each kind of port, seed 3" in page
    assert f"did not finish, {summary['not_started']} of them did not start" in page
    for until in ("1 ns", "1 us"):  # no flow has finished
        done = cellbed("simulate", write(tmp_path, until=until), "--out", "out", cwd=tmp_path)
        assert (done.returncode, "300 flows (100 %) did not finish" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_simulation_leaves_nothing(how: signal.Signals, tmp_path: Path) -> None:
    path = write(tmp_path, traffic={"flows": 50_000_000, "load": 0.5, "sizes": "1 MB"})
    command = [sys.executable, "-m", "cellbed", "simulate", str(path), "--seeds", "4", "--jobs", "2", "--out", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not list((tmp_path / "out").glob(".small.*/parts")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(how)
        _, errors = process.communicate(timeout=200)
    assert "Traceback" not in errors
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert not (tmp_path / "out").exists()
    else:  # the next simulation of this name removes the remains
        command = [sys.executable, "-m", "cellbed", "simulate", str(write(tmp_path)), "--out", "out"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        assert [each.name.startswith("small-") for each in (tmp_path / "out").iterdir()] == [True]


def test_a_file_that_cannot_grow_is_one_line(tmp_path: Path) -> None:
    simulation = f"{sys.executable} -B -m cellbed simulate {write(tmp_path)} --out out"
    done = subprocess.run(f"ulimit -f 4; {simulation}", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if " flows, " not in line]  # progress, if the run is slow
    assert line == f"error: cannot write to {tmp_path}/out: File too large; choose another place with --out"
    assert not (tmp_path / "out").exists()


def test_progress_can_end_a_simulation(tmp_path: Path) -> None:
    def stop(finished: int) -> None:
        raise InterruptedError(finished)

    path = write(tmp_path, traffic={"flows": 50_000_000, "load": 0.5, "sizes": "1 MB"})
    with pytest.raises(InterruptedError):
        simulate(path, progress=stop)


# ---- sweeps


def test_a_sweep_of_simulations_compares_transports_on_the_same_flows(tmp_path: Path) -> None:
    write(tmp_path, traffic=GOOD["traffic"] | {"flows": 120})
    factors = {"transport": {"key": "transport.kind", "levels": ["phost", "tcp"]}}
    path = tmp_path / "sweep.toml"
    content = {"name": "s", "simulation": "small.toml", "repetitions": 2}
    path.write_text(tomli_w.dumps(content | {"factors": factors}))
    done = cellbed("sweep", path, "--virtual", cwd=tmp_path)
    assert (done.returncode, "in virtual time already" in done.stderr) == (2, True)
    done = cellbed("sweep", path, "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["complete"]) == (0, 4), done.stderr
    trials = pl.read_parquet(tmp_path / "sweeps" / "s" / "trials.parquet")
    of_all = trials.filter(app="all")
    assert of_all.select("transport", "repetition").n_unique() == 4
    assert of_all["seed"].n_unique() == 2
    assert (of_all["finished"].to_list(), of_all["unfinished"].to_list()) == ([120] * 4, [0] * 4)
    flows = [pl.read_parquet(tmp_path / "sweeps" / "s" / each / "flows.parquet") for each in of_all["folder"]]
    drawn = ("source", "destination", "bytes")
    assert len({str(each.select(drawn).rows()) for each in flows}) == 2
    again = cellbed("sweep", path, "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["ran"] == 0
    report = cellbed("sweep", "report", tmp_path / "sweeps" / "s", "--json", cwd=tmp_path, status=0)
    found = json.loads(report.stdout)["applications"]
    assert found[0]["name"] == "all"
    slowdown = next(each for each in found[0]["measures"] if each["measure"] == "slowdown_mean")
    assert all(point["value"] > 1 for point in slowdown["points"])
    page = (tmp_path / "sweeps" / "s" / "report.html").read_text()
    assert page.count("/report.html") >= 4


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, ':1: scenario: write one file of trials, scenario = "FILE" or simulation = "FILE"'),
        ({"simulation": "small.toml", "scenario": "x.toml"}, "scenario: write one file of trials"),
        ({"simulation": "small.toml", "vary_start": False}, ":3: vary_start: a simulation has no mobile link"),
        ({"simulation": "none.toml"}, ":2: simulation: none.toml: no such file"),
        (
            {"simulation": "small.toml", "factors": {"x": {"key": "topology.racks", "levels": [1, 0]}}},
            "factors.x.levels[1]: topology.racks: 0 is too small",
        ),
        (
            {"simulation": "small.toml", "factors": {"finished": {"key": "traffic.flows", "levels": [1]}}},
            "factors.finished: the dataset has a column of this name",
        ),
    ],
)
def test_mistakes_in_a_sweep_of_simulations_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    Path("sweep.toml").write_text(tomli_w.dumps({"name": "s"} | content))
    done = cellbed("sweep", "sweep.toml", "--dry-run", cwd=tmp_path)
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr


SIMULATION = 'name = "fabric"\nsimulation = "{}"\nrepetitions = 1\n[expect]\n{}\n'


def test_sweeps_of_simulations_have_the_measures_of_flows(tmp_path: Path) -> None:
    file, example = tmp_path / "fabric.toml", ROOT / "examples" / "leaf-spine.toml"
    for keys, text in (
        ('slowdown_p99 = "> 1"', ""),
        ('all.slowdown_p99 = "> 1"\n"≤ 10 KiB".fct_p99_s = "< 1 s"', ""),
        ('slowdown_p9 = "> 1"', "fabric.toml:5: expect.slowdown_p9: there is no measure 'slowdown_p9': did you mean"),
        ('p99_latency = "< 1 s"', "expect.p99_latency: there is no measure 'p99_latency'"),
        ('"≤ 10".finished = "> 1"', "there is no application"),
    ):
        file.write_text(SIMULATION.format(example, keys))
        done = cellbed("sweep", file, "--dry-run")
        assert (done.returncode, text in done.stderr) == (2 if text else 0, True), done.stderr


def test_the_schema_of_sweeps_has_simulations() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is missing: pip install cellbed[dev]")
    validator = jsonschema.Draft202012Validator(json.loads(cellbed("schema", "sweep").stdout))
    validator.validate({"name": "s", "simulation": "b"})
    assert not validator.is_valid({"name": "s", "scenario": "b", "simulation": "b"})


# ---- flow sizes and traces


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 1000)), min_size=1, max_size=20))
def test_a_distribution_is_read_as_it_is_written(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    sizes = np.cumsum([size for size, _ in rows])
    shares = np.cumsum([share for _, share in rows]) / sum(share for _, share in rows)
    path = tmp_path_factory.mktemp("sizes") / "sizes.txt"
    path.write_text("".join(f"{size}\t1  {share!r}\n" for size, share in zip(sizes, shares.tolist(), strict=True)))
    points = read_sizes(path, 1)
    assert points == list(zip(sizes.astype(float), shares.tolist(), strict=True))
    assert points[0][0] <= mean_bytes(points) <= points[-1][0]


@many
@given(
    text=words("1", "1460", "0.5", "1.0", "nan", "1e400", "-3", "\n", "\t", " 1 1 1\n", "0 1460 2 3 4.5\n", "#", "_")
)
def test_any_text_is_flows_or_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.txt"
    path.write_text(text)
    points = value_or_line(lambda: read_sizes(path))
    assert points is None or points[-1][1] == 1
    trace = value_or_line(lambda: read_trace(path))
    assert trace is None or trace[0][3] == 0


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | words("1 kB", "all-to-all", "phost", "graph")
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words("kind", "file", "cqi"), inner, max_size=3),
    max_leaves=5,
)


@many
@given(value=VALUES, key=st.sampled_from(["topology", "transport", "traffic", "seed", "radio", "name"]))
def test_any_value_is_a_simulation_or_an_error(tmp_path: Path, value: Any, key: str) -> None:
    (tmp_path / "sizes.txt").write_text(SIZES)
    value_or_sentence(lambda: simulate(GOOD | {key: value}, folder=tmp_path))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("1\n", ":1: 1 column: write three, separated by spaces"),
        ("1 1 1 1\n", ":1: 4 columns"),
        ("1 1 0.5\n0 1 1\n", ":2: size 0 is out of range"),
        ("1 1 0\n2 1 x\n", ":2: 'x' is not a number"),
        ("2 1 0.5\n1 1 1\n", ":2: size 1 is below the line before"),
        ("1 1 0.5\n2 1 0.4\n", ":2: cumulative share 0.4 is below"),
        ("1 1 0.5\n", "the last cumulative share is 0.5"),
        ("0 1 1\n", ":1: size 0 is out of range"),
        ("1,1,0\n", ":1: 1 column: write three, separated by spaces"),
        ("1 1 50\n3 1 100.5\n", ":2: cumulative share 100.5 is out of range"),
        ("1 1 50\n3 1 99.99999\n", ":2: the last cumulative share is 99.99999: write 1, or 100"),
        ("é 1 1\n", ":1: 'é' is not a number"),
    ],
)
def test_malformed_sizes_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text(text)
    with pytest.raises(FlowFileError) as refused:
        read_sizes(path)
    assert problem in str(refused.value)


def test_shares_may_be_percentages_and_lines_have_comments(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("\ufeff# größte: 3\r\n1 1 50 # half\r\n\r\n3 1 100", encoding="utf-8")
    assert read_sizes(path) == [(1460, 0.5), (4380, 1)]


def test_two_columns_are_bytes_and_a_curve_may_begin_at_the_origin(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("0 0\n10000 15\n20000 100\n")
    assert read_sizes(path) == [(1, 0), (10_000, 0.15), (20_000, 1)]
    assert read_sizes(path, 1460)[-1] == (29_200_000, 1)
    path.write_text("0 1 0\n2 1 1\n")
    assert read_sizes(path) == [(1, 0), (2920, 1)]


def test_lognormal_sizes_have_their_mean() -> None:
    points = lognormal(10_710, 25_032, 100, 2_000_000)
    assert points[0][1] == 0
    assert points[-1] == (pytest.approx(2_000_000), 1)
    assert mean_bytes(points) == pytest.approx(10_710, rel=0.01)
    with pytest.raises(ValueError, match="nearly no flow"):
        lognormal(1e3, 1, 1e6, 2e6)


def test_statistics_are_order_statistics_of_finished_flows() -> None:
    generator = np.random.default_rng(1)
    bytes_ = generator.integers(1, 30_000, 1000)
    slowdown = generator.pareto(2, 1000) + 1
    flows = pl.DataFrame({"bytes": bytes_, "fct_s": slowdown * 1e-6, "slowdown": slowdown})
    flows = flows.with_columns(pl.when(pl.col("bytes") != bytes_[0]).then("fct_s").alias("fct_s"))
    rows = {row["size"]: row for row in by_size(flows).to_dicts()}
    small = np.sort(slowdown[(bytes_ <= 10_240) & (bytes_ != bytes_[0])])
    assert rows["≤ 10 KiB"]["count"] == len(small)
    assert rows["≤ 10 KiB"]["slowdown_mean"] == pytest.approx(small.mean())
    assert rows["≤ 10 KiB"]["slowdown_p99"] == small[int(np.ceil(0.99 * len(small))) - 1]
    assert rows["> 1 MiB"] == {key: None for key in rows["> 1 MiB"]} | {"size": "> 1 MiB", "count": 0}
    assert by_size(flows.head(50)).row(0, named=True)["slowdown_p99"] is None


def test_a_simulation_describes_itself(tmp_path: Path) -> None:
    found = simulate(write(tmp_path))
    assert isinstance(found, Simulation)
    assert repr(found).startswith("Simulation(300 flows, ")
    with pytest.raises(ScenarioError, match=r"traffic\.load"):
        simulate(GOOD | {"traffic": {"flows": 3, "load": -1, "sizes": "1 kB"}}, folder=tmp_path)
    for seed in (-1, 2**63, 1.5):
        with pytest.raises(SimulationError, match=r"seed .*: write a whole number"):
            simulate(GOOD, seed=seed, folder=tmp_path)  # type: ignore[arg-type]
    assert simulate(GOOD, seed=np.int64(3), folder=tmp_path).flows.equals(found.flows)  # type: ignore[arg-type]
    assert read_simulation(write(tmp_path)).bytes == pytest.approx(300 * 1460 * (0.5 + 0.6 + 10.3))

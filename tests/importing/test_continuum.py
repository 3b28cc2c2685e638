"""Scenarios from configurations of Continuum: what is mapped, what is listed, what is refused."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from any_text import ODD_TEXT, many, value_or_line
from cellbed.importing import Choices, ImportedFileError, Written, read_continuum, save
from cellbed.importing.documents import documents
from in_process import cellbed
from run_commands import run

EDGE = """\
# Photographs to two workers at the edge
[infrastructure]
provider = qemu
cloud_nodes = 1
cloud_cores = 4
edge_nodes = 2
edge_cores = 2
edge_memory = 4
edge_quota = 0.75
endpoint_nodes = 4
endpoint_cores = 1
endpoint_memory = 1
endpoint_quota = 0.5
cpu_pin = True
network_emulation = True
wireless_network_preset = 5g
edge_latency_avg = 4
edge_endpoint_latency_avg = 12   # not the preset's
netperf = False

[benchmark]
resource_manager = kubeedge
application = image_classification
application_worker_memory = 1.5
applications_per_worker = 2
frequency = 5
duration = 90
"""
EXPERIMENT = """\
schema_version: 1
kind: ContinuumExperiment
use: {environment: here, software: there}
run: {targets: [infrastructure, software, application], dry_run: false}
infrastructure:
  clusters:
    - id: far
      tier: cloud
      resources: {vms: {count: 2, spec: {cores: 4, memory_gb: 4, cpu_quota: 0.5}}}
    - {id: near, tier: edge, resources: {vms: {count: 1, spec: {cores: 2, memory_gb: 2}}}}
    - {id: phones, tier: endpoint, resources: {vms: {count: 2, spec: {cores: 1, memory_gb: 1}}}}
    - {id: tablets, tier: endpoint, resources: {vms: {count: 3}}}
  network:
    emulation: true
    wireless_preset: 4g
    overrides: {cloud_endpoint_throughput: 5, cloud_edge_latency_avg: 20}
benchmark:
  pipeline:
    - id: translate
      type: text_translation
      assign_to: {match: {cluster: far}}
      tags: {benchmark.role: translate}
      config: {frequency: 0.5, duration: 60, application_worker_cpu: 1.5, application_endpoint_memory: 0.5}
"""
SOFTWARE = """\
schema_version: 1
kind: ContinuumSoftware
software:
  modules:
    - {id: main, type: kubernetes, assign_to: {match: {cluster: far}}, config: {kube_version: v1.27.0}}
    - {id: phones, type: endpoint_runtime, assign_to: {match: {cluster: phones}}, config: {}}
"""
LAYERS = """\
base_path: /somewhere
layer:
  - name: cloud
    infrastructure: {qemu: {nodes: 2, cores: 4, memory: 4, quota: 0.5}}
    software: [{name: kubernetes}]
  - name: endpoint
    infrastructure: {qemu: {nodes: 1, cores: 2, memory: 2}}
    network:
      preset: 4G
      link: [{destination: cloud, latency_avg: 20, latency_var: 0, throughput: 3}]
benchmark:
  - application: image_classifcation
    software: kubernetes
    frequency: 5
    layer: [{name: cloud, cores: 1, memory: 1}, {name: endpoint, cores: 0.5}]
"""
LISTING = """\
[compute]
   cloud
        count=1
        cpu_count=2
        ram=2G
   edge
        count=1
        cpu_count=2
        ram=1G
   endpoint
        count=1
        cpu_count=1
        ram=512M
[network]
    core
        edge_deployment: base
        cloud_deployment: regional
   mobile
        up_trace = traces/a.up
        down_trace = traces/A.down
"""
FORMATS = {"edge.cfg": EDGE, "experiment.yaml": EXPERIMENT, "layers.yml": LAYERS, "listing.cfg": LISTING}


def imported(folder: Path, *files: tuple[str, str], **choices: Any) -> tuple[dict[str, Any], Written]:
    """The scenario of files with these names and texts, and the notes."""
    for name, text in files:
        (folder / name).write_text(text)
    found = read_continuum([folder / name for name, _ in files], Choices(out=folder / "out.toml", **choices), "test")
    save(found, folder / "out.toml")
    return tomllib.loads(found.text), found


def notes(found: Written, level: str) -> dict[str, str]:
    return {note.key: note.text for note in found.notes if note.level == level}


def test_an_ini_file_becomes_nodes_links_and_an_application(tmp_path: Path) -> None:
    made, found = imported(tmp_path, ("edge.cfg", EDGE))
    assert made == {
        "name": "edge",
        "duration": "90 s",
        "nodes": {
            "endpoint": {"class": "endpoint", "count": 4, "cpus": 0.5, "memory": "1 GiB"},
            "edge": {"class": "edge", "count": 2, "cpus": 1.5, "memory": "3 GiB", "site": "edge"},
        },
        "links": {
            "mobile": {
                "up": "29.66 Mbit/s",
                "down": "29.66 Mbit/s",
                "base_delay": {"kind": "normal", "mean": "10 ms", "deviation": "2.5 ms", "reorder": True},
                "queue": {"kind": "droptail", "limit": "1000 packets"},
            }
        },
        # Two nodes are 4 ms apart, and each is 10 + 0 + 2 ms from an endpoint.
        "sites": {"edge": {"core": "0 ms", "delay": "2 ms", "rate": "1000 Mbit/s"}},
        "apps": {
            "benchmark": {
                "kind": "image-classification", "client": "endpoint", "server": "edge", "rate": "5 /s", "workers": 2,
            },
        },
    }  # fmt: skip
    assert set(notes(found, "not mapped")) == {
        "infrastructure.provider", "infrastructure.cpu_pin", "benchmark.resource_manager",
    }  # fmt: skip
    assert set(notes(found, "differs")) == {"benchmark.resource_manager"}  # its control plane is no node
    assert set(notes(found, "not needed")) == {"infrastructure.cloud_cores", "infrastructure.netperf"}
    assert {EDGE.splitlines()[note.place.line - 1].split(" =")[0] for note in found.notes} == {
        note.key.partition(".")[2] for note in found.notes
    }


def test_an_experiment_and_its_profile_become_a_scenario(tmp_path: Path) -> None:
    made, found = imported(tmp_path, ("experiment.yaml", EXPERIMENT), ("software.yaml", SOFTWARE))
    assert made["nodes"] == {
        "endpoint": {"class": "endpoint", "count": 5, "cpus": 1.0, "memory": "512 MiB"},
        "edge": {"class": "edge", "cpus": 2.0, "memory": "2 GiB"},
        "cloud": {"class": "cloud", "cpus": 1.5, "memory": "4 GiB"},  # the other node was the control plane
    }
    assert made["links"]["core"] == {
        "edge": "0 ms",
        "cloud": {"kind": "delay", "delay": "20 ms", "rate": "5 Mbit/s"},
    }
    assert made["links"]["mobile"]["up"] == "7.21 Mbit/s"
    assert made["links"]["mobile"]["base_delay"]["deviation"] == "5 ms"
    assert made["apps"]["benchmark"] == {
        "kind": "translation", "client": "endpoint", "server": "cloud", "rate": "0.5 /s",
    }  # fmt: skip
    differs = notes(found, "differs")
    overrides = "infrastructure.network.overrides.cloud_edge_latency_avg"
    assert differs[overrides] == "between endpoint and cloud: 27.5 ms, not 45 ms"
    assert differs["infrastructure.network.wireless_preset"].startswith("2.5 ms to edge")
    assert {"use.environment", "software.modules.0.config.kube_version"} <= set(notes(found, "not mapped"))


def test_layers_become_a_scenario(tmp_path: Path) -> None:
    made, found = imported(tmp_path, ("layers.yml", LAYERS), duration="7 s", up="2 Mbit/s")
    assert made["nodes"] == {
        "endpoint": {"class": "endpoint", "cpus": 0.5, "memory": "2 GiB"},
        "cloud": {"class": "cloud", "cpus": 1.0, "memory": "1 GiB"},
    }
    mobile = made["links"]["mobile"]
    assert (mobile["up"], mobile["down"], mobile["base_delay"]) == ("2 Mbit/s", "3 Mbit/s", "20 ms")
    assert made["apps"]["benchmark"]["kind"] == "image-classification"  # in spite of the typing error
    assert made["duration"] == "7 s"
    assert set(notes(found, "not needed")) == {"base_path"}


def test_the_structure_in_the_thesis_becomes_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for name in ("a.up", "A.down"):
        (tmp_path / "traces" / name).write_text("1\n2\n3\n")
    made, _ = imported(tmp_path, ("listing.cfg", LISTING))
    assert made["nodes"]["endpoint"] == {"class": "endpoint", "cpus": 1.0, "memory": "512 MiB"}
    assert made["nodes"]["cloud"] == {"class": "cloud", "cpus": 2.0, "memory": "2 GiB"}
    assert made["links"] == {
        "mobile": {
            "up": "traces/a.up", "down": "traces/A.down", "base_delay": "0 ms", "queue": {"kind": "infinite"},
        },
        "core": {"edge": "base-edge", "cloud": "eu-west-3"},
    }  # fmt: skip
    assert "apps" not in made


def test_a_trace_that_is_not_there_is_listed(tmp_path: Path) -> None:
    made, found = imported(tmp_path, ("listing.cfg", LISTING))
    assert made["links"]["mobile"]["up"] == "5g-midband.up"
    assert "choose another by --up" in notes(found, "not mapped")["network.mobile.up_trace"]


@pytest.mark.parametrize(
    ("preset", "trace", "location", "place"),
    [
        ("lte_nl_kpn_mahimahi", "lte-suburban.up", "eu_central_1", "eu-central-1"),
        ("5g_obstacled_nl_kpn_mahimahi", "5g-midband.up", "eu_west_3", "eu-west-3"),
        ("5g_nl_kpn_mahimahi", "5g-midband.up", "us_east_1", "us-east-1"),
        ("4g_us_verizon_mahimahi", "lte-suburban.up", "base_edge", "base-edge"),
        ("evdo_us_verizon_mahimahi", "lte-suburban.up", "the_moon", "0 ms"),
    ],
)
def test_names_of_presets_are_known(preset: str, trace: str, location: str, place: str, tmp_path: Path) -> None:
    text = "[infrastructure]\ncloud_nodes=1\nendpoint_nodes=1\nnetwork_emulation=True\n"
    text += f"wireless_network_preset={preset}\ncloud_location={location}\n"
    made, found = imported(tmp_path, ("a.cfg", text))
    assert made["links"]["mobile"] == {
        "up": trace, "down": trace.replace("up", "down"), "base_delay": "0 ms", "queue": {"kind": "infinite"},
    }  # fmt: skip
    assert made["links"]["core"] == {"cloud": place}
    assert "`cellbed traces fetch" in notes(found, "differs")["infrastructure.wireless_network_preset"]


def test_without_emulation_links_neither_delay_nor_limit(tmp_path: Path) -> None:
    made, found = imported(tmp_path, ("a.cfg", EDGE.replace("network_emulation = True", "network_emulation = False")))
    assert made["links"] == {
        "mobile": {"up": "unlimited", "down": "unlimited", "base_delay": "0 s"}, "core": {"edge": "0 s"},
    }  # fmt: skip
    assert notes(found, "not needed")["infrastructure.wireless_network_preset"] == "network emulation is off"


@pytest.mark.parametrize(
    ("given", "edge", "cloud", "text"),
    [
        ({}, 7.5, 45, ""),
        ({"cloud_edge": 40}, 7.5, 45, ""),
        ({"cloud_edge": 20}, 7.5, 27.5, "between endpoint and cloud: 27.5 ms, not 45 ms"),
        ({"cloud_edge": 90}, 7.5, 82.5, "between endpoint and cloud: 82.5 ms, not 45 ms"),
        ({"cloud_edge": 20, "cloud_endpoint": 45}, 25, 45, "between endpoint and edge: 25 ms, not 7.5 ms"),
        ({"cloud_edge": 20, "cloud_endpoint": 45, "edge_endpoint": 9}, 9, 45, "36 ms between edge and cloud"),
        ({"cloud_edge": 20, "edge": 4}, 7.5, 23.5, "between endpoint and cloud: 23.5 ms, not 45 ms"),
    ],
)
def test_a_given_delay_between_edge_and_cloud_is_kept(
    given: dict[str, float], edge: float, cloud: float, text: str, tmp_path: Path
) -> None:
    lines = [f"{name}_latency_avg = {value}\n" for name, value in given.items()]
    nodes = f"cloud_nodes = 1\nendpoint_nodes = 1\nedge_nodes = {2 if 'edge' in given else 1}\n"
    made, found = imported(tmp_path, ("a.cfg", f"[infrastructure]\n{nodes}network_emulation = True\n{''.join(lines)}"))
    mobile = made["links"]["mobile"]["base_delay"]["mean"]
    core = {"edge": "0 ms", **made["links"]["core"]}
    port = made.get("sites", {}).get("edge", {"core": core["edge"], "delay": "0 ms"})
    to_edge = sum(float(part.split()[0]) for part in (port["core"], port["delay"]))
    delays = [float(each.split()[0]) for each in (mobile, core["cloud"])]
    assert delays[0] + to_edge == pytest.approx(edge)
    assert sum(delays) == pytest.approx(cloud)
    if "cloud_edge" in given and "edge_endpoint" not in given:
        assert to_edge + delays[1] == pytest.approx(given["cloud_edge"])
    differs = [note for note in found.notes if note.level == "differs" and "latency_avg" in note.key]
    assert (differs[0].text if differs else "").startswith(text)
    assert {note.key.partition(".")[2] for note in found.notes} <= {
        "network_emulation", *(f"{name}_latency_avg" for name in given),
    }  # fmt: skip


def test_sums_of_delays_and_high_rates_are_quantities(tmp_path: Path) -> None:
    lines = ["cloud_edge_latency_avg=0.3", "edge_endpoint_latency_avg=0.1", "cloud_endpoint_latency_avg=0.2",
             "edge_endpoint_throughput=1000000", "edge_endpoint_latency_var=0.00001"]  # fmt: skip
    text = "[infrastructure]\nedge_nodes=1\ncloud_nodes=1\nendpoint_nodes=1\nnetwork_emulation=True\n"
    made, _ = imported(tmp_path, ("a.cfg", text + "\n".join(lines)))
    assert (made["links"]["mobile"]["up"], made["links"]["mobile"]["base_delay"]) == ("1000000 Mbit/s", "0 ms")
    assert made["links"]["core"]["edge"] == "0.1 ms"


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from mappings(each)


@pytest.mark.parametrize("name", FORMATS)
def test_no_key_is_dropped_silently(name: str, tmp_path: Path) -> None:
    texts = []
    if name.endswith(".cfg"):
        lines = FORMATS[name].splitlines(keepends=True)
        heads = [number for number, line in enumerate(lines, 1) if line.startswith("[") or line.strip().isalpha()]
        texts = ["".join([*lines[:number], "surprise = 1\n", *lines[number:]]) for number in heads]
    else:
        (document,) = documents(FORMATS[name], name)
        for mapping in mappings(document):
            mapping["surprise"] = 1
            texts.append(json.dumps(document))
            del mapping["surprise"]
    for text in texts:
        _, found = imported(tmp_path, (name, text))
        assert any(note.key.rpartition(".")[2] == "surprise" for note in found.notes), text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (
            "edge_quota = 0.75",
            "edge_quota = most",
            "edge.cfg:9: differs: infrastructure.edge_quota: 'most' is not a numb",
        ),
        (
            "frequency = 5",
            "frequency = 1e9",
            "edge.cfg:26: differs: benchmark.frequency: '1e9' is not a number: 1 is us",
        ),
        ("edge_memory = 4", "edge_memory = 99999", "edge.cfg:8: differs: infrastructure.edge_memory: a scenario has"),
        ("= 5g", "= 6g", "edge.cfg:16: differs: infrastructure.wireless_network_preset: unknown preset"),
        ("= image_classification", "= doom", "edge.cfg:23: not mapped: benchmark.application: no kind of application"),
        ("netperf = False", "what is this", "edge.cfg:19: not mapped: infrastructure.what is this"),
        (
            "netperf = False",
            "edge_cores = 3",
            "edge.cfg:19: differs: infrastructure.edge_cores: line 7 has another val",
        ),
        ("netperf = False", "x" * 200 + "=1", "edge.cfg:19: not mapped: infrastructure." + "x" * 80 + ": a scenario"),
    ],
)
def test_an_odd_value_does_not_refuse_the_file(before: str, after: str, text: str, tmp_path: Path) -> None:
    _, found = imported(tmp_path, ("edge.cfg", EDGE.replace(before, after)))
    assert any(str(note).startswith(f"{tmp_path}/{text}") for note in found.notes), found.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.cfg:1: no nodes"),
        ("[infrastructure]\nedge_nodes = two\n", "a.cfg:2: infrastructure.edge_nodes: 'two' is not a number of nodes"),
        ("[infrastructure]\nedge_nodes =\n", "a.cfg:2: infrastructure.edge_nodes: '' is not a number of nodes"),
        ("[infrastructure]\nedge_nodes = 0\n", ":2: no nodes: write cloud_nodes"),
        ("- 1", "a.cfg:1: not a configuration of Continuum"),
        ("a: [", "a.cfg:2: not YAML"),
        ("[a]\n" + "b=1\n" * 2001, "a.cfg:2002: more than 2000 settings"),
    ],
)
def test_a_file_without_nodes_is_one_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportedFileError, match=message):
        imported(tmp_path, ("a.cfg", text))


TOKENS = st.sampled_from(
    ["[", "]", "=", ":", "#", ";", "\n", "\t", "  ", "{}", "[]", "null", "-1", "1e9", "''", "*a", "&a ", "0x",
     "99999999999", "cloud", "[compute]\n", "edge_nodes = ", "- name: cloud\n", "²", "1 G"]
)  # fmt: skip


@many
@given(
    name=st.sampled_from(sorted(FORMATS)),
    edits=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 30), TOKENS | ODD_TEXT), max_size=3) | ODD_TEXT,
)
def test_any_text_is_a_scenario_or_one_error(name: str, edits: Any, tmp_path: Path) -> None:
    text = edits if isinstance(edits, str) else FORMATS[name]
    for at, length, token in edits if isinstance(edits, list) else []:
        text = text[: at % len(text)] + token + text[at % len(text) + length :]
    (tmp_path / name).write_text(text)
    made = value_or_line(lambda: read_continuum([tmp_path / name], Choices(), "test"))
    if made is not None:
        save(made, None)


def test_the_command_prints_a_scenario_that_runs(tmp_path: Path) -> None:
    (tmp_path / "edge.cfg").write_text(EDGE)
    done = cellbed("import", "continuum", "edge.cfg", "--duration", "2 s", "-o", "edge.toml", cwd=tmp_path, status=0)
    assert done.stdout == "edge.toml: 2 node groups; settings that are not mapped or differ: 4\n"
    assert "edge.cfg:14: not mapped: infrastructure.cpu_pin" in done.stderr
    assert "benchmark: image-classification" in cellbed("run", "edge.toml", "--dry-run", cwd=tmp_path, status=0).stdout
    cellbed("import", "continuum", "edge.cfg", "--strict", cwd=tmp_path, status=1)
    for option in ("--place edge=cloud", "--load edge", "--map a=b", "--profile x", "--build"):
        refused = cellbed("import", "continuum", "edge.cfg", *option.split(), cwd=tmp_path, status=2).stderr
        assert refused.startswith(f"error: {option.split()[0]}: configurations of Continuum have none")


@pytest.mark.needs_tun
def test_an_empty_benchmark_sleeps_on_each_node(tmp_path: Path) -> None:
    text = EDGE.replace("image_classification", "empty").replace("duration = 90", "sleep_time = 1")
    made, found = imported(tmp_path, ("edge.cfg", text), duration="2 s")
    assert made["apps"]["benchmark"] == {"kind": "program", "client": {"on": "edge", "command": "sleep 1"}}
    assert "is not measured" in notes(found, "differs")["benchmark.application"]
    run("run", tmp_path / "out.toml", "--out", tmp_path / "runs", "--no-limits", status=0)

"""The registry of application kinds: what a new kind gets by its line in it, and what the reference shows."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest

from cellbed.runformat.description import Description
from cellbed.runformat.records import REQUEST, columns_of
from cellbed.scenario import nodes
from cellbed.scenario.applications import tables
from cellbed.support.extensions import entries, scan
from cellbed.testbed import testbed
from cellbed.workloads.registry import virtual_model, workload
from cellbed.workloads.web import kind as web
from cellbed_node.call.load import Frame
from cellbed_node.http.connection import Exchange
from cellbed_node.ledger import Request
from cellbed_node.offloading.endpoint import OffloadedRequest
from cellbed_node.transfers import quic, udp
from cellbed_node.web.loading import PageLoad, PageObject
from distributions import environment, install
from scenario_text import recorded_scenario

ROOT = Path(__file__).parents[2]
BACKENDS = get_args(get_args(nodes.AnyBackend)[0])
MAIN = "from cellbed.cli.main import main\nmain()\n"


@pytest.fixture
def scanned_anew() -> Iterator[None]:
    """Distributions are looked for anew, as in a process of its own."""
    for each in (entries, scan):
        each.cache_clear()
    yield
    for each in (entries, scan):
        each.cache_clear()


def with_echo(folder: Path) -> dict[str, str]:
    """Return the environment of a process that has the kind ``echo`` installed."""
    return environment(
        install(folder, "[cellbed.applications]\necho = example_kind.kind:Echo\n"), ROOT / "tests/support"
    )


def test_a_registered_kind_is_read_predicted_and_reported(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    echo = '[apps.echo]\nkind = "echo"\nserver = "edge"\nrate = "40 /s"\ntimeout = "1 s"\n'
    lossy = recorded_scenario(2, duration="5 s").replace("base_delay", 'loss = "5 %"\nbase_delay')
    scenario.write_text(lossy + echo)
    command = [sys.executable, "-c", MAIN, "run", scenario, "--virtual", "--out", tmp_path / "runs"]
    done = subprocess.run(command, env=with_echo(tmp_path / "site"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    requests = pl.read_parquet(run / "requests.parquet")
    assert "Queue and service" in (run / "report.html").read_text()
    assert len(requests) == 400
    answered = requests.filter(status="ok")
    assert 300 < len(answered) < 400
    # The packets of each datagram are found, also behind lost ones.
    assert (answered["residual_s"].abs() < 1e-9).all()
    assert (answered["part_uplink_delay"] >= 0.01).all()
    assert answered["part_uplink_queue"].max() > answered["part_uplink_queue"].min()  # type: ignore[operator]


def test_a_generator_that_never_stops_writing_ends_a_prediction(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    echo = '[apps.echo]\nkind = "echo"\nserver = "edge"\nrate = "40 /s"\n'
    scenario.write_text(recorded_scenario(duration="1 s") + echo)
    always = "from example_kind import load\nload.EchoLoad.writers = property(lambda self: self.readers)\n"
    command = [sys.executable, "-c", always + MAIN, "run", scenario, "--virtual", "--out", tmp_path / "runs"]
    done = subprocess.run(command, env=with_echo(tmp_path / "site"), capture_output=True, text=True, check=False)
    assert (done.returncode, "`writers` of its load generator" in done.stderr) == (2, True), done.stderr


def test_the_reference_lists_every_kind() -> None:
    page = (ROOT / "docs" / "reference" / "scenario" / "apps.md").read_text()
    for kind, table in tables().items():
        model = virtual_model(kind)
        predicted = "no" if model is None else ", ".join(f"`{name}`" for name in model.covers) or "yes"
        assert f"`{kind}`](#{_heading(kind)}) | {table.__doc__} | {predicted} |\n" in page
        assert get_args(table.model_fields["kind"].annotation) == (kind,)


@pytest.mark.usefixtures("scanned_anew")
def test_a_missing_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "[cellbed.applications]\necho-twice = example_kind.kind:EchoTwice\n"
    monkeypatch.syspath_prepend(install(tmp_path, entry))
    with pytest.raises(ImportError, match=r"example_kind\.kind:EchoTwice, the table of kind 'echo-twice': module"):
        tables()


def test_each_kind_of_node_has_its_back_end() -> None:
    assert testbed.KINDS.keys() == {get_args(kind.model_fields["kind"].annotation)[0] for kind in BACKENDS}


def _heading(kind: str) -> str:
    return {"program": "programs"}.get(kind, kind)


def described(kind: str, **table: Any) -> Description:
    return workload(kind).describe(table)


@pytest.mark.parametrize(
    ("description", "record"),
    [
        (described("http", url="https://edge/", version="2", journeys={"a": {}}), Exchange),
        (described("websocket", url="wss://edge/"), Exchange),
        (described("call"), Frame),
        (described("transfers", protocol="quic"), quic.Transfer),
        (described("transfers", protocol="udp"), udp.Transfer),
        (described("web", url="https://edge/"), PageLoad),
        (web.describe_objects(described("web"), {"url": "https://edge/"}), PageObject),
        (described("plates"), OffloadedRequest),
    ],
)
def test_declared_columns_are_in_the_record(description: Description, record: type[Request]) -> None:
    assert description.client_columns.items() <= columns_of(record).items()
    assert not description.client_columns.keys() & REQUEST.keys()

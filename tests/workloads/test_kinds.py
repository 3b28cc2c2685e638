"""The kinds of application: what a new one gets by its line in the registry, what the reference shows, and errors of
their tables."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from cellbed.scenario.applications import tables
from cellbed.testbed import testbed
from cellbed.workloads.registry import virtual_model
from cellbed.workloads.video.table import LIBRARIES
from cellbed_node.browsing import PROGRAMS
from distributions import environment, install
from in_process import cellbed
from scenario_text import recorded_scenario, refusal, scenario_head
from site_examples import har

ROOT = Path(__file__).parents[2]
MAIN = "from cellbed.cli.main import main\nmain()\n"


def with_echo(folder: Path, table: str = "Echo") -> dict[str, str]:
    """Return the environment of a process that has the kind ``echo`` installed."""
    entry = f"[cellbed.applications]\necho = example_kind.kind:{table}\n"
    return environment(install(folder, entry), ROOT / "tests/support")


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
        heading = "programs" if kind == "program" else kind
        assert f"`{kind}`](#{heading}) | {table.__doc__} | {predicted} |\n" in page
        assert get_args(table.model_fields["kind"].annotation) == (kind,)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    reading = [sys.executable, "-c", "from cellbed.scenario.applications import tables; tables()"]
    done = subprocess.run(reading, env=with_echo(tmp_path, "EchoTwice"), capture_output=True, text=True, check=False)
    assert "ImportError: example_kind.kind:EchoTwice, the table of kind 'echo': module" in done.stderr


HEAD = scenario_head({"endpoint": {"count": 2, "cpus": 1.0}, "edge": {"cpus": 1.0}}, duration="6 s")
LOAD = 'server = "edge"\nrate = "3 /s"\n'
HOST = f'{LOAD}url = "http://x"\n'
MISFITS = {  # keys, and words of the error
    "http": [
        (LOAD + 'url = "ftp://x/"', "url: ; not the URL of a request"),
        (LOAD + 'url = "http://x/\\u00e9"', "url: ; percent-encoded"),
        (LOAD + 'url = "http://{server.adress}/"', "url: ; unknown name ; server.address"),
        (LOAD + 'url = "http://x/{"', "url: ; single '{' ; '{{'"),
        (LOAD + 'url = "http://x/"\nmethod = "CONNECT"', "method: ; tunnel"),
        (LOAD + 'url = "http://x/"\nbody = "a"\nbody_size = "1 KiB"', "body_size: ; 'body'"),
        (LOAD + 'url = "http://x/"\nheaders = { Content-Length = "3" }', "headers ; set by cellbed"),
        (LOAD + 'url = "http://x/"\nheaders = { "a b" = "3" }', 'headers."a b": ; cannot be a name'),
        (HOST + 'journey = [{ get = "/", post = "/" }]', "journey ; needs one of get, post"),
        (HOST + 'journey = [{ get = "/" }, { get = "/{item}" }]', "journey[1].get: ; unknown name '{item}'"),
        (HOST + 'journey = [{ get = "/", take = { a = "$.x[" } }]', "journey[0].take ; not a place in JSON"),
        (HOST + 'journey = [{ get = "/", take = { a = "(" } }]', "journey[0].take ; not a regular expression"),
        (HOST + 'journey = [{ get = "/", take = { seed = "a" } }]', "journey[0].take ; another meaning"),
        (HOST + 'journey = [{ get = "/", think = ["2 s", "1 s"] }]', "journey[0] ; exchange them"),
        (HOST + 'journey = [{ get = "/", headers = { Host = "a" } }]', "headers ; 'headers' of the application"),
        (HOST + 'journey = [{ get = "/" }]\nmethod = "PUT"', "method: ; have their own"),
        (HOST + 'journey = [{ get = "/" }]\n[apps.x.journeys.a]\nsteps = [{ get = "/" }]', "journey: ; 'journeys'"),
        (LOAD + 'url = "http://x/shop"\njourney = [{ get = "/" }]', "url: ; steps of a journey have the path"),
        (HOST + 'grpc = "Greeter"', "grpc: "),
        (HOST + 'grpc = "a/B"\nversion = "1.1"', "version: ; HTTP/2"),
        (HOST + 'grpc = "a/B"\nmethod = "PUT"', "method: ; 'grpc' determines it"),
        (HOST + 'grpc = "a/B"\nbody_hex = "0g"', "body_hex: "),
        (HOST + "messages = 2", "messages: ; 'grpc'"),
    ],
    "websocket": [
        (LOAD + 'url = "http://x/"', "url: ; ws://{server.address}:8080/path"),
        (LOAD + 'url = "ws://x/"\nmessage = "hello"', "message: ; write it in the message"),
    ],
    "call": [
        ("", "write the node group of the relay"),
        ('server = "endpoint"', "an end of the call is there"),
        ('server = "edge"\narrivals = "closed"', "a camera has a frame rate"),
        ('server = "edge"\nrate = "90 /s"', "write at most '60 /s'"),
        ('server = "edge"\npeer = "edge"', "write another group, with as many nodes as 'endpoint', 2"),
        ('server = "edge"\nwidth = 321', "write an even number"),
        ('server = "edge"\nbalance = "connection"', "a call keeps its relay"),
    ],
    "transfers": [
        ('server = "edge"\nrate = "1 /s"', "write sizes here or in 'upload'"),
        ('download = ["1 MB"]\nrate = "1 /s"', "write the node group at the other end"),
        ('server = "edge"\ndownload = ["0 B"]\nrate = "1 /s"', "write at least '1 B'"),
        ('server = "edge"\ndownload = ["1 GB"]\nrate = "1 /s"', "write at most '256 MiB'"),
        ('server = "edge"\nupload = ["1 MB"]\nrate = "1 /s"\nprotocol = "udp"', "write bit_rate = "),
        ('server = "edge"\nupload = ["1 MB"]\nrate = "1 /s"\nbit_rate = "1 Mbit/s"', 'write protocol = "udp"'),
        ('server = "edge"\nupload = ["1 MB"]', 'write rate = "8 /s"'),
    ],
    "video": [
        ("", "write the node group that serves the video"),
        ('server = "edge"\nabr = "bolla"', "did you mean 'bola'"),
        ('server = "edge"\nprotocol = "hls"\nabr = "bola"', "a rule of dash.js"),
        ('server = "edge"\nrenditions = ["720p", "720p"]', "there twice"),
        ('server = "edge"\nmanifest = "x.mpd"', "write a path relative to the scenario file"),
        ('server = "edge"\nmanifest = "there.m3u8"', 'protocol = "hls"'),
        ('server = "edge"\nmanifest = "there.m3u8"\nprotocol = "hls"\nlength = "8 s"', "the manifest has them"),
        ('server = "edge"\nversion = "3"', 'write software = "caddy"'),
    ],
    "web": [
        (LOAD, "write a page that is generated"),
        ('rate = "1 /s"\npage = "amazon"', "write the node group that serves the page"),
        (LOAD + 'page = "amazon"\nurl = "https://x/"', "'page' is given, too"),
        (LOAD + 'url = "http://{server.address}/"', "browsers use it with TLS alone"),
        (LOAD + 'root = "missing"', "no file or folder 'missing'"),
        (LOAD + 'root = "."', "no index.html"),
        (LOAD + 'site = "shop.warc.gz"\nurl = "https://www.shop.test/"', "has no reply of"),
        (LOAD + 'site = "shop.warc.gz"\norigins = { "cdn.shop.tst" = "edge" }', "did you mean 'cdn.shop.test'"),
        (LOAD + 'site = "shop.warc.gz"\norigins = { "cdn.*" = "cloud" }', "'cloud' has no nodes"),
        (LOAD + 'site = "shop.warc.gz"\nroot = "."', "remove one of the two"),
        ('rate = "1 /s"\nsite = "shop.warc.gz"', "write the node group that serves the page"),
        (LOAD + 'page = "google"\norigins = { "cdn.*" = "edge" }', "belong to a recorded site"),
        (LOAD + 'site = "cut.warc.gz"', "truncated"),
        (LOAD + 'site = "none.warc.gz"', "none.warc.gz"),
        (LOAD + 'site = "lte-suburban"', "contains no recorded site: it has uplink and downlink"),
        (LOAD + 'site = "lte-suburbn"', "did you mean 'lte-suburban'? write the name of a recorded site"),
    ],
    "plates": [
        (LOAD + 'model = "own.onnx"', "write the Python file with preprocess and postprocess"),
        (LOAD + 'code = "own.py"', "write the network that 'code' is for"),
        (
            LOAD + 'model = "there.m3u8"\ncode = "own.py"',
            "no runtime for this ending; write a network with one of .onnx",
        ),
        (LOAD + 'model = "own.onnx"\ncode = "half.py"', "has no function postprocess"),
        (LOAD + 'model = "own.onnx"\ncode = "no.py"', "'no.py' is not Python: line 1"),
        (LOAD + 'model = "own.onnx"\ncode = "missing.py"', "there is no file 'missing.py'"),
    ],
}
FILES = {"there.m3u8": "", "own.onnx": "", "own.pt": "", "half.py": "def preprocess(image): ...", "no.py": "def ("}
FILES["own.py"] = "def preprocess(image): ...\ndef postprocess(outputs): ...\n"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A recorded site, and one that is truncated."""
    folder = tmp_path_factory.mktemp("sites")
    (folder / "shop.har").write_text(json.dumps(har()))
    cellbed("web", "import", folder / "shop.har", "-o", folder / "shop.warc.gz", status=0)
    content = (folder / "shop.warc.gz").read_bytes()
    return content, content[:-100]


@pytest.mark.parametrize(
    ("kind", "keys", "problem"), [(kind, *each) for kind, misfits in MISFITS.items() for each in misfits]
)
def test_keys_that_do_not_fit_are_errors_with_a_remedy(
    tmp_path: Path, sites: tuple[bytes, bytes], kind: str, keys: str, problem: str
) -> None:
    for name, content in (FILES | dict(zip(("shop.warc.gz", "cut.warc.gz"), sites, strict=True))).items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    refused = refusal(f'{HEAD}[apps.x]\nkind = "{kind}"\n{keys}\n', tmp_path)
    assert refused.splitlines()[0].startswith("x.toml:")
    for words in problem.split(" ; "):
        assert words in refused


CHROMIUM = (PROGRAMS, "sudo apt install chromium")
VISION = "pip install 'cellbed[vision]' && pip install --no-deps mediapipe=="
QUIC = 'protocol = "quic"\nupload = ["1 MB"]\nrate = "1 /s"'
WITHOUT = [
    ("call", "", *CHROMIUM),
    ("call", "", ("turnserver",), "sudo apt install coturn"),
    ("web", 'page = "google"\nrate = "1 /s"', *CHROMIUM),
    ("web", 'page = "google"\nrate = "1 /s"', ("nginx",), "sudo apt install nginx-light"),
    ("video", "", ("ffmpeg",), "sudo apt install ffmpeg"),
    ("video", "", ("dash.js",), "scripts/fetch_assets.py players"),
    ("segmentation", 'rate = "3 /s"', ("ai_edge_litert",), VISION),
    ("plates", 'rate = "3 /s"', ("rapidocr_onnxruntime",), VISION),
    ("translation", 'rate = "3 /s"', ("ctranslate2",), "pip install 'cellbed[translation]'"),
    ("transfers", QUIC, ("aioquic",), "pip install 'cellbed[quic]'"),
]


@pytest.mark.parametrize(("kind", "keys", "missing", "remedy"), WITHOUT)
def test_without_a_program_a_dry_run_names_the_line_and_the_remedy(
    tmp_path: Path, kind: str, keys: str, missing: tuple[str, ...], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testbed, "find", lambda name: None if name in missing else f"/usr/bin/{name}")
    monkeypatch.setattr(testbed, "find_spec", lambda name: None if name in missing else object())
    if "dash.js" in missing:
        monkeypatch.setitem(LIBRARIES, "dash", tmp_path / "dash.all.min.js")
    (tmp_path / "x.toml").write_text(f'{HEAD}[apps.x]\nkind = "{kind}"\nserver = "edge"\n{keys}\n')
    done = cellbed("run", tmp_path / "x.toml", "--dry-run", status=2)
    assert "x.toml:" in done.stderr
    assert "apps.x." in done.stderr
    assert remedy in " ".join(done.stderr.split())

"""Predictions of `cellbed run --virtual` compared with real runs, with a second real run as the yardstick.

    .venv/bin/python benches/virtual_agreement.py [--traces LTE SLOW 5G] [--only TEXT …] [--seconds 30] [--keep FOLDER]
        [--profile run]

A cell of the matrix is a load, a congestion control and a trace: {GET of 12 kB, POST of 24 kB, HTTP/2 with 12 kB at
12/s, photographs, 100 kB at 90 % of the link} x {Reno, CUBIC, BBR} x {LTE, slow, 5G}; and with Reno over LTE and slow:
translation, two endpoints with CoDel and an outage, four endpoints in a proportionally fair cell, 12 kB over TLS,
server-sent events, journeys of two requests, calls of gRPC, a WebSocket, and three replicas. Each cell is run
twice really and predicted once. The figures are median, P90 and P99 of the latency, and the distance of distributions:
the Wasserstein distance as a share of the first run's mean. A request without a reply counts as its timeout, 10 s. The
aim is a prediction that is as near to the first run as 1.25 times the second run is, plus 2 %.

--traces: an entry of the archive, or the path of a Mahimahi trace without its ending, for PATH.up and PATH.down;
without PATH.down the uplink's is used for both. The default ones are synthetic. --only: cells whose name contains one
of these; `ping` and `iperf3` (round trips, and Mbit/s of each second) only run if they are named. --keep: the folder of
the real runs, which are not repeated if they are there, so that a bench continues where it was stopped; also of the
results, agreement.json and agreement.md (the table of docs/how-to/predict.md). --profile run takes the profile from the
first real run over the LTE trace, for the cells of all three traces, instead of measuring it over fast links. CUBIC
must be allowed in network namespaces: `sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="reno bbr cubic"`. *
marks each real run that the machine disturbed, ~ a prediction whose profile was disturbed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tomli_w
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from cellbed.archive import open_archive
from cellbed.archive.generation import generate
from cellbed.archive.generation.model import SLOT_LTE, Model, Order, each_way
from cellbed.archive.generation.wander import Wander
from cellbed.support.errors import CellbedError

TRACES = ("lte-suburban", "agreement-slow", "5g-midband")
ROLES = ("lte", "slow", "5g")
SLOW = each_way(
    Wander(375e3, 162.5e3, 50e3, 700e3, 5 * 10**9, 1 / 30, 125_000_000),
    Wander(650e3, 275e3, 100e3, 1200e3, 5 * 10**9, 1 / 30, 125_000_000),
    SLOT_LTE,
)
"""The synthetic slow trace, which the bench generates."""
CONTROLS = ("reno", "cubic", "bbr")
TIMEOUT_S = 10.0
FACTOR, MORE = 1.25, 0.02
"""The aim, in distances of the second real run."""
QUANTILES = {"median": 0.5, "P90": 0.9, "P99": 0.99}
HEAD = """
name = "agreement"
duration = "{seconds} s"
seed = 7

[nodes.endpoint]
count = {count}
cpus = 0.5
memory = "256 MiB"
{endpoint}
[nodes.edge]
cpus = 1.0
memory = "512 MiB"

[links.mobile]
up = "{up}"
down = "{down}"
base_delay = "10 ms"
queue = {queue}
{link}
[links.core]
edge = "2 ms"

[transport]
congestion_control = "{control}"
{cells}
"""
HTTP = """
[apps.web]
kind = "http"
url = "http://{{server.address}}:{port}/{file}"
arrivals = "poisson"
rate = "{rate} /s"
client = "endpoint"
{more}
[apps.web.server]
on = "edge"
command = {command}
copy_in = {{ {copied} }}
ready = {{ port = {port} }}
"""
OTHER = """
[apps.other]
kind = "http"
url = "http://{{web.address}}:8080/small"
arrivals = "poisson"
rate = "{rate} /s"
client = "other"
server = "edge"
"""
OFFLOADED = '[workload]\nkind = "{kind}"\nserver = "edge"\narrivals = "poisson"\nrate = "1 /s"\n'
PING = '[apps.ping]\nkind = "program"\nclient = {{ on = "endpoint", command = "ping -i 0.05 -w {most} edge" }}\n'
# One way after the other.
IPERF3 = """
[apps.up]
kind = "program"
client = {{ on = "endpoint", command = "iperf3 -c edge -t {part}" }}
server = {{ on = "edge", command = "iperf3 -s", ready = {{ port = 5201 }} }}

[apps.down]
kind = "program"
client = {{ on = "endpoint", command = "iperf3 -c edge -p 5202 -R -t {part}" }}
server = {{ on = "edge", command = "iperf3 -s -p 5202", ready = {{ port = 5202 }} }}
start = "{half} s"
"""
PYTHON = '["python3", "-m", "http.server", "--protocol", "HTTP/1.1", "8080"]'
SERVERS_PY = """
import http.server, sys, time

def events():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(10):
                time.sleep(0.05)
                event = b"data: %194d\\n\\n" % number
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
            self.wfile.write(b"0\\r\\n\\r\\n")

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()

def calls():
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    class Echo(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Echo()])
    server.add_insecure_port("0.0.0.0:8080")
    server.start()
    server.wait_for_termination()

def websocket():
    from websockets.sync.server import serve

    def repeat(connection):
        for message in connection:
            connection.send(message)

    serve(repeat, "", 8080).serve_forever()

globals()[sys.argv[1]]()
"""
TAKER = '["python3", "taker.py"]'
TAKER_PY = """
import http.server

class Taker(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("", 8080), Taker).serve_forever()
"""
NGINX = (
    f'["{shutil.which("nginx", path="/usr/sbin:/usr/bin") or "nginx"}", "-p", ".", "-c", "nginx.conf", "-e", "errors"]'
)
NGINX_CONF = """
daemon off; master_process off; pid pid; events {}
http { access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t;
  scgi_temp_path t; keepalive_requests 100000; server { listen 8080; root .; } server { listen 8081 http2; root .; } }
"""
TLS = "server { listen 8080 ssl; root .; ssl_certificate certificate.pem; ssl_certificate_key key.pem; }"
TLS_CONF = NGINX_CONF.replace("server { listen 8080; root .; }", TLS)
LEAST_MBIT_S = 0.1
"""A link that carries less is idle: acknowledgements of the other direction are not a transfer."""
SIZES = {"small": 12_000, "page": 76_000, "large": 100_000}


@dataclass(frozen=True, slots=True)
class Load:
    """What the endpoints of a cell do. rate: requests per second of each; None: 90 % of the link. more: further keys.
    endpoints: how many."""

    server: str = PYTHON
    file: str = ""
    rate: float | None = 0.0
    port: int = 8080
    more: str = ""
    endpoints: int = 1
    text: str = ""


LOADS = {
    "get": Load(PYTHON, "small", 4),
    "post": Load(TAKER, "", 2, more='method = "POST"\nbody_size = "24 kB"'),
    "http2": Load(NGINX, "small", 12, port=8081, more='version = "2"'),
    "photographs": Load(text=OFFLOADED.format(kind="image-classification")),
    "full": Load(NGINX, "large", None),
}
OTHERS = {
    "translation": Load(text=OFFLOADED.format(kind="translation")),
    "two-codel-outage": Load(PYTHON, "small", 4),
    "cell-4": Load(PYTHON, "page", 1, endpoints=4),
}
_CERTIFIED = f"cp {{server.certificate}} {{server.key}} . && exec {' '.join(json.loads(NGINX))}"
APPLICATIONS: dict[str, dict[str, Any]] = {
    "tls": {"url": "https://{server.address}:8080/small", "rate": "4 /s", "command": ["sh", "-c", _CERTIFIED]},
    "events": {"stream": "sse", "rate": "1 /s"},
    "journey": {"journey": [{"get": "/small"}, {"get": "/page", "think": "500 ms"}], "rate": "1 /s"},
    "calls": {"grpc": "echo.Echo/Call", "body_size": "2 kB", "rate": "5 /s"},
    "websocket": {"kind": "websocket", "url": "ws://{server.address}:8080/", "size": "1 KiB", "rate": "5 /s"},
    "replicas": {"url": "http://{server.address}:8080/small", "rate": "8 /s", "balance": "connection", "on": "web"},
}
"""Tables of further loads; command: of the server, that of nginx or of SERVERS_PY by default."""
OTHERS |= dict.fromkeys(APPLICATIONS, Load())
PROGRAMS = {"ping": Load(text=PING), "iperf3": Load(text=IPERF3)}
CELLS = [f"{load}-{control}-{role}" for load in LOADS for control in CONTROLS for role in ROLES]
CELLS += [f"{load}-reno-{role}" for load in OTHERS for role in ("lte", "slow")]
PROBES = [f"{load}-reno-{role}" for load in PROGRAMS for role in ROLES]
REFUSED: dict[str, Path] = {}
"""Measured profiles that the machine disturbed, by load."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a cell.

    requests, values: of the first run, the latter at each of QUANTILES. again, predicted: differences from these, %.
    distance_again, distance: of distributions, shares of the first run's mean. disturbed:
    real runs. accepted: the profile was refused, and is used nevertheless.
    """

    cell: str
    requests: int
    values: dict[str, float]
    again: dict[str, float]
    predicted: dict[str, float]
    distance_again: float
    distance: float
    disturbed: int
    accepted: bool

    @property
    def excess(self) -> float:
        """Return by how much the distance exceeds the aim."""
        return self.distance - (FACTOR * self.distance_again + MORE)

    def cells(self) -> list[str]:
        """Return the columns of the table."""
        figures = [
            f"{self.values[name]:.4g}: {self.again[name]:+.1f}, {self.predicted[name]:+.1f} %" for name in QUANTILES
        ]
        verdict = "yes" if self.excess <= 0 else "no"
        shares = [f"{self.distance_again:.3f}", f"{self.distance:.3f}", verdict]
        return [f"`{self.cell}`{'*' * self.disturbed}{'~' * self.accepted}", str(self.requests), *figures, *shares]


HEADINGS = ["cell", "requests", *(f"{name}, ms: again, predicted" for name in QUANTILES)]
HEADINGS += ["distance again", "distance predicted", "as near"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--traces", nargs=3, default=TRACES, metavar=("LTE", "SLOW", "5G"))
    arguments.add_argument("--only", nargs="+", default=[])
    arguments.add_argument("--seconds", type=int, default=30)
    arguments.add_argument("--profile", choices=["cache", "run"], default="cache")
    arguments.add_argument("--keep", type=Path, default=Path("agreement"))
    asked = arguments.parse_args()
    chosen = [cell for cell in CELLS + PROBES if any(text in cell for text in asked.only)] if asked.only else CELLS
    asked.keep.mkdir(parents=True, exist_ok=True)
    traces = {role: files(name, asked.keep) for role, name in zip(ROLES, asked.traces, strict=True)}
    rows, failed = list[Row](), 0
    for number, cell in enumerate(chosen, 1):
        try:
            rows.append(compared(cell, traces, asked.keep.resolve(), asked.seconds, own=asked.profile == "run"))
            row = rows[-1]
            print(f"{number} of {len(chosen)}:", "  ".join(row.cells()), flush=True)
        except (RuntimeError, CellbedError) as error:
            failed += 1
            print(f"{number} of {len(chosen)}: {cell}: {error}", flush=True)
        write(asked.keep, rows, failed)
    sys.exit(1 if failed else 0)


def write(folder: Path, rows: list[Row], failed: int) -> None:
    """Write the results so far, the worst first."""
    rows = sorted(rows, key=lambda row: -row.excess)
    (folder / "agreement.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    near = sum(row.excess <= 0 for row in rows)
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(row.cells() for row in rows)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    share = f"{near / len(rows):.0%}" if rows else "–"
    more = f"; {failed} cells failed" if failed else ""
    text += f"\n{near} of {len(rows)} predictions ({share}) are as near as {FACTOR} times the second real run, plus 2 %"
    (folder / "agreement.md").write_text(f"{text}{more}.\n")


def files(name: str, keep: Path) -> tuple[Path, Path]:
    """Return the files of uplink and downlink of a trace."""
    if Path(f"{name}.up").exists():
        up, down = Path(f"{name}.up").resolve(), Path(f"{name}.down").resolve()
        return up, down if down.exists() else up
    folder = keep.resolve() / "traces" / name
    if not folder.exists():
        if name == "agreement-slow":
            model = Model(name, citation="", cited="", make=SLOW)
            generate.keep(open_archive(), model, Order("wander", 1, 120 * 10**9), name, True, lambda *_: None)
        cellbed("traces", "export", name, "--format", "mahimahi", "--out", str(folder))
    (up,), (down,) = folder.glob("*.up"), folder.glob("*.down")
    return up, down


def mean_bit_s(trace: Path, seconds: int) -> float:
    """Return the mean rate of the part of a trace that a run replays."""
    times = np.loadtxt(trace, np.int64)
    looped = (
        times
        if times[-1] >= seconds * 1000
        else np.concatenate([times + lap * times[-1] for lap in range(seconds * 1000 // int(times[-1]) + 1)])
    )
    return float((looped < seconds * 1000).sum() * 1500 * 8 / seconds)


def scenario(cell: str, traces: dict[str, tuple[Path, Path]], folder: Path, seconds: int) -> None:
    """Write the scenario of a cell with its files."""
    name, control, role = cell.rsplit("-", 2)
    load = (LOADS | OTHERS | PROGRAMS)[name]
    up, down = traces[role]
    two = name == "two-codel-outage"
    others = traces["slow" if role == "lte" else "lte"]
    text = HEAD.format(
        seconds=seconds, count=load.endpoints, up=up, down=down, control=control,
        endpoint='cell = "macro"\n' if name == "cell-4" else "",
        cells='\n[cells.macro]\nscheduler = "proportional-fair"\n' if name == "cell-4" else "",
        queue='{ kind = "codel" }' if two else '{ kind = "droptail", limit = "1 MB" }',
        link=f'outage = [["{seconds // 3} s", "{seconds // 3 + 3} s"]]' if two else "",
    )  # fmt: skip
    if two:
        text += '\n[nodes.other]\nclass = "endpoint"\ncpus = 0.5\nmemory = "256 MiB"\n'
        text += f'link = {{ up = "{others[0]}", down = "{others[1]}" }}\n'
    for file, size in SIZES.items():
        (folder / file).write_bytes(bytes(size))
    content = {"nginx.conf": TLS_CONF if name == "tls" else NGINX_CONF, "taker.py": TAKER_PY, "servers.py": SERVERS_PY}
    for file, code in content.items():
        (folder / file).write_text(code)
    if name in APPLICATIONS:
        text += application(name)
    elif load.text:
        text += load.text.format(most=seconds - 2, half=seconds // 2, part=seconds // 2 - 4)
    else:
        rate = load.rate
        if rate is None:
            rate = round(0.9 * mean_bit_s(down, seconds) / (SIZES[load.file] * 8 * 1.05), 2)
        needed = [load.file] if load.file else ["taker.py"]
        needed += ["nginx.conf"] if load.server == NGINX else []
        text += HTTP.format(
            port=load.port, file=load.file, rate=rate, more=load.more, command=load.server,
            copied=", ".join(f'"{file}" = "{file}"' for file in needed),
        )  # fmt: skip
    if two:
        text += OTHER.format(rate=load.rate)
    (folder / "scenario.toml").write_text(text)


def application(name: str) -> str:
    """Return one of APPLICATIONS in TOML, with the nodes of its own."""
    table = {"kind": "http", "url": "http://{server.address}:8080", "arrivals": "poisson", "client": "endpoint"}
    table |= APPLICATIONS[name]
    own = [sys.executable, "servers.py", name] if name in ("events", "calls", "websocket") else json.loads(NGINX)
    on = str(table.pop("on", "edge"))
    copied = {file: file for file in ("small", "page", "nginx.conf", "servers.py")}
    server = {"on": on, "command": table.pop("command", own), "ready": {"port": 8080}, "copy_in": copied}
    node = {"class": "edge", "count": 3, "cpus": 0.5, "memory": "256 MiB"}
    nodes = {"nodes": {on: node}} if on != "edge" else {}
    return tomli_w.dumps(nodes | {"apps": {"web": table | {"server": server}}})


def compared(cell: str, traces: dict[str, tuple[Path, Path]], keep: Path, seconds: int, *, own: bool) -> Row:
    """Run a cell as far as it has not been run, and predict it. Raises RuntimeError."""
    folder = keep / f"{cell}-{seconds}"
    folder.mkdir(exist_ok=True)
    scenario(cell, traces, folder, seconds)
    real = [folder / "first", folder / "second"]
    for each in real:
        if not each.exists():
            shutil.move(run(folder), each)
    shutil.rmtree(folder / "predicted", ignore_errors=True)
    load = cell.rsplit("-", 2)[0]
    measured = keep / f"{cell.rpartition('-')[0]}-lte-{seconds}" / "first" if own and load not in PROGRAMS else None
    made, accepted = predict(folder, load, measured)
    shutil.move(made, folder / "predicted")
    first, second, predicted = (figures(each) for each in (*real, folder / "predicted"))
    if not len(first) or not len(second) or not len(predicted):
        raise RuntimeError("a run without requests")
    values = {name: float(np.quantile(first, share)) for name, share in QUANTILES.items()}

    def change(other: NDArray[np.float64]) -> dict[str, float]:
        return {name: (float(np.quantile(other, share)) / values[name] - 1) * 100 for name, share in QUANTILES.items()}

    return Row(
        cell=cell,
        requests=len(first),
        values=values,
        again=change(second),
        predicted=change(predicted),
        distance_again=float(wasserstein_distance(first, second) / first.mean()),
        distance=float(wasserstein_distance(first, predicted) / first.mean()),
        disturbed=sum(bool(json.loads((each / "summary.json").read_text())["disturbances"]) for each in real),
        accepted=accepted,
    )


def predict(folder: Path, load: str, profile: Path | None) -> tuple[Path, bool]:
    """Return the folder of a prediction, and whether its profile was refused and is used nevertheless."""
    profile = profile or REFUSED.get(load)
    options = ["--profile", str(profile)] if profile is not None else []
    try:
        return run(folder, "--virtual", *options), load in REFUSED
    except RuntimeError as error:
        refused = re.search(r"accept this one: --profile (\S+)", str(error))
        if refused is None:
            raise
        REFUSED[load] = Path(refused[1])
        return predict(folder, load, None)


def run(folder: Path, *options: str) -> Path:
    """Return the folder of a run of the scenario in a folder. Raises RuntimeError."""
    runs = folder / "runs"
    before = set(runs.glob("*"))
    output = cellbed("run", str(folder / "scenario.toml"), "--out", str(runs), *options)
    made = set(runs.glob("*")) - before
    if len(made) != 1:
        raise RuntimeError(output)
    return made.pop()


def cellbed(*words: str) -> str:
    """Return the output of a command of cellbed. Raises RuntimeError."""
    command = [sys.executable, "-P", "-m", "cellbed", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        text = f"{done.stderr}{done.stdout}".strip()
        raise RuntimeError(text.partition("error: ")[2] or text)
    return done.stdout


def figures(run: Path) -> NDArray[np.float64]:
    """Return the latencies of a run's requests; of programs the round-trip times that ping printed, ms, or the rates of
    the links in each second, Mbit/s."""
    requests = pl.read_parquet(run / "requests.parquet")
    if len(requests):
        due = requests.filter(pl.col("status") != "skipped")
        return due["latency_s"].fill_null(TIMEOUT_S).to_numpy() * 1e3
    texts = "".join(path.read_text() for path in sorted((run / "raw").glob("*.client.out")))
    if times := re.findall(r"time=([\d.]+) ms", texts):
        return np.array(times, np.float64)
    second = pl.col("time_s").floor()
    links = pl.read_parquet(run / "links.parquet").filter(pl.col("time_s") >= 0)
    rates = links.group_by("direction", second, maintain_order=True).agg(pl.col("used_mbit_s").mean())["used_mbit_s"]
    return rates.filter(rates > LEAST_MBIT_S).to_numpy()


if __name__ == "__main__":
    main()

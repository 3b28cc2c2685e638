"""Predictions of `cellbed run --virtual` compared with real runs, with a second real run as the yardstick.

    .venv/bin/python benches/virtual_agreement.py --keep agreement              # 60 cells, about 40 minutes when idle
    .venv/bin/python benches/virtual_agreement.py --keep agreement --cells 6    # the first six of them

A cell is a server x protocol x method x body x congestion control x trace x endpoints x replicas x outage x load, drawn
by its number and --seed alone: more cells leave the first ones as they are. Each is run really, predicted from the
profile of this run, and run really again. A percentile of the latency is *near* if the prediction differs from the
first run by at most 1.25 times the difference of the second run, plus 2 %. The aim: 80 % of the medians, 90 % of P90
and P99. A request without a reply counts as its timeout, 10 s.

Results are lines of FOLDER/cells.jsonl, with the state of the machine, and FOLDER/agreement.md, the worst first. A cell
that is there is not run again, so a bench continues where it was stopped; --again predicts all cells once more, from
the kept runs. Servers and congestion controls that are not installed are left out and named (`pip install uvicorn
hypercorn` adds two); the others share their cells, so compare only benches with the same servers.

--traces: entries of the archive, or paths of Mahimahi traces without ending, for PATH.up and PATH.down; without
PATH.down the uplink's is used for both. The default ones are synthetic. --profile cache measures the profile over fast
links instead (25 s more for each cell). --only: cells whose name contains all of these words. CUBIC must be allowed in
network namespaces: `sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="reno bbr cubic"`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tomli_w
from numpy.typing import NDArray

from cellbed.archive import open_archive
from cellbed.archive.generation import generate
from cellbed.archive.generation.models import SLOT_LTE, Model, Order, each_way
from cellbed.archive.generation.presets import Wander
from cellbed.support.errors import CellbedError

TRACES = ("lte-suburban", "agreement-slow", "5g-midband")
SLOW = each_way(
    Wander(375e3, 162.5e3, 50e3, 700e3, 5 * 10**9, 1 / 30, 125_000_000),
    Wander(650e3, 275e3, 100e3, 1200e3, 5 * 10**9, 1 / 30, 125_000_000),
    SLOT_LTE,
)
"""The synthetic slow trace, which the bench generates."""
KERNEL_LAWS, LAWS = ("reno", "cubic", "bbr"), ("bbr3", "c2tcp", "copa", "exll", "vegas", "verus")
"""Congestion controls. Each group is drawn for half of the cells."""
TIMEOUT_S = 10.0
FACTOR, MORE = 1.25, 0.02
"""The aim: maximum error relative to the difference of the second run, and additional share of the percentile."""
QUANTILES = {"median": 0.5, "P90": 0.9, "P99": 0.99}
AIMS = {"median": 0.8, "P90": 0.9, "P99": 0.9}
SMALLEST, LARGEST = 200, 1_000_000
LEAST_RATE, MOST_RATE = 1.5, 16.0
"""Minimum and maximum requests per second of an endpoint."""
OUTAGE_S = 2

PROGRAMS = {
    "nginx": shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin") or "",
    "caddy": shutil.which("caddy") or "",
    "node": shutil.which("node") or "",
    "go": shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin") or "",
    "python": sys.executable,
    **{name: sys.executable if importlib.util.find_spec(name) else "" for name in ("uvicorn", "hypercorn", "grpc")},
}
SERVERS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "nginx": (("1.1", "2"), ("GET",)),
    "caddy": (("1.1", "2"), ("GET",)),
    "node": (("1.1", "2"), ("GET", "POST")),
    "go": (("1.1", "2"), ("GET", "POST")),
    "python": (("1.1",), ("GET", "POST")),
    "uvicorn": (("1.1",), ("GET", "POST")),
    "hypercorn": (("2",), ("GET", "POST")),
    "grpc": (("grpc",), ("GET", "POST")),
}
"""Protocols and methods: GET has the body in the reply, POST in the request."""
FILES = {
    "nginx.conf": """
daemon off; master_process off; pid pid; events {}
http { access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t;
  scgi_temp_path t; keepalive_requests 100000; server { listen 8080 HTTP2; root .; } }
""",
    "Caddyfile": """
{
  admin off
  auto_https off
  servers {
    protocols h1 h2c
  }
}
:8080 {
  root * .
  file_server
}
""",
    "server.js": """
const body = require('fs').readFileSync('body');
const http = require(process.argv[2] === '2' ? 'http2' : 'http');
http.createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    const reply = request.method === 'POST' ? 'ok' : body;
    response.setHeader('content-length', reply.length);
    response.end(reply);
  });
}).listen(8080);
""",
    "server.go": """
package main

import ("io"; "net/http"; "os"; "strconv")

func main() {
	body, _ := os.ReadFile("body")
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Addr: ":8080", Protocols: &protocols}
	server.Handler = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		reply := body
		if request.Method == "POST" { reply = []byte("ok") }
		writer.Header().Set("Content-Length", strconv.Itoa(len(reply)))
		writer.Write(reply)
	})
	server.ListenAndServe()
}
""",
    "server.py": """
import http.server, pathlib, sys

BODY = pathlib.Path("body").read_bytes()

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    reply = b"ok" if scope["method"] == "POST" else BODY
    headers = [(b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(BODY)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(b"ok")

    def log_message(self, *_):
        pass

def grpc():
    import grpc
    from concurrent.futures import ThreadPoolExecutor

    class Calls(grpc.GenericRpcHandler):
        def service(self, details):
            reply = BODY if details.method.endswith("GET") else b"ok"
            return grpc.unary_unary_rpc_method_handler(lambda request, context: reply)

    server = grpc.server(ThreadPoolExecutor(4), handlers=[Calls()])
    server.add_insecure_port("0.0.0.0:8080")
    server.start()
    server.wait_for_termination()

if __name__ == "__main__":
    grpc() if sys.argv[1] == "grpc" else http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
""",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell. method: GET for bodies of replies, POST for bodies of requests. load: load of all endpoints, as a share
    of the loaded direction's mean rate. replicas, balance: number of servers, and distribution of requests to them."""

    server: str
    protocol: str
    method: str
    body: int
    law: str
    trace: str
    endpoints: int
    replicas: int
    balance: str
    outage: bool
    load: float

    @property
    def name(self) -> str:
        """Return the cell in words."""
        what = [self.server, self.protocol, self.method, f"{self.body}B", self.law, Path(self.trace).name]
        what += [f"{self.endpoints}-endpoints"] * (self.endpoints > 1) + [f"{self.replicas}-{self.balance}"] * (
            self.replicas > 1
        )
        return "-".join([*what, *["outage"] * self.outage, f"{self.load:.2f}"])


def draw(seed: int, number: int, servers: Sequence[str], laws: Sequence[Sequence[str]], rates: Rates) -> Cell:
    """Return a cell, drawn by seed and number alone. rates: mean rates of the traces."""
    chance = random.Random(f"{seed}/{number}")
    server = servers[number % len(servers)]
    protocols, methods = SERVERS[server]
    protocol, method = chance.choice(protocols), chance.choice(methods)
    law = chance.choice(chance.choice([each for each in laws if each]))
    endpoints, load = chance.choice((1, 1, 2)), chance.uniform(0.05, 0.85)
    replicas, outage = chance.choice((1, 1, 1, 3)), chance.random() < 0.2
    balance = chance.choice(("connection", "least-outstanding") if protocol == "1.1" else ("connection",))
    while True:
        body = round(math.exp(chance.uniform(math.log(SMALLEST), math.log(LARGEST))))
        trace = chance.choice(list(rates))
        if rate(rates[trace], method, body, load) >= LEAST_RATE:
            break
    return Cell(server, protocol, method, body, law, trace, endpoints, replicas, balance, outage, round(load, 2))


Rates = dict[str, tuple[float, float]]
"""Mean rates of uplink and downlink, bit/s, by trace."""


def rate(rates: tuple[float, float], method: str, body: int, load: float) -> float:
    """Return the requests per second of an endpoint for a load."""
    return round(load * rates[method == "GET"] / ((body + 400) * 8 * 1.05), 3)


def main() -> None:
    """Compare the cells, and write the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=43)
    arguments.add_argument("--traces", nargs="+", default=TRACES)
    arguments.add_argument("--only", nargs="+", default=[])
    arguments.add_argument("--seconds", type=int, default=10)
    arguments.add_argument("--profile", choices=["cache", "run"], default="run")
    arguments.add_argument("--again", action="store_true")
    arguments.add_argument("--keep", type=Path, default=Path("agreement"))
    asked = arguments.parse_args()
    keep = asked.keep.resolve()
    keep.mkdir(parents=True, exist_ok=True)
    traces = {name: files(name, keep) for name in asked.traces}
    rates = {
        name: (mean_bit_s(up, asked.seconds), mean_bit_s(down, asked.seconds)) for name, (up, down) in traces.items()
    }
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    missing = [name for name in SERVERS if not PROGRAMS[name]] + [law for law in KERNEL_LAWS if law not in allowed]
    if missing:
        print("left out, since not installed or allowed:", ", ".join(missing), flush=True)
    servers, laws = [name for name in SERVERS if PROGRAMS[name]], ([law for law in KERNEL_LAWS if law in allowed], LAWS)
    results, known = keep / "cells.jsonl", dict[str, dict[str, Any]]()
    if results.exists():
        known = {row["cell"]: row for row in map(json.loads, results.read_text().splitlines())}
    for number in range(asked.cells):
        cell = draw(asked.seed, number, servers, laws, rates)
        is_done = "failed" not in known.get(cell.name, {"failed": ""}) and not asked.again
        if is_done or not all(word in cell.name for word in asked.only):
            continue
        try:
            row = compare_cell(cell, traces[cell.trace], rates[cell.trace], keep, asked.seconds, asked.profile)
        except (RuntimeError, CellbedError) as error:
            row = {"cell": cell.name, "failed": str(error)}
        known[cell.name] = row
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{number + 1} of {asked.cells}:", "  ".join(columns(row)), flush=True)
        (keep / "agreement.md").write_text(page(known.values(), missing))
    sys.exit(any("failed" in row for row in known.values()))


# ---- results


def excess(row: dict[str, Any], name: str) -> float:
    """Return the excess of a prediction's error over the aim, as a share of the first run's percentile."""
    first, second, predicted = (row[each][name] for each in ("first", "second", "predicted"))
    return (abs(predicted - first) - FACTOR * abs(second - first)) / first - MORE


def columns(row: dict[str, Any]) -> list[str]:
    """Return the table cells of a result."""
    if "failed" in row:
        return [f"`{row['cell']}`", f"failed: {row['failed'].splitlines()[0][:150]}"]
    found = [f"`{row['cell']}`", str(row["requests"])]
    for name in QUANTILES:
        first, second, predicted = (row[each][name] for each in ("first", "second", "predicted"))
        mark = "" if excess(row, name) <= 0 else " **far**"
        found.append(f"{first:.4g}: {100 * (second / first - 1):+.1f}, {100 * (predicted / first - 1):+.1f} %{mark}")
    loads = ", ".join(f"{each['load']:.1f}" for each in row["machine"])
    return [*found, f"{loads}; {max(each['waited'] for each in row['machine']):.0%}", str(row["disturbed"])]


def page(rows: Iterable[dict[str, Any]], missing: Sequence[str]) -> str:
    """Return a page of all results, the worst first."""
    done = [row for row in rows if "failed" not in row]
    done.sort(key=lambda row: -max(excess(row, name) for name in QUANTILES))
    quiet = [row for row in done if not row["disturbed"]]
    text = f"{len(done)} cells; in {len(quiet)} of them (these) the machine disturbed neither run\n\n"
    for name, aim in AIMS.items():
        near = {of: [excess(row, name) <= 0 for row in rows] for of, rows in (("all", done), ("these", quiet)) if rows}
        shares = ", ".join(f"{np.mean(found):.0%} of {of}" for of, found in near.items())
        text += f"* {name}: near in {shares} (aim {aim:.0%})\n"
    text += f"* left out: {', '.join(missing)}\n" if missing else ""
    headings = ["cell", "requests", *(f"{name}, ms: again, predicted" for name in QUANTILES)]
    headings += ["load of the machine; share of time that programs waited for processors", "disturbed runs"]
    failed = [row for row in rows if "failed" in row]
    lines = [headings, ["---"] * len(headings), *(columns(row) for row in [*done, *failed])]
    return text + "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


# ---- traces


def files(name: str, keep: Path) -> tuple[Path, Path]:
    """Return the files of uplink and downlink of a trace."""
    if Path(f"{name}.up").exists():
        up, down = Path(f"{name}.up").resolve(), Path(f"{name}.down").resolve()
        return up, down if down.exists() else up
    folder = keep / "traces" / name
    if not folder.exists():
        if name == "agreement-slow":
            model = Model(name, citation="", cited="", make=SLOW)
            generate.keep(open_archive(), model, Order("wander", 1, 120 * 10**9), name, True, lambda *_: None)
        run_cellbed("traces", "export", name, "--format", "mahimahi", "--out", str(folder))
    (up,), (down,) = folder.glob("*.up"), folder.glob("*.down")
    return up, down


def mean_bit_s(trace: Path, seconds: int) -> float:
    """Return the mean rate of the part of a trace that a run replays."""
    times = np.loadtxt(trace, np.int64)
    laps = seconds * 1000 // int(times[-1]) + 1
    looped = np.concatenate([times + lap * times[-1] for lap in range(laps)])
    return float((looped < seconds * 1000).sum() * 1500 * 8 / seconds)


# ---- runs


def scenario(cell: Cell, trace: tuple[Path, Path], rates: tuple[float, float], folder: Path, seconds: int) -> None:
    """Write the scenario of a cell, and the server's files."""
    own = write_files(cell, folder)
    link: dict[str, Any] = {"up": str(trace[0]), "down": str(trace[1]), "base_delay": "10 ms"}
    if cell.outage:
        link["outage"] = [[f"{seconds // 3} s", f"{seconds // 3 + OUTAGE_S} s"]]
    each = max(LEAST_RATE, min(MOST_RATE, rate(rates, cell.method, cell.body, cell.load)))
    app: dict[str, Any] = {"kind": "http", "url": "http://{server.address}:8080/body", "client": "endpoint"}
    app |= {"arrivals": "poisson", "rate": f"{each} /s"}
    if cell.protocol == "grpc":
        app |= {"grpc": f"bench.Calls/{cell.method}", "url": "http://{server.address}:8080"}
    else:
        app |= {"version": cell.protocol, "method": cell.method}
    if cell.method == "POST":
        app["body_size"] = f"{cell.body} B"
    server: dict[str, Any] = {"on": "edge", "command": command(cell), "ready": {"port": 8080}}
    server["copy_in"] = {name: name for name in ("body", own)}
    if cell.replicas > 1:
        app["balance"] = cell.balance
    text: dict[str, Any] = {"name": "agreement", "duration": f"{seconds} s", "seed": 7}
    text["nodes"] = {
        "endpoint": {"count": cell.endpoints, "cpus": 0.5, "memory": "256 MiB"},
        "edge": {"count": cell.replicas, "cpus": round(1 / cell.replicas, 2), "memory": "256 MiB"},
    }
    mobile = link | {"queue": {"kind": "droptail", "limit": "1 MB"}}
    text |= {"links": {"mobile": mobile, "core": {"edge": "2 ms"}}, "transport": {"congestion_control": cell.law}}
    text["apps"] = {"web": app | {"server": server}}
    (folder / "scenario.toml").write_text(tomli_w.dumps(text))


def write_files(cell: Cell, folder: Path) -> str:
    """Write the files of a server; return the file that the server needs besides the body. Go programs are built."""
    for file, content in FILES.items():
        (folder / file).write_text(content.replace(" HTTP2", " http2" * (cell.protocol == "2")))
    (folder / "body").write_bytes(bytes(cell.body))
    if cell.server == "go":
        built = folder.parent / "go-server"
        if not built.exists():
            subprocess.run([PROGRAMS["go"], "build", "-o", built, folder / "server.go"], check=True)
        shutil.copy(built, folder / "server")
    return {"nginx": "nginx.conf", "caddy": "Caddyfile", "node": "server.js", "go": "server"}.get(
        cell.server, "server.py"
    )


def command(cell: Cell) -> list[str]:
    """Return the command of a server."""
    program = PROGRAMS[cell.server]
    return {
        "nginx": [program, "-p", ".", "-c", "nginx.conf", "-e", "errors"],
        "caddy": [program, "run", "--config", "Caddyfile", "--adapter", "caddyfile"],
        "node": [program, "server.js", cell.protocol],
        "go": ["./server"],
        "uvicorn": [program, "-m", "uvicorn", "--host", "0.0.0.0", "--port", "8080", "--no-access-log", "server:app"],
        "hypercorn": [program, "-m", "hypercorn", "--bind", "0.0.0.0:8080", "server:app"],
    }.get(cell.server, [program, "server.py", cell.server])


def compare_cell(
    cell: Cell, trace: tuple[Path, Path], rates: tuple[float, float], keep: Path, seconds: int, profile: str
) -> dict[str, Any]:
    """Return the result of a cell. Existing real runs are reused. Raises RuntimeError."""
    folder = keep / f"{cell.name}-{seconds}"
    folder.mkdir(exist_ok=True)
    scenario(cell, trace, rates, folder, seconds)
    real, machine = [folder / "first", folder / "second"], list[dict[str, float]]()
    for each in real:
        state = folder / f"{each.name}.json"
        if not each.exists():
            load, waited, begun = os.getloadavg()[0], waiting_us(), time.monotonic()
            shutil.move(run(folder), each)
            share = (waiting_us() - waited) / 1e6 / (time.monotonic() - begun)
            state.write_text(json.dumps({"load": load, "waited": share}))
        machine.append(json.loads(state.read_text()))
    shutil.rmtree(folder / "predicted", ignore_errors=True)
    shutil.move(predict(folder, real[0] if profile == "run" else None), folder / "predicted")
    first, second, predicted = (latencies(each) for each in (*real, folder / "predicted"))
    if not len(first) or not len(second) or not len(predicted):
        raise RuntimeError("a run without requests")
    disturbed = [bool(json.loads((each / "summary.json").read_text())["disturbances"]) for each in real]
    row: dict[str, Any] = {"cell": cell.name, "requests": len(first), "machine": machine, "disturbed": sum(disturbed)}
    for name, of in (("first", first), ("second", second), ("predicted", predicted)):
        row[name] = {quantile: float(np.quantile(of, share)) for quantile, share in QUANTILES.items()}
    return row


def waiting_us() -> int:
    """Return the time that programs of this machine have waited for a processor, µs."""
    return int(re.findall(r"total=(\d+)", Path("/proc/pressure/cpu").read_text())[0])


def predict(folder: Path, profile: Path | None) -> Path:
    """Return the folder of a prediction. If cellbed refuses the profile, repeat with the refused profile."""
    options = ["--profile", str(profile)] if profile is not None else []
    try:
        return run(folder, "--virtual", *options)
    except RuntimeError as error:
        refused = re.search(r"accept this one, with run or sweep: --profile (\S+)", str(error))
        if refused is None or profile is not None:
            raise
        return predict(folder, Path(refused[1]))


def run(folder: Path, *options: str) -> Path:
    """Return the folder of a run of the scenario in a folder. Raises RuntimeError."""
    runs = folder / "runs"
    before = set(runs.glob("*"))
    output = run_cellbed("run", str(folder / "scenario.toml"), "--out", str(runs), *options)
    made = set(runs.glob("*")) - before
    if len(made) != 1:
        raise RuntimeError(output)
    return made.pop()


def run_cellbed(*words: str) -> str:
    """Return the output of a command of cellbed. Raises RuntimeError."""
    command = [sys.executable, "-P", "-m", "cellbed", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        text = f"{done.stderr}{done.stdout}".strip()
        raise RuntimeError(text.partition("error: ")[2] or text)
    return done.stdout


def latencies(run: Path) -> NDArray[np.float64]:
    """Return the latencies of a run's requests, ms. Requests without a reply count as the timeout."""
    due = pl.read_parquet(run / "requests.parquet").filter(pl.col("status") != "skipped")
    return due["latency_s"].fill_null(TIMEOUT_S).to_numpy() * 1e3


if __name__ == "__main__":
    main()

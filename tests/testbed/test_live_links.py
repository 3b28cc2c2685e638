"""Live links: runs whose packets leave by an interface of this machine. The network behind it is a `cellbed shell`."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import polars as pl
import pytest

from cellbed.laws.law import LawError
from cellbed.scenario import parse
from cellbed.testbed.machine.flows import compile_sampler
from cellbed.testbed.plan import make_plan
from in_process import cellbed
from remote_world import MACHINE, PORT, Machine, leftovers, machine, open_bed, until
from run_commands import command
from scenario_text import refusal, to_toml

BODY = 20_000
SERVER = """
import http.server, socketserver
socketserver.ThreadingTCPServer(("", 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
STRAY = f"""
import contextlib, socket
for address in (("{MACHINE}", {PORT}), ("10.77.0.2", 8000)):
    with contextlib.suppress(OSError):
        print("reached", socket.create_connection(address, 0.5))
print("tried")
"""
# In the shell: a laptop, whose usb0 leads into the shell through a modem that translates addresses and ports. The first
# argument is a command on the laptop when the load has started.
LAPTOP = f"""
unshare --net sleep 1000 & laptop=$!
trap 'kill $laptop $service $waiting || true' EXIT
until [ "$(readlink /proc/$laptop/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
set -e
in="nsenter --target $laptop --net"
ip link add peer0 type veth peer name usb0 netns $laptop
ip address add 10.77.0.1/30 dev peer0 && ip link set peer0 up
$in ip link set lo up && $in ip address add 10.77.0.2/30 dev usb0 && $in ip link set usb0 up
$in ip route add default via 10.77.0.1
nft 'table ip modem {{ chain out {{ type nat hook postrouting priority 100
    udp dport 47890 masquerade to :40000-40010
    oifname cellbed0 masquerade; }}; }}'
$in {sys.executable} -c 'import socket, time; _ = socket.create_server(("", 8000)); time.sleep(1000)' & service=$!
state() {{ $in ip -4 address; $in ip -4 route show table all; $in ip rule; $in nft list ruleset; }}
state > before
(until grep -qs "load started" live-*/events.jsonl; do sleep 0.1; done; $in $0) & waiting=$!
$in "$@" || status=$?
state > after
exit ${{status:-0}}
"""
HOST = '{ kind = "host", ssh = "root@192.0.2.7" }'


def scenario(backend: str = HOST, duration: str = "6 s") -> str:
    """Two endpoints that load a server on another machine over a live link."""
    served = {"on": "cloud", "command": ["python3", "-c", SERVER], "ready": {"port": 8080}, "copy_in": {"body": "body"}}
    return f"""
name = "live"
duration = "{duration}"
nodes.endpoint = {{ count = 2, cpus = 0.5, memory = "128 MiB" }}
nodes.cloud = {{ cpus = 0.5, memory = "128 MiB", backend = {backend} }}
links.mobile = {{ kind = "live", interface = "usb0", shared = true }}
transport.series = true
apps.web.kind = "http"
apps.web.client = "endpoint"
apps.web.url = "http://cloud:8080/body"
apps.web.rate = "4 /s"
apps.web.server = {to_toml(served)}
apps.stray.kind = "program"
apps.stray.client = {{ on = "endpoint", command = {json.dumps(["python3", "-c", STRAY])} }}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The machine behind the live network."""
    folder = tmp_path_factory.mktemp("server")
    with machine(folder) as found:
        yield found
        # The end of a run can kill the agent, which is on this machine here: the next one removes what it left.
        with open_bed(found.backend(), folder):
            pass
        assert until(lambda: not leftovers()), leftovers()


def run_live(folder: Path, text: str, meanwhile: str = "true") -> tuple[CompletedProcess[str], Path]:
    """Run a scenario on the laptop in a shell; return the process and the run's folder. meanwhile: see LAPTOP."""
    if shutil.which("nft") is None:
        pytest.skip("nft is missing: apt install nftables")
    try:
        compile_sampler()
    except LawError as error:
        pytest.skip(str(error))
    (folder / "live.toml").write_text(text)
    (folder / "body").write_bytes(bytes(BODY))
    link = ("--delay", "30 ms", "--up", "4 Mbit/s", "--down", "4 Mbit/s")
    run = command("run", "live.toml", "--out", ".")
    words = command("shell", *link, "--", "sh", "-c", LAPTOP, meanwhile, *run)
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    found = [*folder.glob("live-*")]
    assert len(found) == 1, done.stderr
    return done, found[0]


@pytest.mark.needs_tun
def test_report_of_a_live_run_has_the_delay_and_rate_of_its_network(server: Machine, tmp_path: Path) -> None:
    done, run = run_live(tmp_path, scenario(server.toml))
    assert done.returncode == 0, done.stdout + done.stderr
    requests = pl.read_parquet(run / "requests.parquet").filter(app="web")
    assert requests["status"].unique().to_list() == ["ok"]
    assert requests["latency_s"].min() >= 0.06 + 8 * BODY / 4e6  # type: ignore[operator]
    assert requests["part_server"].min() >= 0.06  # type: ignore[operator]
    assert pl.read_parquet(run / "flows.parquet")["rtt_s"].min() >= 0.06  # type: ignore[operator]
    facts = json.loads((run / "run.json").read_text())["nodes"][-1]["facts"]
    assert re.fullmatch(r"198\.[0-9.]+, UDP port 400(0\d|10)", facts["seen_as"])
    printed = " ".join(done.stdout.split())
    for text in ("Live network and server", "the network behind usb0 is live: nothing is shaped", "usb0 received "):
        assert text in printed
    # Nothing but the nodes of the run is reached, and the laptop is as before.
    assert [path.read_text() for path in run.glob("raw/stray.*.out")] == ["tried\n"] * 2
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


@pytest.mark.needs_tun
def test_run_whose_live_interface_disappears_ends_with_one_error(server: Machine, tmp_path: Path) -> None:
    done, run = run_live(tmp_path, scenario(server.toml, "60 s"), "ip link delete usb0")
    assert done.returncode == 1, done.stdout + done.stderr
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    lost = r"the live link was lost \d+\.\d s after the start of the workload: 'usb0' has disappeared"
    assert re.search(lost, error)
    assert re.search(lost, html.unescape((run / "report.html").read_text()))


AGENT = """
import os, socket
from cellbed_node import agent
agent.SILENCE_S = 0.2
agent.Meeting.__init__ = lambda *_: None
here, there = socket.socketpair()
agent.Agent(there.fileno(), os.dup(there.fileno()), None, meeting=agent.Meeting("")).run()
"""


def test_agent_behind_a_live_network_ends_when_nothing_comes_any_more() -> None:
    subprocess.run([sys.executable, "-c", AGENT], check=True, timeout=200)


STATES = (
    ("link set lo up", "obstacle('usb0', shared=False)", "this machine has no interface 'usb0'"),
    ("link add usb0 type veth peer name far0", "obstacle('lo', shared=False)", "'lo' leads to this machine itself"),
    ("link set far0 up", "obstacle('usb0', shared=False)", "'usb0' is down: sudo ip link set usb0 up"),
    ("link set usb0 up", "obstacle('usb0', shared=False)", "'usb0' has no IPv4 address"),
    ("address add 10.0.0.2/24 dev usb0", "obstacle('usb0', shared=False)", "None"),
    ("route add default via 10.0.0.1 metric 9", "obstacle('usb0', shared=False)", "'usb0' has this machine's only"),
    ("address add 10.1.0.2/24 dev far0", "obstacle('usb0', shared=True)", "None"),
    ("route add default via 10.1.0.1", "filter('1') and obstacle('usb0', shared=False)", "this machine drops replies"),
    ("link set lo up", "filter('2') and obstacle('usb0', shared=False)", "None"),
    ("link set lo up", "(used := Interface('usb0')).__enter__().problem()", "None"),
    ("link set lo up", "obstacle('usb0', shared=False)", "'usb0' is in use by another run"),
    ("address delete 10.0.0.2/24 dev usb0", "used.problem()", "'usb0' has no IPv4 address"),
    ("address add 10.0.0.3/24 dev usb0", "used.problem()", "'usb0' has the address 10.0.0.3 now, and had 10.0.0.2"),
    ("link delete usb0", "used.problem()", "'usb0' has disappeared"),
)
EVALUATE = """
import json, subprocess, sys
from pathlib import Path
from cellbed.testbed.machine.interface import Interface, obstacle
filter = Path("/proc/sys/net/ipv4/conf/usb0/rp_filter").write_text
for line, expression, _ in json.loads(sys.argv[1]):
    subprocess.run(["ip", *line.split()], check=True)
    print(eval(expression), flush=True)
"""


@pytest.mark.needs_tun
def test_interfaces_that_a_live_link_cannot_use_have_one_error_each() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    words = ["unshare", "--net", sys.executable, "-c", EVALUATE, json.dumps(STATES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    for printed, (_, _, expected) in zip(done.stdout.splitlines(), STATES, strict=True):
        assert printed.startswith(expected), done.stderr


@pytest.mark.parametrize(
    ("added", "error"),
    [
        ('links.core.cloud = "3 ms"', "links.core.cloud: a live link is the whole path"),
        ('nodes.edge = { cpus = 1, memory = "1 GiB" }', "nodes.edge.backend: a live link leads to machines over SSH"),
        ('faults = [{ kind = "outage", at = "1 s", for = "1 s", link = "mobile-0" }]', "faults[0].kind: nothing of"),
        ('nodes.phone = { class = "endpoint", cpus = 1, memory = "1 GiB", link = { kind = "radio", profile = '
         '"lowband-good" } }', "nodes.phone.link: with a live link, all endpoints use it"),
        ('apps.own = { kind = "http", client = "endpoint", server.on = "endpoint", url = "http://x/", rate = "1 /s" }',
         "apps.own.server.on: packets between endpoints do not pass"),
    ],
)  # fmt: skip
def test_keys_that_need_a_shaped_network_are_refused(added: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "body").touch()
    assert f" {error}" in refusal(scenario() + added, tmp_path)


def test_live_network_has_no_stages_and_no_prediction(tmp_path: Path) -> None:
    for name, text in (("body", ""), ("live.toml", scenario())):
        (tmp_path / name).write_text(text)
    plan = make_plan(parse(scenario(), source="live.toml", folder=tmp_path))
    assert [direction.stages for direction in plan.directions] == [[]] * 6
    done = cellbed("run", tmp_path / "live.toml", "--virtual", "--out", tmp_path, status=2)
    assert "the live network of [links.mobile]" in done.stderr

"""The HTTP load with real servers on loopback: nginx, Python's, TLS, and servers that break the protocol."""

import itertools
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from cellbed.scenario import parse
from cellbed.testbed.machine import certificates
from cellbed.workloads.http import kind as http
from cellbed.workloads.kind import Deployment
from cellbed_node.processes import find
from run_commands import free_port
from workload_program import OK, PATIENCE, SCENARIO, SECOND, Load, Node, _server
from workload_program import load as run_load

NGINX = find("nginx")
VERSIONS = ("1.1", "2")
GROUP = 4
"""Requests that the grouping server answers together."""
KEPT = 50
"""Requests after which nginx ends a connection."""


class Grouping(BaseHTTPRequestHandler):
    """Answers requests in groups of GROUP, so only if so many are under way at a time; /echo: with the body."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a reply in one piece: in two, Nagle's algorithm would delay the second
    barrier = threading.Barrier(GROUP)

    def do_GET(self) -> None:
        if self.path == "/group":
            self.barrier.wait(PATIENCE)
        self._answer(b"together")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class Servers:
    """Ports of nginx by version of HTTP, and of the server behind it; log: nginx's, a line per request."""

    ports: dict[str, int]
    behind: int
    log: Path

    def lines(self, count: int) -> list[dict[str, str]]:
        """The newest lines of the log; nginx writes each after the reply."""
        deadline = time.monotonic() + PATIENCE
        while len(found := self.log.read_text().splitlines()) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return [json.loads(line) for line in found[-count:]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    if NGINX is None:
        pytest.skip("nginx is not installed: sudo apt install nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "page").write_bytes(bytes(100_000))
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Grouping)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    ports = {version: free_port() for version in VERSIONS}
    temporary = " ".join(f"{what}_temp_path {folder};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    hosts = "".join(
        f"server {{ listen 127.0.0.1:{ports[version]} {'http2' if version == '2' else ''}; root {folder};"
        f" location /group {{ proxy_pass http://127.0.0.1:{behind.server_port}; }}"
        f" location /echo {{ proxy_pass http://127.0.0.1:{behind.server_port}; }}"
        " }"
        for version in VERSIONS
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors; events {{}} http {{ {temporary}"
        f" client_max_body_size 10m; keepalive_requests {KEPT};"
        " log_format lines escape=json"
        ' \'{"id":"$http_cellbed_request","up":"$request_length","down":"$bytes_sent","agent":"$http_user_agent"}\';'
        f" access_log {folder}/requests lines; {hosts} }}"
    )
    nginx = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-e", folder / "errors"])
    try:
        listening = Path(f"/proc/{nginx.pid}/net/tcp")
        while not all(f":{port:04X} 00000000:0000 0A" in listening.read_text() for port in ports.values()):
            assert nginx.poll() is None, (folder / "errors").read_text()
            time.sleep(0.01)
        yield Servers(ports, behind.server_port, folder / "requests")
    finally:
        nginx.kill()
        nginx.wait()
        behind.shutdown()
        behind.server_close()


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return lambda url, **keys: run_load(tmp_path, "http", url, **keys)[0]


def _connections(requests: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The requests of each connection in their order on it."""
    by_port = itertools.groupby(
        sorted(requests, key=lambda request: (request["local_port"], request["order"])),
        key=lambda request: request["local_port"],
    )
    return [list(group) for _, group in by_port]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_request_knows_its_bytes_and_times_on_its_connection(load: Load, servers: Servers, version: str) -> None:
    requests = load(f"http://127.0.0.1:{servers.ports[version]}/page", version=version)
    assert {(request["status"], request["code"], request["error"]) for request in requests} == {("ok", 200, None)}
    assert len(requests) == 30
    stamps = ("intended_ns", "started_ns", "opening_ns", "sent_ns", "accepted_ns", "reply_ns")
    for request in requests:
        times = [request[stamp] for stamp in stamps]
        assert times == sorted(times)
        assert request["remote_port"] == servers.ports[version]
        assert request["bytes_down"] == 100_000
        assert request["tcp"]["cwnd"] > 0
    for connection in _connections(requests):
        assert [request["order"] for request in connection] == list(range(len(connection)))
        for earlier, later in itertools.pairwise(connection):
            assert earlier["uplink_end"] <= later["uplink_start"]
            if version == "1.1":  # of HTTP/2, frames of flow control lie between
                assert earlier["uplink_end"] == later["uplink_start"]
                assert earlier["downlink_end"] == later["downlink_start"]
        if version == "1.1":
            assert connection[0]["uplink_start"] == connection[0]["downlink_start"] == 0
    logged = {line["id"]: line for line in servers.lines(len(requests))}
    for request in requests:
        line = logged[f"endpoint-0/{request['request']}"]
        assert line["agent"] == "cellbed"
        down = request["downlink_end"] - request["downlink_start"]
        if version == "1.1":
            assert request["uplink_end"] - request["uplink_start"] == int(line["up"])
            assert down == int(line["down"])
        else:
            assert 100_000 < int(line["down"]) <= down < 110_000


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_arrives_whole(load: Load, servers: Servers, version: str) -> None:
    requests = load(
        f"http://127.0.0.1:{servers.ports[version]}/echo",
        version=version,
        method="POST",
        body_size="300 KiB",
        rate="5 /s",
        headers={"Content-Type": "application/octet-stream"},
    )
    assert {(request["status"], request["bytes_up"], request["bytes_down"]) for request in requests} == {
        ("ok", 307_200, 307_200)
    }
    for request in requests:
        assert request["uplink_end"] - request["uplink_start"] > 307_200


@pytest.mark.parametrize(("version", "connections"), [("1.1", GROUP), ("2", 1)])
def test_requests_are_under_way_together_over_several_connections_or_streams(
    load: Load, servers: Servers, version: str, connections: int
) -> None:
    requests = load(
        f"http://127.0.0.1:{servers.ports[version]}/group",
        version=version,
        connections=connections,
        rate=f"{2 * GROUP} /s",
        timeout="60 s",
    )
    assert [request["code"] for request in requests] == [200] * 2 * GROUP
    assert len(_connections(requests)) == connections


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_that_ends_connections_in_order_loses_no_request(load: Load, servers: Servers, version: str) -> None:
    requests = load(f"http://127.0.0.1:{servers.ports[version]}/page", version=version, rate="120 /s")
    assert {(request["status"], request["code"]) for request in requests} == {("ok", 200)}
    assert len(_connections(requests)) >= len(requests) / KEPT


def test_a_closed_loop_keeps_as_many_requests_under_way_as_asked_for(load: Load, servers: Servers) -> None:
    requests = load(f"http://127.0.0.1:{servers.behind}/", arrivals={"kind": "closed", "in_flight": 3})
    assert {request["code"] for request in requests} == {200}
    begun = sorted(request["intended_ns"] for request in requests)
    over = sorted(request["reply_ns"] for request in requests)
    assert begun[0] == begun[1] == begun[2]
    # Request n + 3 follows the n-th reply.
    assert len(requests) > 3
    assert all(later >= earlier for earlier, later in zip(over, begun[3:], strict=False))


REPLIES = {
    "nothing": (b"", "1.1", None, "the server closed the connection before the reply"),
    "half a head": (b"HTTP/1.1 200", "1.1", None, "the server closed the connection in the middle of the reply"),
    "half a body": (OK[:-1], "1.1", 200, "the server closed the connection in the middle of the reply"),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "1.1", None, "malformed reply: "),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "1.1", None, "malformed reply: "),
    "an endless head": (b"HTTP/1.1 200 OK\r\nX: " + bytes(1 << 18), "1.1", None, "malformed reply: "),
    "HTTP/1.1 for 2": (OK, "2", None, "malformed reply: not HTTP/2; does the server speak it without TLS?"),
    "nothing for 2": (b"", "2", None, "the server closed the connection before the reply"),
}


def _end_with(reply: bytes, connection: socket.socket) -> None:
    """Send a reply to a request, and end the connection."""
    connection.recv(1 << 16)
    connection.sendall(reply)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(1 << 16):  # what is not read would become a reset
        pass


@pytest.mark.parametrize(("reply", "version", "code", "reason"), REPLIES.values(), ids=REPLIES)
def test_a_reply_that_is_none_is_a_lost_request_with_a_reason(
    load: Load, reply: bytes, version: str, code: int | None, reason: str
) -> None:
    with _server(partial(_end_with, reply)) as port:
        requests = load(f"http://127.0.0.1:{port}/", version=version)
    assert len(requests) == 30
    for request in requests:
        assert (request["status"], request["code"], request["reply_ns"]) == ("lost", None, None)
        assert request["error"].startswith(reason)


def test_a_request_that_waits_for_a_connection_does_not_get_one_that_the_server_has_ended(load: Load) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        time.sleep(0.1)  # meanwhile further requests are due
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\ntext")

    with _server(serve) as port:
        requests = load(f"http://127.0.0.1:{port}/", connections=1, rate="30 /s")
    assert [request["status"] for request in requests] == ["ok"] * 30


def test_statuses_from_400_on_are_errors_and_redirects_are_replies(load: Load) -> None:
    replies = itertools.cycle([b"301 Moved\r\nLocation: /", b"503 Busy", b"299 Odd", b"799 Odder"])

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        # An interim reply comes first; a reply without a length ends with the connection.
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 " + next(replies) + b"\r\n\r\ntext")

    with _server(serve) as port:
        requests = load(f"http://127.0.0.1:{port}/", connections=1, rate="8 /s")
    assert [(request["status"], request["code"], request["error"]) for request in requests] == 2 * [
        ("ok", 301, None),
        ("failed", 503, "HTTP status 503 Service Unavailable"),
        ("ok", 299, None),
        ("failed", 799, "HTTP status 799"),
    ]
    for request in requests:
        assert request["bytes_down"] == 4
        assert request["downlink_start"] == len(b"HTTP/1.1 103 Early Hints\r\n\r\n")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_before_the_whole_request_is_one(load: Load, servers: Servers, version: str) -> None:
    url = f"http://127.0.0.1:{servers.ports[version]}/echo"
    requests = load(url, version=version, method="POST", body_size="20 MB", rate="3 /s", connections=1)
    assert {(request["status"], request["code"]) for request in requests} == {("failed", 413)}


def test_a_server_that_is_not_there_is_a_reason_and_the_schedule_goes_on(load: Load) -> None:
    requests = load(f"http://127.0.0.1:{free_port()}/")
    assert len(requests) == 30
    assert {(request["status"], request["error"]) for request in requests} == {
        ("lost", "cannot connect: Connection refused")
    }


def test_a_request_that_is_never_answered_times_out_and_holds_its_connection(load: Load) -> None:
    first = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        if first.is_set():
            connection.sendall(OK)
        else:
            first.set()
            connection.recv(1)  # until the client gives up

    with _server(serve) as port:
        requests = load(f"http://127.0.0.1:{port}/", connections=1, timeout="2 s", rate="5 /s")
    assert {request["status"] for request in requests} == {"timed-out"}
    assert [request["sent_ns"] is not None for request in requests] == [True] + [False] * 4


def test_names_in_braces_are_filled_in(tmp_path: Path) -> None:
    url = "http://{server.address}:81/{node.name}?{{{seed}}}"
    keys = f'url = "{url}"\nheaders = {{ Host = "a.test" }}\nbody = "{{duration_s}}"'
    scenario = parse(f'{SCENARIO}rate = "1 /s"\n{keys}\n', source="http.toml", folder=tmp_path)
    nodes = [Node("edge-0", "edge", ipv4=IPv4Address("10.0.0.1")), Node("edge-1", "edge", ipv4=IPv4Address("10.0.0.2"))]
    clients = [Node(f"endpoint-{index}", "endpoint") for index in range(3)]
    deployment = Deployment("web", scenario.applications["workload"], 0, clients, nodes, 0, 2 * SECOND)
    found = [
        json.loads(Path(process.arguments[1]).read_text())
        for process in http.processes(deployment, tmp_path, cache=tmp_path, seed=7)
    ]
    assert [each["hosts"] for each in found] == [["10.0.0.1"], ["10.0.0.2"], ["10.0.0.1"]]
    assert {each["target"] for each in found} == {f"/endpoint-{index}?{{7}}" for index in range(3)}
    assert {(each["port"], each["authority"], each["body"]) for each in found} == {(81, "a.test", "2")}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an authority with certificates for this machine and for another one."""
    if find(certificates.PROGRAM) is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("authority")
    certificates.issue(folder, {"here": ["127.0.0.1", "localhost"], "elsewhere": ["edge-0", "100.64.64.2", "fd63::2"]})
    return folder


def _trusted(authority: Path) -> str:
    return str(authority / certificates.AUTHORITY)


@contextmanager
def _pages(authority: Path, name: str) -> Iterator[int]:
    """The port of a server with the certificate of this name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Grouping)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(authority / name / file for file in certificates.FILES))
    context.set_alpn_protocols(["http/1.1"])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_an_authority_leaves_no_key_but_those_of_servers(authority: Path) -> None:
    files = {str(path.relative_to(authority)) for path in authority.rglob("*.*")}
    servers = {f"{name}/{file}" for name in ("here", "elsewhere") for file in certificates.FILES}
    assert files == servers | {certificates.AUTHORITY}


def test_a_request_over_tls_knows_the_records_that_carried_it(load: Load, authority: Path) -> None:
    with _pages(authority, "here") as port:
        keys = {"method": "POST", "body_size": "40 kB", "connections": 1}
        requests = load(f"https://127.0.0.1:{port}/", authorities=_trusted(authority), **keys)
    assert {(each["status"], each["code"], each["bytes_down"]) for each in requests} == {("ok", 200, 40_000)}
    requests.sort(key=lambda each: each["order"])
    first, *later = requests
    assert 0 < first["tls_uplink_end"] < first["uplink_start"]
    assert 0 < first["tls_downlink_end"] <= first["downlink_start"]
    for earlier, each in zip(requests, later, strict=False):
        assert each["uplink_start"] == earlier["uplink_end"]
        assert each["downlink_start"] == earlier["downlink_end"]
        assert 40_000 < each["downlink_end"] - each["downlink_start"] < 41_000
        assert each["tls_uplink_end"] is None


def test_a_certificate_for_another_server_is_refused(load: Load, authority: Path) -> None:
    with _pages(authority, "elsewhere") as port:
        requests = load(f"https://127.0.0.1:{port}/", authorities=_trusted(authority), rate="4 /s")
    assert {each["status"] for each in requests} == {"lost"}
    assert all(each["error"].startswith("TLS: the server's certificate is refused: IP address") for each in requests)


def test_a_server_without_http_2_over_tls_is_named(load: Load, authority: Path) -> None:
    with _pages(authority, "here") as port:
        requests = load(f"https://127.0.0.1:{port}/", authorities=_trusted(authority), rate="4 /s", version="2")
    assert {each["status"] for each in requests} == {"lost"}
    assert "malformed reply: not HTTP/2; does the server speak it over TLS?" in {each["error"] for each in requests}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(OK, "TLS: no TLS at this port"), (b"", "the server closed the connection during the handshake")],
)
def test_a_server_without_tls_is_named(load: Load, authority: Path, reply: bytes, reason: str) -> None:
    with _server(partial(_end_with, reply)) as port:
        requests = load(f"https://127.0.0.1:{port}/", authorities=_trusted(authority), rate="4 /s")
    assert {each["status"] for each in requests} == {"lost"}
    assert all(each["error"].startswith(reason) for each in requests)

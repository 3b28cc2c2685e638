"""Requests over TLS with certificates of a run's authority: a real server on loopback, and servers that are refused."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cellbed.testbed.machine import certificates
from cellbed_node.processes import find
from workload_program import OK, _server, load

pytestmark = pytest.mark.skipif(find(certificates.PROGRAM) is None, reason="openssl is not installed")
SIZE = 40_000


class Pages(BaseHTTPRequestHandler):
    """Answers in two writes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        self.wfile.write(bytes(SIZE))

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an authority with certificates for this machine and for another one."""
    folder = tmp_path_factory.mktemp("authority")
    certificates.issue(folder, {"here": ["127.0.0.1", "localhost"], "elsewhere": ["edge-0", "100.64.64.2", "fd63::2"]})
    return folder


@contextmanager
def _pages(authority: Path, name: str) -> Iterator[int]:
    """The port of a server with the certificate of this name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(authority / name / file for file in certificates.FILES))
    context.set_alpn_protocols(["http/1.1"])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def _load(tmp_path: Path, authority: Path, port: int, **keys: Any) -> list[dict[str, Any]]:
    trusted = str(authority / certificates.AUTHORITY)
    return load(tmp_path, "http", f"https://127.0.0.1:{port}/", authorities=trusted, **keys)[0]


def test_an_authority_leaves_no_key_but_those_of_servers(authority: Path) -> None:
    files = {str(path.relative_to(authority)) for path in authority.rglob("*.*")}
    servers = {f"{name}/{file}" for name in ("here", "elsewhere") for file in certificates.FILES}
    assert files == servers | {certificates.AUTHORITY}


def test_a_request_over_tls_knows_the_records_that_carried_it(tmp_path: Path, authority: Path) -> None:
    with _pages(authority, "here") as port:
        requests = _load(tmp_path, authority, port, connections=1)
    assert {(each["status"], each["code"], each["bytes_down"]) for each in requests} == {("ok", 200, SIZE)}
    requests.sort(key=lambda each: each["order"])
    first, *later = requests
    assert 0 < first["tls_uplink_end"] < first["uplink_start"]
    assert 0 < first["tls_downlink_end"] <= first["downlink_start"]
    for earlier, each in zip(requests, later, strict=False):
        assert each["uplink_start"] == earlier["uplink_end"]
        assert each["downlink_start"] == earlier["downlink_end"]
        assert SIZE < each["downlink_end"] - each["downlink_start"] < SIZE + 1000
        assert each["tls_uplink_end"] is None


def test_a_certificate_for_another_server_is_refused(tmp_path: Path, authority: Path) -> None:
    with _pages(authority, "elsewhere") as port:
        requests = _load(tmp_path, authority, port, rate="4 /s")
    assert {each["status"] for each in requests} == {"lost"}
    assert all(each["error"].startswith("TLS: the server's certificate is refused: IP address") for each in requests)


def test_a_server_without_http_2_over_tls_is_named(tmp_path: Path, authority: Path) -> None:
    with _pages(authority, "here") as port:
        requests = _load(tmp_path, authority, port, rate="4 /s", version="2")
    assert {each["status"] for each in requests} == {"lost"}
    assert "malformed reply: not HTTP/2; does the server speak it over TLS?" in {each["error"] for each in requests}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(OK, "TLS: no TLS at this port"), (b"", "the server closed the connection during the handshake")],
)
def test_a_server_without_tls_is_named(tmp_path: Path, authority: Path, reply: bytes, reason: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(reply)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass

    with _server(serve) as port:
        requests = _load(tmp_path, authority, port, rate="4 /s")
    assert {each["status"] for each in requests} == {"lost"}
    assert all(each["error"].startswith(reason) for each in requests)

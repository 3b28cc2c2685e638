"""The server of the page: who may read it, and who may give commands."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from run_commands import command, run
from tests.ui.test_snapshot import RUN


class Page:
    """A page of `cellbed ui` as a browser sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        parts = urlsplit(self.address)
        assert parts.hostname == "127.0.0.1"
        self.port, self.token = parts.port, parts.query.removeprefix("token=")
        entered = self.get(f"/?{parts.query}", cookie=None)
        self.cookie = entered.headers["Set-Cookie"].split(";")[0]
        self.attributes = entered.headers["Set-Cookie"]
        self.base = re.search(r"url=(/[^\"]+)", entered.text)[1]  # type: ignore[index]

    def get(
        self, path: str, *, method: str = "GET", cookie: str | None = "", body: str = "", **headers: str
    ) -> "Reply":
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)
        cookie = self.cookie if cookie == "" else cookie
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, named | ({"Cookie": cookie} if cookie else {}))
        return Reply(connection.getresponse())

    def do(self, words: object, **options: Any) -> "Reply":
        return self.get(f"{self.base}do", method="POST", body=json.dumps(words), **options)


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.text = response.status, response.headers, response.read().decode()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("ui")
    (folder / "runs" / "one").mkdir(parents=True)
    (folder / "runs" / "one" / "run.json").write_text(json.dumps(RUN))
    (folder / "runs" / "one" / "report.html").write_text("<script>alert(1)</script>")
    options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": folder}
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    with subprocess.Popen(command("ui", "--no-browser"), env=environment, **options) as process:
        yield Page(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, ""), "Ctrl-C ends it cleanly"


def test_the_page_needs_the_token_or_its_cookie(page: Page) -> None:
    assert page.get(page.base).status == 200
    for path in (
        "/",
        "/?token=",
        "/?token=wrong",
        page.base,
        f"{page.base}finished",
        f"{page.base}events",
        "/favicon.ico",
    ):
        for cookie in (None, "cellbed=wrong", "cellbed=", "x"):
            refused = page.get(path, cookie=cookie)
            assert refused.status == 403
            assert page.token not in refused.text
    assert page.get("/").status == 403, "the cookie alone: its path is part of the secret"
    assert {"HttpOnly", "SameSite=Strict", f"Path={page.base}"} <= set(page.attributes.split("; "))


def test_only_names_of_the_loopback_are_served(page: Page) -> None:
    """DNS rebinding: a page of another site whose name leads to this machine."""
    for host in ("attacker.example", f"attacker.example:{page.port}", "127.0.0.1.attacker.example", "[::1", ""):
        assert page.get(page.base, Host=host).status in (400, 403)
    assert page.get(page.base, Host="localhost:8080").status == 200, "forwarded by SSH"


def test_a_command_needs_the_token_as_a_header(page: Page) -> None:
    words = ["link", "set", "x", "y", "up"]
    assert page.do(words).status == 403, "the cookie alone"
    assert page.do(words, X_Cellbed_Token="wrong").status == 403
    assert page.do(words, X_Cellbed_Token=page.token, cookie=None).status == 403
    assert page.do(words, X_Cellbed_Token=page.token, Origin="http://127.0.0.1:1").status == 403
    assert page.get(f"{page.base}do", X_Cellbed_Token=page.token).status == 404
    assert page.get(page.base, method="PUT").status == 501
    own = page.do(words, X_Cellbed_Token=page.token, Origin=f"http://127.0.0.1:{page.port}")
    assert own.status == 200
    malformed: Any
    for malformed in ([], {}, "down", [7], ["exec", "x", "sh"], ["down", "none"], ["up", "a\nb"]):
        refused = page.do(malformed, X_Cellbed_Token=page.token)
        assert (refused.status, "error" in json.loads(refused.text)) == (400, True)


def test_a_command_shows_its_words_and_its_error(page: Page) -> None:
    assert page.do(["up", "none.toml"], X_Cellbed_Token=page.token).status == 200
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=200)
    connection.request("GET", f"{page.base}events", headers={"Cookie": page.cookie})
    events = connection.getresponse()
    seen = ""
    while "cellbed up none.toml" not in seen:  # the test has a time limit
        seen = events.readline().decode()
    assert '"status":2' in seen
    assert "error: none.toml: no such file" in seen
    connection.close()


def test_idle_connections_of_others_delay_nothing(page: Page) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", page.port))) for _ in range(80)]
        for connection in idle[-40:]:
            connection.sendall(b"GET / HTTP/1.1\r\n")
        assert page.get(page.base).status == 200
        idle[0].settimeout(200)
        assert idle[0].recv(1) == b"", "the oldest has ended"
        assert idle[-1].recv(1) == b"", "and later, the others"


def test_no_page_may_reach_the_network_or_be_framed(page: Page) -> None:
    policy = page.get(page.base).headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    text = page.get(page.base).text
    for name in re.findall(r'(?:src|href)="([^"#]+)"', text):
        if name != "data:,":
            assert page.get(page.base + name).status == 200
    report = page.get(f"{page.base}report?run=one")
    assert report.headers["Content-Security-Policy"].startswith("sandbox allow-scripts allow-downloads;")
    assert "connect-src" not in report.headers["Content-Security-Policy"]
    assert report.headers["Referrer-Policy"] == "no-referrer"


def test_runs_are_listed_and_only_these_are_served(page: Page) -> None:
    listed = json.loads(page.get(f"{page.base}finished").text)
    assert [each["key"] for each in listed["runs"]] == ["one"]
    assert "redeploy" in listed["strategies"]
    for path in (
        "report",
        "report?run=none",
        "report?run=../runs/one",
        "compare?run=one&run=..",
        "../../etc/passwd",
        "ui.py",
    ):
        assert page.get(page.base + path).status == 404


def test_malformed_requests_end_their_connection_only(page: Page) -> None:
    for content in (
        b"\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 10_000,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" + bytes(100_000),
    ):
        with socket.create_connection(("127.0.0.1", page.port)) as connection, contextlib.suppress(OSError):
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    assert page.get(page.base).status == 200


def test_a_port_in_use_is_an_error(page: Page) -> None:
    done = run("ui", "--port", page.port, "--no-browser", status=2)
    assert f"--port {page.port}: Address already in use: choose another" in done.stderr

"""Journeys over HTTP, and messages of streamed replies: a real server on loopback, and texts cut anywhere."""

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from any_text import ODD_TEXT, many
from cellbed_node.http import journeys
from cellbed_node.http.journeys import Journey, Step, User
from cellbed_node.http.messages import SPLITTERS
from workload_program import Load
from workload_program import load as run_load

MS = 1_000_000
SHOP = [
    {"get": "/", "take": {"session": "^set-cookie: session=([^;]+)", "item": "$.items[1].id"}},
    {
        "post": "/cart?item={item}",
        "name": "cart",
        "headers": {"Cookie": "session={session}"},
        "body": '{{"item": {item}}}',
        "think": ["20 ms", "40 ms"],
        "take": {"total": '"total": ([0-9]+)'},
    },
    {"get": "/paid/{total}", "headers": {"Cookie": "session={session}"}},
]


class Shop(BaseHTTPRequestHandler):
    """Gives each visitor a session, and answers only those who come back with it."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    sessions = itertools.count(1)
    asked: list[str]

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer({"items": [{"id": 7}, {"id": 8}]}, cookie=f"session=s{next(self.sessions)}; Path=/")
        else:
            self._answer({"paid": True} if self.path == "/paid/800" else None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer({"total": 100 * body["item"]} if self.path == "/cart?item=8" else None)

    def _answer(self, content: Any, cookie: str | None = None) -> None:
        known = cookie is not None or self.headers["Cookie"] in {f"session=s{number}" for number in range(1, 500)}
        self.asked.append(f"{self.command} {self.path} {self.headers['Cookie']}")
        self.send_response(200 if known and content is not None else 403)
        text = json.dumps(content).encode()
        self.send_header("Content-Length", str(len(text)))
        if cookie is not None:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_reply_that_makes_an_expression_take_for_ever_does_not_hold_up_the_run(monkeypatch: Any) -> None:
    monkeypatch.setattr(journeys, "TAKING_S", 0.2)
    take = {"name": "^(a+)+$"}
    step = Step(name="x", method="GET", target="/", headers={}, body="", think_ns=[0], take=take)
    user = User([Journey(1, [step])], 0, "endpoint-0", 1, {})
    assert user.take(b"aaa") is None
    for reply in (b"a" * 40 + b"!", b"aaa"):
        assert ": it took 0.2 s of processor time, and is searched no more" in str(user.take(reply))


@pytest.fixture
def shop() -> Iterator[str]:
    """URL of a shop."""
    Shop.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return lambda url, **keys: run_load(tmp_path, "http", url, **keys)[0]


def _journeys(requests: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The requests of each journey, in order."""
    found: dict[int, list[dict[str, Any]]] = {}
    for request in sorted(requests, key=lambda each: each["intended_ns"]):
        found.setdefault(request["journey"], []).append(request)
    return found


def test_users_go_on_with_values_from_replies_after_a_time_to_think(load: Load, shop: str) -> None:
    requests = load(shop, journey=SHOP, rate="10 /s")
    assert {(request["status"], request["code"]) for request in requests} == {("ok", 200)}, requests
    journeys = _journeys(requests)
    assert list(journeys) == list(range(10))
    whole = [each for each in journeys.values() if len(each) == len(SHOP)]
    assert whole
    for entered, cart, paid in whole:
        assert [each["step"] for each in (entered, cart, paid)] == ["GET /", "cart", "GET /paid/{total}"]
        assert 20 * MS <= cart["intended_ns"] - entered["reply_ns"] <= 40 * MS
        assert paid["intended_ns"] == cart["reply_ns"]
        assert cart["bytes_up"] == len('{"item": 8}')
    sessions = [line.rpartition(" ")[2] for line in Shop.asked if line.startswith("POST")]
    assert len(sessions) == len(set(sessions)) >= len(whole)


def test_a_closed_loop_has_as_many_users_as_asked_for(load: Load, shop: str) -> None:
    requests = load(shop, journey=SHOP, arrivals={"kind": "closed", "in_flight": 2})
    journeys = _journeys(requests)
    assert len(journeys) > 2
    begun = sorted(each[0]["intended_ns"] for each in journeys.values())
    over = sorted(each[-1]["reply_ns"] for each in journeys.values() if len(each) == len(SHOP))
    # A user comes when the one before the last has gone.
    assert all(later >= earlier for earlier, later in zip(over, begun[2:], strict=False))


def test_a_reply_without_the_value_fails_and_ends_the_journey(load: Load, shop: str) -> None:
    steps = [{"get": "/", "take": {"price": "$.price"}}, {"get": "/paid/{price}"}]
    requests = load(shop, journey=steps, rate="5 /s")
    assert {(request["step"], request["status"], request["error"]) for request in requests} == {
        ("GET /", "failed", "the reply has no 'price', $.price")
    }


def test_users_choose_journeys_by_their_weights(load: Load, shop: str) -> None:
    journeys = {
        "look": {"weight": 3, "steps": [{"get": "/", "name": "look"}]},
        "wait": {"steps": [{"get": "/", "name": "wait"}]},
    }
    requests = load(shop, journeys=journeys, rate="60 /s")
    names = [request["step"] for request in requests]
    assert len(names) == 60
    assert names.count("look") > names.count("wait") > 0
    again = load(shop, journeys=journeys, rate="60 /s")
    assert names == [request["step"] for request in again]


@many
@given(ODD_TEXT, ODD_TEXT, st.sampled_from(["$", "$.a", "$.a[0].b", "a(.)", "^a", "x*", "(y)|z"]))
def test_any_reply_has_the_value_or_a_reason(head: str, body: str, expression: str) -> None:
    step = Step(name="a", method="GET", target="/", headers={}, body="", think_ns=[0], take={"a": expression})
    user = User([Journey(1, [step])], 0, "endpoint-0", 1, {})
    reason = user.take(f"{head}\n\n{body}".encode())
    assert (reason is None) == ("a" in user.values)
    assert reason is not None or user.values["a"].isprintable()


@many
@given(
    st.lists(st.sampled_from(["data: x\n", "data\n", ": c\n", "id: 1\r\n", "\n", "\r\n"])), st.lists(st.integers(1, 9))
)
def test_events_are_found_however_their_bytes_are_cut(lines: list[str], cuts: list[int]) -> None:
    body = "".join(lines).encode()
    whole, cut = SPLITTERS["sse"](), SPLITTERS["sse"]()
    expected = whole.feed(body, complete=True)
    found, at = [], 0
    for length in [*cuts, len(body)]:
        found += cut.feed(body[at : at + length], complete=False)
        at += length
    assert found == expected
    assert sum(found) <= len(body)


@many
@given(st.lists(st.binary(max_size=9)), st.booleans())
def test_chunks_are_messages_and_the_rest_is_one(chunks: list[bytes], ended: bool) -> None:
    splitter = SPLITTERS["chunks"]()
    found = [size for chunk in chunks for size in splitter.feed(chunk, complete=True)]
    found += splitter.feed(b"rest", complete=ended) + splitter.rest()
    assert found == [*(len(chunk) for chunk in chunks if chunk), 4]

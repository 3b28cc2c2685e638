"""OpenTelemetry: the receiver, spans as requests and traces, and a run of instrumented programs."""

import gzip
import http.client
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import cellbed
import in_process
from any_text import many, value_or_line
from cellbed.measure import telemetry
from cellbed.measure.connections import SCHEMA as CONNECTIONS
from cellbed.measure.connections import TALK
from cellbed.measure.reported import attach
from cellbed.measure.telemetry import arrange, read_traces
from cellbed.runformat.description import Reported
from cellbed.runformat.spans import REPORTED
from cellbed.testbed.machine.process import Place
from cellbed.testbed.programs import telemetry as telemetry_of_runs
from cellbed.testbed.programs.telemetry import Telemetry, environment, overrides
from cellbed_node import receiver
from cellbed_node.exports import HEADER, LARGEST_BODY
from cellbed_node.receiver import MOST_CONNECTIONS
from run_commands import free_port
from scenario_text import app_table, scenario_head, server_keys

HERE = Place("/proc/self/ns/net")
PROTOBUF = {"Content-Type": "application/x-protobuf"}
TRACE = bytes(range(16))


def span(number: int, parent: int | None, kind: int, name: str, begin: int, end: int, **attributes: str) -> Span:
    made = Span(trace_id=TRACE, span_id=number.to_bytes(8), name=name, kind=kind)  # type: ignore[arg-type]
    made.start_time_unix_nano, made.end_time_unix_nano = begin, end
    made.parent_span_id = parent.to_bytes(8) if parent is not None else b""
    for key, value in attributes.items():
        made.attributes.add(key=key.replace("_", ".")).value.string_value = value
    return made


def export(*spans: Span, app: str | None = "shop") -> bytes:
    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    if app is not None:
        group.resource.attributes.add(key="cellbed.app").value.string_value = app
    group.scope_spans.add().spans.extend(spans)
    return made.SerializeToString()


class Received:
    """A receiver for this machine's own network."""

    def __init__(self, folder: Path) -> None:
        self.record = folder / "phone-0.otlp"
        self.telemetry = Telemetry(folder, {})
        self.telemetry.listen("phone-0", HERE)

    def post(self, body: bytes, path: str = "/v1/traces", method: str = "POST", **headers: str) -> int:
        connection = http.client.HTTPConnection(*receiver.ADDRESS, timeout=200)
        named = PROTOBUF | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        status = connection.getresponse().status
        connection.close()
        return status

    def send(self, data: bytes) -> None:
        """Send bytes and end; wait until the receiver has done so, too."""
        with socket.create_connection(receiver.ADDRESS, timeout=200) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1000):
                pass

    def bodies(self) -> list[bytes]:
        """End it; what it has stored."""
        self.warnings = self.telemetry.close()
        return [body for _, _, body in telemetry._bodies(self.record)]


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    address = "127.0.0.1", free_port()
    for module in (receiver, telemetry_of_runs):
        monkeypatch.setattr(module, "ADDRESS", address)
    monkeypatch.setattr(Place, "enter", lambda self, **_: None)
    found = Received(tmp_path)
    yield found
    found.telemetry.close()


def test_exports_are_stored_as_they_are(received: Received) -> None:
    body = export(span(1, None, Span.SPAN_KIND_CLIENT, "GET", 1, 2))
    assert received.post(body) == 200
    assert received.post(gzip.compress(body), Content_Encoding="gzip") == 200
    # What is no export of spans is not counted.
    assert (received.post(b"", "/v1/metrics"), received.post(b"", "/v1/logs")) == (200, 200)
    assert received.post(b"", "/", method="GET") == 405
    received.send(b"")
    assert received.bodies() == [body, body]
    assert received.warnings == []


def test_each_export_that_is_not_stored_is_counted_with_its_reason(received: Received) -> None:
    assert received.post(b"{}", Content_Type="application/json") == 415
    assert received.post(b"x", Content_Encoding="zstd") == 415
    assert received.post(b"not gzip", Content_Encoding="gzip") == 400
    assert received.post(gzip.compress(bytes(LARGEST_BODY + 1)), Content_Encoding="gzip") == 413
    assert received.post(b"x", "/") == 404
    assert received.post(b"x", "/v1/tracez") == 404
    assert received.post(b"x", "/v1/tracez?again") == 404
    received.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    received.send(b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3")
    received.send(b"an export\r\n\r\n")
    received.send(b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\ncut")
    assert received.bodies() == []
    reasons = "damaged", "8 MiB", "not gzip", "not complete", "protobuf", "gRPC", "over TLS", "to /,", "/v1/tracez,"
    assert all(reason in each for reason, each in zip(reasons, received.warnings, strict=True)), received.warnings
    assert [int(each.split()[1]) for each in received.warnings] == [1, 1, 1, 2, 1, 1, 1, 1, 2]


def test_reasons_that_a_program_chooses_are_bounded(received: Received) -> None:
    for number in range(40):
        received.post(b"x", f"/%1b{number}" + "a" * 2000)
    assert received.bodies() == []
    assert len(received.warnings) <= 16
    assert max(map(len, received.warnings)) < 200
    assert sum(int(each.split()[1]) for each in received.warnings) == 40


def test_a_body_of_several_members_of_gzip_is_read_whole(received: Received) -> None:
    one, other = (export(span(number, None, Span.SPAN_KIND_CLIENT, "GET", 1, 2)) for number in (1, 2))
    assert received.post(gzip.compress(one) + gzip.compress(other), Content_Encoding="gzip") == 200
    cut = gzip.compress(one) + gzip.compress(other)[:-4]
    assert received.post(cut, Content_Encoding="gzip") == 400
    bomb = gzip.compress(bytes(LARGEST_BODY // 2)) * 3
    assert received.post(bomb, Content_Encoding="gzip") == 413
    assert received.bodies() == [one + other]


def test_a_body_that_does_not_end_is_not_kept_in_memory(received: Received) -> None:
    connection = http.client.HTTPConnection(*receiver.ADDRESS, timeout=200)
    connection.putrequest("POST", "/v1/traces")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"

    def flood() -> None:
        for _ in range(8 * LARGEST_BODY >> 16):
            connection.send(chunk)

    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        flood()
    assert received.bodies() == []
    assert received.warnings == ["phone-0: 1 exports of OpenTelemetry were lost: a body is larger than 8 MiB"]


def test_more_connections_than_allowed_are_closed_and_others_served(received: Received) -> None:
    held = [http.client.HTTPConnection(*receiver.ADDRESS, timeout=200) for _ in range(MOST_CONNECTIONS)]
    for each in held:
        each.connect()
    held[0].request("POST", "/v1/traces", b"first", PROTOBUF)
    assert held[0].getresponse().status == 200
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)):
        received.post(b"refused")
    held[1].request("POST", "/v1/traces", b"second", PROTOBUF)
    assert held[1].getresponse().status == 200
    assert received.bodies() == [b"first", b"second"]
    assert len(received.warnings) == 1


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_bytes_that_are_no_http_end_a_connection_and_not_the_receiver(pieces: list[bytes]) -> None:
    ours, theirs = receiver.socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        node = receiver._Node("phone-0", Path("/dev/null").open("wb"))  # noqa: SIM115
        exporter, open_ = receiver._Exporter(theirs, node), True
        for piece in pieces:
            ours.sendall(piece)
            open_ = open_ and exporter.read()
        node.record.close()


def test_a_program_keeps_its_own_variables() -> None:
    given = {"OTEL_SERVICE_NAME": "cart", "OTEL_RESOURCE_ATTRIBUTES": "team=a", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    found = environment("shop", given)
    assert found["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4318"
    assert found["OTEL_RESOURCE_ATTRIBUTES"] == "cellbed.app=shop,team=a"
    assert (found["OTEL_SERVICE_NAME"], found["OTEL_BSP_SCHEDULE_DELAY"]) == ("cart", "100")


def test_own_variables_that_lead_elsewhere_are_named() -> None:
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    found = environment("shop", collector)
    assert {name: found[name] for name in collector} == collector
    assert not any("TRACES_" in name for name in found if "OTLP" in name)
    one, other = overrides("the client of shop", collector)
    assert "its own OTEL_EXPORTER_OTLP_ENDPOINT (http://collector:4317) replaces http://127.0.0.1:4318" in one
    assert "its own OTEL_EXPORTER_OTLP_PROTOCOL (grpc) replaces http/protobuf" in other
    (only,) = overrides("shop", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a" + "b" * 9000})
    assert len(only) < 400
    assert len(overrides("shop", {"OTEL_TRACES_EXPORTER": "none", "OTEL_SDK_DISABLED": "true"})) == 2
    # These lead to the receiver.
    general, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    precedes = {general: "http://collector:4318", traces: "http://localhost:4318/v1/traces"}
    for own in ({}, {general: ""}, {general: "http://localhost:4318/"}, precedes):
        assert overrides("shop", own) == []
        # What an image or the shell has is replaced.
        assert environment("shop", own).keys() >= {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_EXPORTER"}


SHOP = Reported("program", "", REPORTED, name="shop", clients=("phone-0",), servers=("edge-0", "edge-1"))
MS, AT = 1_000_000, 50_000_000_000
ARRIVED = 100_000_000_000


def stored(folder: Path, ahead: int = 1_700_000_000 * 10**9, **of_node: list[Span]) -> telemetry.Traced:
    """The spans of nodes, times in ms after `AT`, as read from their stored exports."""
    (folder / "raw").mkdir(exist_ok=True)
    for node, spans in of_node.items():
        moved = []
        for each in spans:
            copy = Span.FromString(each.SerializeToString())
            copy.start_time_unix_nano = each.start_time_unix_nano * MS + AT + ahead
            copy.end_time_unix_nano = each.end_time_unix_nano * MS + AT + ahead
            moved.append(copy)
        body = export(*moved)
        record = folder / "raw" / f"{node.replace('_', '-')}.otlp"
        record.write_bytes(HEADER.pack(len(body), ARRIVED, ahead) + body)
    description = {
        "applications": [json.loads(json.dumps(SHOP.as_json()))],
        "nodes": [
            {"name": name, "addresses": [f"100.64.0.{index}"]} for index, name in enumerate(("phone-0", "edge-0"))
        ],
    }
    return read_traces(folder, description)


CLIENT, SERVER, INTERNAL = Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER, Span.SPAN_KIND_INTERNAL


def test_client_spans_are_requests_and_what_is_below_them_their_trace(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        phone_0=[
            span(1, None, INTERNAL, "visit", 0, 400),
            span(2, 1, CLIENT, "GET /items", 10, 200),
            span(3, 2, CLIENT, "GET", 11, 199, server_address="100.64.0.1"),  # of the library below
            span(4, 1, CLIENT, "POST /order", 210, 300, error_type="TimeoutError"),
        ],
        edge_0=[
            span(5, 3, SERVER, "GET /items/{id}", 50, 150),
            span(6, 5, INTERNAL, "query", 60, 90),
            span(7, 5, CLIENT, "price", 95, 140, server_address="localhost"),
            span(9, 99, INTERNAL, "lost parent", 0, 1),
        ],
        edge_1=[span(8, 7, SERVER, "price", 100, 130)],
    )
    calls = found.calls.sort("begin_ns")
    assert calls.select("step", "endpoint", "request", "peer").rows() == [
        ("GET /items", "phone-0", 0, "edge-0"),
        ("price", "edge-0", None, "edge-1"),
        ("POST /order", "phone-0", 1, None),
    ]
    assert calls["begin_ns"].to_list() == [AT + 10 * MS, AT + 95 * MS, AT + 210 * MS]
    assert calls["status"].to_list() == ["ok"] * 3
    tree = found.tree.filter(request=0)
    assert tree.select("name", "depth", "hop").rows() == [
        ("GET /items", 0, 0),
        ("GET", 1, 0),
        ("GET /items/{id}", 2, 1),
        ("query", 3, 1),
        ("price", 3, 1),
        ("price", 4, 2),
    ]
    assert found.services == {"shop": ("GET-items-id", "price", "query")}
    (warning,) = found.warnings
    assert warning.startswith("OpenTelemetry: 1 spans belong to spans that did not arrive")


@pytest.mark.parametrize(
    ("url", "peer", "port"),
    [
        ("http://100.64.0.1:8080/a", None, 8080),
        ("https://shop/a", None, 443),
        ("http://localhost/", "phone-0", 80),
        ("http://[::1", None, None),
        ("http://a:99999/", None, None),
        ("", None, None),
    ],
)
def test_the_url_of_a_span_has_the_port_of_its_server(tmp_path: Path, url: str, peer: Any, port: Any) -> None:
    found = stored(tmp_path, phone_0=[span(1, None, CLIENT, "GET", 0, 9, url_full=url, http_method="GET")])
    (call,) = found.calls.to_dicts()
    assert (call["peer"], call["peer_port"]) == (peer, port)
    assert (call["early"], call["secure"]) == (True, url.startswith("https"))


def test_an_error_is_a_failed_request_and_a_timeout_one_without_a_reply(tmp_path: Path) -> None:
    failed, late = span(1, None, CLIENT, "a", 0, 9), span(2, None, CLIENT, "b", 0, 9, error_type="ReadTimeout")
    of_go = span(3, None, CLIENT, "c", 0, 9, error_type="context.deadlineExceededError")
    for each in (failed, late, of_go):
        each.status.code = each.status.STATUS_CODE_ERROR
    failed.status.message = "500 \x1b[31m"
    calls = stored(tmp_path, phone_0=[failed, late, of_go]).calls.sort("step")
    assert calls["status"].to_list() == ["failed", "timed-out", "timed-out"]
    assert calls["reply_ns"].to_list() == [AT + 9 * MS, None, None]
    assert calls["error"][0] == "the client reports: 500 \N{REPLACEMENT CHARACTER}[31m"


def test_a_wall_clock_that_was_set_makes_spans_useless(tmp_path: Path) -> None:
    body = export(span(1, None, CLIENT, "a", 1, 2))
    with (record(tmp_path, body) / "raw" / "phone-0.otlp").open("ab") as more:
        more.write(HEADER.pack(len(body), ARRIVED, 5 * MS) + body)
    found = read(tmp_path)
    assert found.calls.is_empty()
    assert any("was set during the run, by 5 ms" in each for each in found.warnings)


def record(folder: Path, *bodies: bytes, arrived: int = ARRIVED, ahead: int = 0) -> Path:
    """A folder of a run in which phone-0 has stored these exports."""
    (folder / "raw").mkdir(exist_ok=True)
    content = b"".join(HEADER.pack(len(body), arrived, ahead) + body for body in bodies)
    (folder / "raw" / "phone-0.otlp").write_bytes(content)
    return folder


def read(folder: Path) -> telemetry.Traced:
    description = {"applications": [SHOP.as_json()], "nodes": [{"name": "phone-0", "addresses": ["100.64.0.1"]}]}
    found = read_traces(folder, description)
    attach(found.calls, pl.DataFrame(schema=CONNECTIONS | TALK))
    return found


NUMBERS = st.sampled_from([-(2**31), -7, -1, 0, 3, 6, 2**31 - 1])
TIMES = st.sampled_from([0, 1, ARRIVED - 1, ARRIVED, ARRIVED + MS, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
KEYS = ("server.port", "server.address", "http.method", "http.status_code", "url.full", "error.type", "cellbed.app")
values = st.one_of(
    st.builds(AnyValue, string_value=st.sampled_from(["", "localhost", "shop", "https://a", "Timeout", "\x1b[31m"])),
    st.builds(AnyValue, int_value=st.sampled_from([-(2**63), -1, 0, 80, 101, 2**63 - 1])),
    st.builds(AnyValue, double_value=st.floats()),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, bytes_value=st.binary(max_size=3)),
    st.builds(AnyValue, array_value=st.just(ArrayValue(values=[AnyValue(int_value=1)]))),
)
attributes = st.lists(st.builds(KeyValue, key=st.sampled_from(KEYS), value=values), max_size=4)
spans_of_fields = st.builds(
    Span,
    trace_id=st.sampled_from([TRACE, b"", b"short"]),
    span_id=st.sampled_from([bytes(8), b"12345678", b"1"]),
    parent_span_id=st.sampled_from([b"", b"12345678", b"x"]),
    name=st.sampled_from(["", "GET", "\x1b]0;x\x07", "a" * 5000]),
    kind=NUMBERS,
    start_time_unix_nano=TIMES,
    end_time_unix_nano=TIMES,
    attributes=attributes,
    status=st.builds(Status, code=NUMBERS, message=st.sampled_from(["", "timeout", "no"])),
)


@many
@given(
    st.lists(st.tuples(attributes, st.lists(spans_of_fields, max_size=4)), max_size=3),
    st.sampled_from([ARRIVED, 0, -1, 2**63 - 1, -(2**63)]),
    st.sampled_from([0, 1_700_000_000 * 10**9, 2**63 - 1, -(2**63)]),
)
def test_any_fields_of_spans_give_a_table(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[tuple[list[KeyValue], list[Span]]],
    arrived: int,
    ahead: int,
) -> None:
    made = ExportTraceServiceRequest()
    for about, spans in groups:
        group = made.resource_spans.add()
        group.resource.attributes.extend(about)
        group.scope_spans.add().spans.extend(spans)
    good = export(span(1, None, CLIENT, "good", AT + 1, AT + 2))
    folder = tmp_path_factory.mktemp("run")
    found = read(record(folder, made.SerializeToString(), arrived=arrived, ahead=ahead))
    assert set(found.calls.drop_nulls("app")["app"]) <= {"shop"} | {"localhost", "https://a", "Timeout", "\x1b[31m"}
    found = read(record(folder, made.SerializeToString(), good))
    assert "good" in found.calls["step"]


def test_odd_spans_leave_the_others_of_their_export(tmp_path: Path) -> None:
    odd = Span(trace_id=TRACE, span_id=bytes(8), kind=-7, start_time_unix_nano=2**64 - 1, end_time_unix_nano=2**64 - 1)  # type: ignore[arg-type]
    kind = span(2, None, -7, "kind", AT, AT)
    big = span(3, None, CLIENT, "big", AT, AT, note="a" * telemetry.LARGEST_SPAN)
    after = span(4, None, CLIENT, "after", AT, ARRIVED + 10**10)
    backwards = span(5, None, CLIENT, "backwards", AT + 1, AT)
    own = span(6, 6, CLIENT, "own parent", AT, AT)
    good = span(7, None, CLIENT, "good", AT, AT)
    body = export(odd, kind, big, after, backwards, own, good)
    damaged = b"\x0a\x08\x12\x06\x12\x04\x0a\x10no"  # a span that is cut short
    found = read(record(tmp_path, body + damaged, body[:-1], b"\x0a\xff", b"\x0b"))
    assert found.calls["step"].to_list() == ["good"]
    assert {each for each in found.warnings if "×" in each} == {
        "OpenTelemetry: 3 × an export that is malformed",
        "OpenTelemetry: 2 × a span that is malformed",
        "OpenTelemetry: 3 × spans with an impossible time",
    }


MANY = 20_000
EMPTY: dict[str, list[bytes]] = {
    "exports": [b""] * MANY,
    "groups": [b"\x0a\x00" * MANY],
    "scopes": [b"\x0a\xc0\xb8\x02" + b"\x12\x00" * MANY],  # 40,000 bytes
    "spans": [export(*[Span()] * MANY)],
    "attributes": [export(*[Span(attributes=[KeyValue()] * MANY)] * 3)],
    "events": [export(*[Span(events=[Span.Event()] * MANY)] * 3)],
    "unknown fields": [b"\x50\x01" * MANY],
}


@pytest.mark.parametrize("kind", EMPTY)
def test_the_work_of_reading_exports_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """By counting the lines of Python that are executed; without a limit each kind takes more."""
    monkeypatch.setattr(telemetry, "MOST_STEPS", 5_000)
    folder, lines = record(tmp_path, *EMPTY[kind]), 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += frame.f_code.co_filename == telemetry.__file__
        return count

    sys.settrace(count)
    try:
        telemetry._read(folder / "raw", {})
    finally:
        sys.settrace(None)
    assert lines < 20 * telemetry.MOST_STEPS


ids = st.integers(0, 6)
_REST = ("n", 1, 9, "ok", None, None, None, True, False)
stories = st.lists(
    st.tuples(st.sampled_from(["phone-0", "edge-0", "edge-1"]), ids, ids, st.integers(0, 5)), max_size=12
)


@many
@given(stories)
def test_any_parents_make_a_tree_that_ends(story: list[tuple[str, int, int, int]]) -> None:
    rows = [
        (node, "shop", "", "t", str(number), str(parent) if parent else None, telemetry.KINDS[kind], *_REST)
        for node, number, parent, kind in story
    ]
    spans = pl.DataFrame(rows, schema=telemetry._SPANS, orient="row").unique(["trace", "span"], maintain_order=True)
    found = arrange(spans, [SHOP], {}, pl.DataFrame(schema=telemetry._ROOT))
    assert found.tree.select("request", "span").is_duplicated().sum() == 0
    assert set(found.calls["span"]) <= set(spans.filter(kind="client")["span"])


@many
@given(st.binary(max_size=200), st.booleans())
def test_any_stored_bytes_give_spans_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, framed: bool
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "raw").mkdir()
    content = HEADER.pack(len(content), 1, 0) + content if framed else content
    (folder / "raw" / "phone-0.otlp").write_bytes(content)
    value_or_line(lambda: read_traces(folder, {"applications": [SHOP.as_json()], "nodes": []}))


SCENARIO = (
    scenario_head(
        {
            "phone": {"class": "endpoint", "cpus": 1.0},
            "edge": {"class": "edge", "cpus": 1.0},
            "cloud": {"class": "cloud", "cpus": 1.0},
        },
        mobile={"base_delay": "10 ms"},
        core={"edge": "2 ms", "cloud": "20 ms"},
        name="traced",
        duration="40 s",
    )
    + app_table("price", telemetry=True, server=server_keys([sys.executable, "SERVICE", "8081"], 8081, "cloud"))
    + app_table(
        "shop",
        telemetry=True,
        after=["price"],
        client={"on": "phone", "command": [sys.executable, "CLIENT", "http://{server.address}:8080/items"]},
        server=server_keys([sys.executable, "SERVICE", "8080", "http://{price.address}:8081/price"], 8080),
    )
    + app_table("load", "http", telemetry=True, url="http://{shop.address}:8080/items", rate="4 /s", stop="3 s")
)
SETUP = """
import signal, sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
RequestsInstrumentor().instrument()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
import requests, time
"""
SERVICE = (
    SETUP
    + """
import socketserver
from wsgiref.simple_server import WSGIServer, make_server
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware

class Threading(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

def serve(environ, start):
    with trace.get_tracer("shop").start_as_current_span("query"):
        time.sleep(0.01)
    if sys.argv[2:]:
        requests.get(sys.argv[2])
    start("200 OK", [("Content-Length", "2000")])
    return [bytes(2000)]

make_server("", int(sys.argv[1]), OpenTelemetryMiddleware(serve), Threading).serve_forever()
"""
)
CLIENT_PROGRAM = (
    SETUP
    + """
kept = requests.Session()
for _ in range(12):
    kept.get(sys.argv[1]).content
    requests.get(sys.argv[1] + "/new").content
"""
)


@pytest.mark.needs_tun
def test_a_run_of_instrumented_programs_has_requests_and_traces(tmp_path: Path) -> None:
    folder = in_process.run_apart(tmp_path, SCENARIO, service=SERVICE, client=CLIENT_PROGRAM)
    run = cellbed.load(folder)
    application = next(each for each in run.summary.applications if each.name == "shop")
    assert application.requests.total == application.requests.ok == 24
    requests = run.requests.filter(app="shop")
    found = requests.drop_nulls("residual_s")
    assert len(found) >= 20
    for row in found.to_dicts():
        assert row["server"] == "edge-0"
        assert row["part_uplink_delay"] == pytest.approx(0.012, abs=1e-3)
        assert row["part_service_query"] >= 0.0099
        assert row["part_service_GET"] >= 0.05  # the service behind it, and the way there and back
    load = run.requests.filter(app="load").drop_nulls("residual_s")
    assert load["part_service_query"].min() >= 0.0099  # type: ignore[operator]
    assert load["part_service_GET"].min() >= 0.05  # type: ignore[operator]
    roots = run.traces.filter(app="load", depth=0)
    assert set(roots["request"]) == set(run.requests.filter(app="load")["request"])
    assert roots.select(pl.col("server_s").min()).item() >= 0.06
    traces = run.traces.filter(app="shop")
    assert set(traces["node"]) == {"phone-0", "edge-0", "cloud-0"}
    calls = traces.filter(kind="client", hop=1).drop_nulls("uplink_s")
    assert len(calls) >= 20
    assert calls["uplink_s"].min() >= 0.021  # type: ignore[operator]
    assert calls["server_s"].min() >= 0.0099  # type: ignore[operator]
    assert 'class="waterfall"' in (folder / "report.html").read_text()
    assert not [each for each in run.summary.warnings if "OpenTelemetry" in each]

"""The image-classification workload with its real parts on loopback: Mosquitto, service, endpoints."""

import itertools
import json
import os
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from cellbed.scenario.loads import ReduceResolution
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.image_classification import kind as image_classification
from cellbed.workloads.kind import Deployment
from cellbed_node.offloading.broker import find_mosquitto
from cellbed_node.offloading.mqtt import request_properties
from descendants import descendants
from run_commands import free_port, has_ended
from shell_world import wait_until
from workload_program import PATIENCE, SECOND, Node, Program

pytestmark = pytest.mark.skipif(
    find_mosquitto() is None, reason="Mosquitto is not installed: sudo apt install mosquitto"
)

MS = 1_000_000
STAMPS = ("intended_ns", "started_ns", "sent_ns", "received_ns", "dequeued_ns")
STAMPS += ("compute_start_ns", "compute_end_ns", "reply_sent_ns", "reply_ns")


@dataclass
class Bed:
    """One remote node and its endpoints on loopback."""

    raw: Path
    cache: Path
    port: int
    spec: SimpleNamespace
    programs: dict[str, Program]
    started: list[Process | Command]

    def prepare(self, *, duration_ns: int, seed: int = 1, endpoints: int = 1, cpus: float = 2.0) -> None:
        clients = [Node(f"endpoint-{index}", "endpoint", 1.0) for index in range(endpoints)]
        servers = [Node("edge-0", "edge", cpus)]
        deployment = Deployment("app", self.spec, 0, clients, servers, 0, duration_ns)
        self.started = image_classification.processes(deployment, self.raw, cache=self.cache, seed=seed, port=self.port)

    def start(self, *stages: int) -> None:
        for stage in stages:
            fresh = [process for process in self.started if process.stage == stage]
            for process in fresh:
                self.programs[process.name] = Program(process, self.raw / f"{process.name}.log")
            for process in fresh:
                self.programs[process.name].await_event("ready")

    def send(self, *, duration_ns: int, drain_ns: int = 5 * SECOND) -> dict[str, dict[str, Any]]:
        """Start the endpoints' schedules and wait until they are done; their last events."""
        loads = [self.programs[process.name] for process in self.started if process.load]
        t0 = time.monotonic_ns() + 20 * MS
        for load in loads:
            load.say(t0_ns=t0, end_ns=t0 + duration_ns, drain_ns=drain_ns)
        return {load.name: load.await_event("done") for load in loads}

    def begin(self, duration_ns: int) -> tuple[Program, int]:
        """Start the schedule of one endpoint and wait for its first reply; its program, and the time of its start."""
        load = self.programs["app.endpoint-0.endpoint"]
        t0 = time.monotonic_ns()
        load.say(t0_ns=t0, end_ns=t0 + duration_ns, drain_ns=SECOND)
        while not load.await_event("progress")["completed"]:
            pass
        return load, t0

    def requests(self, endpoint: str = "endpoint-0") -> list[dict[str, Any]]:
        return _lines(self.raw / f"app.{endpoint}.requests.jsonl")

    def service(self) -> list[dict[str, Any]]:
        return _lines(self.raw / "app.edge-0.service.jsonl")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def cache() -> Path:
    """The cache that runs use, with the model and photographs."""
    image_classification.prepare(_spec(), cache_folder(), lambda _: None)
    return cache_folder()


def _spec(**changes: Any) -> SimpleNamespace:
    load = {"on": "edge", "arrivals": "periodic", "rate": 10.0, "policy": None, "timeout": 10 * SECOND}
    return SimpleNamespace(
        **(load | {"model": None, "workers": None, "images": 10, "code": None, "runtime": None} | changes)
    )


@pytest.fixture
def make_bed(tmp_path: Path, cache: Path) -> Iterator[Callable[..., Bed]]:
    beds: list[Bed] = []

    def make(**changes: Any) -> Bed:
        raw = tmp_path / f"raw-{len(beds)}"
        raw.mkdir()
        beds.append(Bed(raw, cache, free_port(), _spec(**changes), {}, []))
        return beds[-1]

    yield make
    for bed in beds:
        for program in reversed(bed.programs.values()):
            program.stop()


def _assert_adds_up(done: dict[str, Any], requests: list[dict[str, Any]]) -> Counter[str]:
    statuses = Counter(request["status"] for request in requests)
    assert sorted(request["request"] for request in requests) == list(range(len(requests)))
    assert done["sent"] == len(requests)
    assert done["completed"] == statuses["ok"] + statuses["late"]
    assert done["timed_out"] == statuses["timed-out"]
    assert done["lost"] == statuses["lost"]
    return statuses


def test_each_request_has_stamps_in_order_and_contiguous_offsets(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed()
    bed.prepare(duration_ns=SECOND, endpoints=2)
    bed.start(0, 1)
    done = bed.send(duration_ns=SECOND)
    assert bed.programs["app.edge-0.service"].stop() == 0
    handled = {(line["endpoint"], line["request"]): line for line in bed.service()}
    for endpoint in ("endpoint-0", "endpoint-1"):
        requests = bed.requests(endpoint)
        statuses = _assert_adds_up(done[f"app.{endpoint}.endpoint"], requests)
        assert statuses == {"ok": 10}
        requests.sort(key=lambda request: request["request"])
        for request in requests:
            line = handled[endpoint, request["request"]]
            stamps = [{**line, **request}[stamp] for stamp in STAMPS]
            assert stamps == sorted(stamps)
            assert request["output"] == line["output"]
            assert request["error"] is None
            assert line["worker"] in (0, 1)
            assert request["remote_port"] == bed.port
            assert request["tcp"]["cwnd"] > 0
            # Topic, properties and header of MQTT come on top of the payload.
            assert 0 < request["uplink_end"] - request["uplink_start"] - request["bytes_up"] < 200
            assert 0 < request["downlink_end"] - request["downlink_start"] - request["bytes_down"] < 200
        for earlier, later in itertools.pairwise(requests):
            assert later["uplink_start"] == earlier["uplink_end"]
            assert later["local_port"] == earlier["local_port"]
        replies = sorted(requests, key=lambda request: request["downlink_start"])
        for earlier, later in itertools.pairwise(replies):
            assert later["downlink_start"] == earlier["downlink_end"]
        gaps = {b["intended_ns"] - a["intended_ns"] for a, b in itertools.pairwise(requests)}
        assert gaps == {100 * MS}


def test_replies_that_never_come_end_in_bounded_time(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed(timeout=400 * MS, rate=20.0)
    bed.prepare(duration_ns=2 * SECOND)
    bed.start(0, 1)
    load, _ = bed.begin(2 * SECOND)
    service = bed.programs["app.edge-0.service"].popen
    workers = descendants(service.pid)
    service.kill()
    service.wait()
    assert workers
    wait_until(lambda: all(map(has_ended, workers)))
    statuses = _assert_adds_up(load.await_event("done"), bed.requests())
    assert load.popen.wait(PATIENCE) == 0
    assert sum(statuses.values()) == 40
    assert statuses["ok"] + statuses["late"] > 0
    assert statuses["timed-out"] > 0
    # Of what was answered, only what its two workers did at the moment of the kill may not be in the record.
    served = {line["request"] for line in bed.service()}
    answered = {request["request"] for request in bed.requests() if request["reply_ns"] is not None}
    assert len(answered - served) <= 2


def test_what_a_stuck_broker_does_not_take_is_lost_before_memory_fills(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed(timeout=300 * MS, rate=100.0)
    bed.prepare(duration_ns=2 * SECOND)
    configuration = bed.raw / "app.endpoint-0.endpoint.json"
    settings = json.loads(configuration.read_text())
    configuration.write_text(json.dumps({**settings, "most_client_bytes": 500_000}))
    bed.start(0, 1)
    os.kill(bed.programs["app.edge-0.broker"].popen.pid, signal.SIGSTOP)
    done = bed.send(duration_ns=2 * SECOND, drain_ns=SECOND)
    requests = bed.requests()
    statuses = _assert_adds_up(done["app.endpoint-0.endpoint"], requests)
    assert set(statuses) == {"timed-out", "lost"}
    assert sum(statuses.values()) == 200
    full = [request for request in requests if request["error"] == "the client's queue is full"]
    assert full
    assert all(request["uplink_end"] is None for request in full)


def test_requests_without_a_broker_are_lost_and_the_schedule_goes_on(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed(rate=20.0)
    bed.prepare(duration_ns=3 * SECOND)
    bed.start(0, 1)
    load, t0 = bed.begin(3 * SECOND)
    assert bed.programs["app.edge-0.broker"].stop() == 0
    while not load.await_event("progress")["lost"]:
        pass
    bed.start(0)
    statuses = _assert_adds_up(load.await_event("done"), bed.requests())
    assert sum(statuses.values()) == 60
    assert statuses["ok"] > 0
    assert statuses["lost"] > 0
    requests = sorted(bed.requests(), key=lambda request: request["request"])
    assert [request["intended_ns"] for request in requests] == [t0 + number * 50 * MS for number in range(60)]
    assert any(request["error"] == "not connected" for request in requests)


def test_a_damaged_photograph_gets_an_error_and_harms_nothing_else(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed()
    bed.prepare(duration_ns=SECOND, cpus=1.0)
    bed.start(0, 1)
    damaged = next(bed.cache.glob("photographs-*")).joinpath("000.jpg").read_bytes()[:3000]
    _publish(bed.port, b"", reply_to=None)  # no response topic, no correlation data, no content
    correlation, reply = _publish(bed.port, damaged, reply_to="cellbed/replies/tester")
    assert correlation == b"tester/7"
    assert reply.startswith(b"error: cannot be decoded")
    done = bed.send(duration_ns=SECOND)
    assert _assert_adds_up(done["app.endpoint-0.endpoint"], bed.requests()) == {"ok": 10}
    assert bed.programs["app.edge-0.service"].stop() == 0
    failed = [line for line in bed.service() if line["error"]]
    assert [(line["endpoint"], line["request"]) for line in failed] == [(None, None), ("tester", 7)]


def test_an_error_reply_is_recorded_as_one(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed()
    bed.prepare(duration_ns=SECOND)
    configuration = bed.raw / "app.edge-0.service.json"
    settings = json.loads(configuration.read_text())
    configuration.write_text(json.dumps({**settings, "most_queued_bytes": 1}))
    bed.start(0, 1)
    done = bed.send(duration_ns=SECOND)
    requests = bed.requests()
    assert _assert_adds_up(done["app.endpoint-0.endpoint"], requests) == {"failed": 10}
    assert {(request["error"], request["output"]) for request in requests} == {("the service's queue is full", None)}


def _publish(port: int, payload: bytes, *, reply_to: str | None) -> tuple[bytes, bytes]:
    """Publish a request as a stranger would; with ``reply_to`` the reply's correlation data and payload."""
    replies: queue.Queue[MQTTMessage] = queue.Queue()
    subscribed = threading.Event()
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _client, _data, message: replies.put(message)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        client.subscribe(reply_to or "cellbed/replies/nobody")
        assert subscribed.wait(PATIENCE)
        properties = request_properties(reply_to, b"tester/7") if reply_to else None
        client.publish("cellbed/image-classification", payload, properties=properties).wait_for_publish(PATIENCE)
        if reply_to is None:
            return b"", b""
        message = replies.get(timeout=PATIENCE)
        return message.properties.CorrelationData, message.payload
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_worker_that_is_killed_is_replaced(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed()
    bed.prepare(duration_ns=SECOND, cpus=1.0)
    bed.start(0, 1)
    service = bed.programs["app.edge-0.service"]
    (worker,) = descendants(service.popen.pid)
    os.kill(worker, signal.SIGKILL)
    done = bed.send(duration_ns=SECOND)
    assert _assert_adds_up(done["app.endpoint-0.endpoint"], bed.requests())["ok"] > 0
    assert "was killed by SIGKILL" in service.log.read_text()
    assert service.stop() == 0


def test_a_policy_reduces_the_resolution_of_photographs(make_bed: Callable[..., Bed]) -> None:
    sizes = []
    for policy in (None, ReduceResolution(kind="reduce-resolution", above="0 s", scale=0.5)):
        bed = make_bed(policy=policy)
        bed.prepare(duration_ns=SECOND, seed=5)
        bed.start(0, 1)
        done = bed.send(duration_ns=SECOND)["app.endpoint-0.endpoint"]
        requests = sorted(bed.requests(), key=lambda request: request["request"])
        assert _assert_adds_up(done, requests) == {"ok": len(requests)}
        reduced = [request["scale"] == 0.5 for request in requests]
        # Before the first request no latency is known.
        assert reduced == [False] + [policy is not None] * (len(requests) - 1)
        assert done["reduced"] == sum(reduced)
        sizes.append([request["bytes_up"] for request in requests])
    # One seed gives the same photographs.
    assert all(small < 0.6 * large for large, small in zip(sizes[0][1:], sizes[1][1:], strict=True))


def test_closing_standard_input_ends_everything_and_keeps_the_records(make_bed: Callable[..., Bed]) -> None:
    bed = make_bed()
    bed.prepare(duration_ns=60 * SECOND)
    bed.start(0, 1)
    load, _ = bed.begin(60 * SECOND)
    load.popen.stdin.close()
    done = load.await_event("done")
    assert load.popen.wait(PATIENCE) == 0
    assert _assert_adds_up(done, bed.requests())["ok"] > 0
    workers = descendants(bed.programs["app.edge-0.service"].popen.pid)
    assert workers
    assert bed.programs["app.edge-0.service"].stop() == 0
    assert bed.programs["app.edge-0.broker"].stop() == 0
    wait_until(lambda: all(map(has_ended, workers)))

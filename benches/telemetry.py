"""The cost of a span of OpenTelemetry: in the program that exports it, in the receiver, and when a run is measured.

Run ``python benches/telemetry.py``. The program has the SDK of Python with its batches and exporter; the receiver
listens on this machine's loopback, without a node. Processor time, microseconds per span.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cellbed.measure.telemetry import read_traces
from cellbed.testbed.programs.telemetry import environment

PROGRAM = """
import sys, time
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
if sys.argv[2] == "exported":
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), max_queue_size=1 << 20))
tracer = provider.get_tracer("bench")
begun = time.process_time()
for number in range(int(sys.argv[1])):
    with tracer.start_as_current_span("query", attributes={"db.system": "redis", "server.address": "edge-0"}):
        pass
provider.shutdown()
print((time.process_time() - begun) / int(sys.argv[1]))
"""


def span_costs(folder: Path, spans: int) -> tuple[float, float, float]:
    """Return processor time per span, s: in the program without export, with export, and in the receiver."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, socket.create_server(("127.0.0.1", 0)) as listener:
        with theirs:
            command = [sys.executable, "-m", "cellbed.testbed.programs.telemetry"]
            receiver = subprocess.Popen(command, stdin=theirs.fileno())
        message = json.dumps({"node": "bench", "file": str(folder / "bench.otlp")}).encode()
        socket.send_fds(ours, [message], [listener.fileno()])
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        variables = {**os.environ, **environment("bench", {"OTEL_EXPORTER_OTLP_ENDPOINT": url})}
        plain, exported = (
            float(subprocess.check_output([sys.executable, "-c", PROGRAM, str(spans), how], env=variables))
            for how in ("plain", "exported")
        )
        ours.shutdown(socket.SHUT_WR)
        assert json.loads(ours.recv(1 << 20)) == {}, "the receiver lost spans"
    used = os.wait4(receiver.pid, 0)[2]
    return plain, exported, (used.ru_utime + used.ru_stime) / spans


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    rows = []
    for _ in range(asked.repeat):
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder, "raw")
            raw.mkdir()
            times = span_costs(raw, asked.spans)
            assert raw.joinpath("bench.otlp").stat().st_size > 50 * asked.spans, "spans did not arrive"
            begun = time.process_time()
            found = read_traces(Path(folder), {"applications": [], "nodes": []})
            assert not found.warnings, found.warnings
            rows.append(
                (*times, (time.process_time() - begun) / asked.spans, raw.joinpath("bench.otlp").stat().st_size)
            )
    plain, exported, receiving, read, size = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"program: {plain * 1e6:.1f} µs for a span, {(exported - plain) * 1e6:.1f} µs more to export it")
    print(f"receiver: {receiving * 1e6:.2f} µs, with its start; {size / asked.spans:.0f} bytes on disk")
    print(f"measuring: {read * 1e6:.1f} µs")


if __name__ == "__main__":
    main()

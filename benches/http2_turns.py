"""Pieces that servers of HTTP/2 send of concurrent replies, behind an emulated link.

    .venv/bin/python benches/http2_turns.py [--streams 5] [--down "20 Mbit/s"] [--bodies 1000 12000 100000] [--chain]

Each server of `virtual_agreement.py` that speaks HTTP/2 and is installed gets as many requests at once as there are
streams, over a new connection of `cellbed shell` with 15 ms of delay each way. A line has the server, the body, the
largest DATA frame, the median piece (bytes of a reply between two pieces of others), whether the end of a reply is a
frame of its own, and the first pieces: number of the stream, then H for a header or the bytes. --chain: each request
depends exclusively on the one before (RFC 7540, §5.3), as requests of equal importance in Chromium do.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.settings
import virtual_agreement as agreement

PORT = 8080
SHOWN = 12


def pieces(host: str, streams: int, *, chain: bool) -> Iterator[tuple[int, str | int, int]]:
    """Yield the stream, "H" for a header or the payload of a DATA frame, and this payload, 0 for a header."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    codes = h2.settings.SettingCodes
    values = {codes.ENABLE_PUSH: 0, codes.INITIAL_WINDOW_SIZE: 6 << 20}
    connection.local_settings = h2.settings.Settings(client=True, initial_values=values)
    connection.initiate_connection()
    connection.increment_flow_control_window((15 << 20) - (1 << 16) + 1)
    left = streams
    with socket.create_connection((host, PORT), timeout=20) as link:
        link.sendall(connection.data_to_send())
        time.sleep(0.2)
        before = 0
        for _ in range(streams):
            priority = {"priority_weight": 147, "priority_depends_on": before, "priority_exclusive": True}
            before = connection.get_next_available_stream_id()
            headers = [(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", "/body")]
            connection.send_headers(before, headers, end_stream=True, **(priority if chain else {}))
        link.sendall(connection.data_to_send())
        while left and (data := link.recv(1 << 16)):
            for event in connection.receive_data(data):
                match event:
                    case h2.events.DataReceived():
                        connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                        yield event.stream_id, len(event.data), len(event.data)
                    case h2.events.ResponseReceived():
                        yield event.stream_id, "H", 0
                    case h2.events.StreamEnded():
                        left -= 1
            link.sendall(connection.data_to_send())


def client(streams: int, *, chain: bool) -> None:
    """Print the line of a server; runs inside the shell."""
    gateway = Path("/proc/net/route").read_text().splitlines()[1].split()[2]
    found = list(pieces(socket.inet_ntoa(bytes.fromhex(gateway)[::-1]), streams, chain=chain))
    frames = [size for _, what, size in found if what != "H"]
    runs = [(stream, sum(size for *_, size in of)) for stream, of in itertools.groupby(found, lambda each: each[0])]
    cut = sorted(size for _, size in runs if size)
    begin = []
    for (stream, is_head), of in itertools.groupby(found, lambda each: (each[0], each[1] == "H")):
        begin.append(f"{stream}:{'H' if is_head else sum(size for *_, size in of)}")
    print(max(frames), cut[len(cut) // 2], "apart" if 0 in frames else "with", " ".join(begin[:SHOWN]), flush=True)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--streams", type=int, default=5)
    arguments.add_argument("--down", default="20 Mbit/s")
    arguments.add_argument("--bodies", type=int, nargs="+", default=[1000, 12000, 40000, 100_000, 1_000_000])
    arguments.add_argument("--chain", action="store_true")
    arguments.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.client:
        client(asked.streams, chain=asked.chain)
        return
    print("server, body, largest frame, median piece, end, first pieces")
    for name, (protocols, _) in agreement.SERVERS.items():
        if "2" not in protocols:
            continue
        if not agreement.PROGRAMS[name]:
            print(f"{name}: not installed")
            continue
        for body in asked.bodies:
            with tempfile.TemporaryDirectory() as parent:
                folder = Path(parent) / "server"
                folder.mkdir()
                cell = agreement.Cell(name, "2", "GET", body, "reno", "", 1, 1, "connection", False, 0.0)
                agreement.write_files(cell, folder)
                server = subprocess.Popen(
                    agreement.command(cell), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                try:
                    time.sleep(2)
                    words = [sys.executable, "-P", "-m", "cellbed", "shell", "--down", asked.down, "--delay", "15 ms"]
                    own = [sys.executable, __file__, "--client", "--streams", str(asked.streams)]
                    own += ["--chain"] * asked.chain
                    done = subprocess.run([*words, "--", *own], capture_output=True, text=True, check=False)
                    print(name, body, done.stdout.strip() or done.stderr.strip()[-300:], flush=True)
                finally:
                    server.terminate()
                    server.wait()


if __name__ == "__main__":
    main()

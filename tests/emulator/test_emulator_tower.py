"""The node of a tower in the emulator: packets of radio links pass it, and its page has the state of the links."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cellbed
from cellbed.measure.packets import UDP
from cellbed.radio import Page
from cellbed.testbed.plan import FORWARDING
from emulator_process import EDGE, ENDPOINT, EmulatorProcess, bottleneck, constant, delay, line_of_two, packets

MAST = {4: "100.65.64.2", 6: "fd63:656c:6c62:5::2"}
#: Sends back what it gets until the end, and then ends.
ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 40007), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as s:
    print("ready", flush=True)
    connection, _ = s.accept()
    whole = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    connection.sendall(whole)
    connection.close()
"""
CLIENT = """
import random, socket, sys
data = random.Random(7).randbytes(3_000_000)
with socket.create_connection((sys.argv[1], 40007), timeout=100) as connection:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: connection.recv(1 << 20), b"")) == data)
"""
READER = """
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "cellbed_radio.h"
static void print_way(const struct radio_way *way)
{
    printf(" %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %u", way->queued_bytes, way->queued_packets,
        way->offered_bytes, way->delivered_bytes, way->dropped_packets, way->sharers, way->closed);
}
int main(void)
{
    struct radio radio;
    struct radio_link link;
    if (radio_open(&radio, getenv("CELLBED_RADIO")) != 0)
        return 1;
    printf("%u %" PRIu64, radio.count, radio_read(&radio, 0, &link));
    printf(" %u.%u.%u.%u %u", link.ipv4[0], link.ipv4[1], link.ipv4[2], link.ipv4[3], link.here);
    print_way(&link.uplink);
    print_way(&link.downlink);
    return 0;
}
"""


def with_mast(uplink: list[Any], downlink: list[Any], folder: Path, page: Path | None = None) -> dict[str, Any]:
    config = line_of_two(uplink, downlink, folder)
    tower: dict[str, Any] = {"links": [["mobile.uplink", "mobile.downlink"]]}
    config["vertices"][1] = {
        **config["vertices"][0],
        "name": "tower",
        "addresses": [f"{MAST[4]}/32", f"{MAST[6]}/128"],
        "sysctls": FORWARDING | {"net.ipv4.conf.cellbed0.send_redirects": "0", "net.ipv4.conf.all.send_redirects": "0"},
        "tower": tower | ({"page": str(page)} if page else {}),
    }
    return config


@pytest.mark.parametrize("family", [4, 6])
def test_packets_of_radio_links_pass_the_node_and_keep_their_ends(family: int, tmp_path: Path) -> None:
    radio = [constant(50_000_000, 400_000), delay(3)]
    with EmulatorProcess(with_mast(radio, radio, tmp_path)) as emulator:
        emulator.ready()
        inside = emulator.inside("edge")
        program = [sys.executable, "-c", ECHO, EDGE[family]]
        with subprocess.Popen(program, preexec_fn=inside, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout.readline() == "ready\n"
            assert emulator.run("endpoint", [sys.executable, "-c", CLIENT, EDGE[family]]) == "True\n"
        flow = emulator.probe(bit_rate=10_000_000, seconds=0.2, family=family)
        to_tower = emulator.probe(target="tower", bit_rate=1_000_000, seconds=0.1, family=family)
        account = emulator.stop()
    assert None not in flow["received_ns"] + to_tower["received_ns"]
    assert account["refused"] == 0
    log = packets(tmp_path)
    assert set(zip(log["source_vertex"].tolist(), log["destination_vertex"].tolist(), strict=True)) == {
        *((0, 2), (2, 0), (0, 1))
    }
    numbers = [log["packet"][(log["direction"] == each) & (log["destination_vertex"] == 2)] for each in (0, 1)]
    assert not set(numbers[0].tolist()) & set(numbers[1].tolist())
    datagrams = log[(log["protocol"] == UDP) & (log["destination_vertex"] == 2)]
    assert np.unique(datagrams["direction"], return_counts=True)[1].tolist() == [len(flow["sent_ns"])] * 2


def test_packets_between_other_nodes_do_not_pass_the_node(tmp_path: Path) -> None:
    config = with_mast([], [], tmp_path)
    edge = config["vertices"][2]
    config["vertices"].append(edge | {"name": "cloud", "addresses": ["100.64.128.2/32"]})
    config["directions"] += [
        {"name": f"cloud.{way}", "from": one, "to": other, "stages": []}
        for way, one, other in (("uplink", "tower", "cloud"), ("downlink", "cloud", "tower"))
    ]
    with EmulatorProcess(config) as emulator:
        emulator.ready()
        flow = emulator.probe(source="edge", target="cloud", bit_rate=1_000_000, seconds=0.1)
        account = emulator.stop()
    assert None not in flow["received_ns"]
    assert account["interfaces"]["tower"]["packets"] < len(flow["sent_ns"])


def test_the_page_has_what_the_emulator_counts_in_python_and_in_c(tmp_path: Path) -> None:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("needs a C compiler")
    page = tmp_path / "page"
    slow = [constant(1_000_000, 20_000), {"kind": "delay", "fixed_ns": 0}]
    with EmulatorProcess(with_mast(slow, [bottleneck({"kind": "unlimited"})], tmp_path, page)) as emulator:
        emulator.ready()
        emulator.probe(bit_rate=4_000_000, seconds=0.5)
        time.sleep(0.1)
        counted = emulator.status()
        snapshot = Page(str(page)).read()
        (tmp_path / "reader.c").write_text(READER)
        include = str(Path(cellbed.__path__[0]))
        build = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", include, "reader.c", "-o", "reader"]
        subprocess.run(build, cwd=tmp_path, check=True)
        environment = {**os.environ, "CELLBED_RADIO": str(page)}
        done = subprocess.run([tmp_path / "reader"], env=environment, check=True, capture_output=True, text=True)
        emulator.stop()
    (link,) = snapshot.links
    assert (str(link.ipv4), str(link.ipv6), link.here) == (ENDPOINT[4], "fd63:656c:6c62::2", True)
    assert snapshot.of(ENDPOINT[4]) == snapshot.of(f"::ffff:{ENDPOINT[4]}") == snapshot.of(ENDPOINT[6]) == link
    assert snapshot.of(EDGE[4]) is None
    assert (link.uplink.offered_bytes, link.downlink.offered_bytes) == (1250, None)
    for way, name in ((link.uplink, "mobile.uplink"), (link.downlink, "mobile.downlink")):
        assert way.delivered_bytes == counted[name]["delivered_bytes"]
        assert way.dropped_packets == sum(counted[name]["dropped"].values())
    assert link.uplink.dropped_packets > 0
    words = done.stdout.split()
    assert int(words[1]) >= snapshot.time_ns
    plain = [[each if each is not None else 2**64 - 1 for each in _fields(way)] for way in (link.uplink, link.downlink)]
    assert [words[0], *words[2:]] == [str(each) for each in ("1", ENDPOINT[4], 1, *plain[0], *plain[1])]


def _fields(way: Any) -> list[Any]:
    names = ("queued_bytes", "queued_packets", "offered_bytes", "delivered_bytes", "dropped_packets", "sharers")
    return [*(getattr(way, name) for name in names), int(way.closed)]


def test_the_page_shows_the_queue_and_outages_and_no_program_can_hurt_the_emulator_by_it(tmp_path: Path) -> None:
    page = tmp_path / "page"
    gate = {"kind": "gate", "outages_ns": [[0, 10**12]], "flushes_ns": []}
    with EmulatorProcess(with_mast([gate, constant(1_000_000, 200_000)], [], tmp_path, page)) as emulator:
        emulator.ready()
        emulator.command(do="start", at_ns=time.monotonic_ns(), offset_ns=0)
        emulator.probe(bytes=1000, bit_rate=800_000, seconds=0.1)
        assert page.stat().st_mode & 0o777 == 0o444
        whole = page.stat().st_size
        (link,) = Page(str(page)).read().links
        page.chmod(0o600)
        os.truncate(page, 0)
        time.sleep(0.1)
        assert page.stat().st_size > 0
        page.write_bytes(os.urandom(10 * whole))
        page.unlink()
        time.sleep(0.1)
        assert emulator.stop()["event"] == "stopped"
    way = link.uplink
    assert (way.queued_packets, way.queued_bytes, way.closed, way.offered_bytes) == (10, 10_000, True, 0)
    assert not link.downlink.closed


def test_a_file_that_is_no_page_is_refused(tmp_path: Path) -> None:
    for content in (b"x", b"cellbed\0" + b"\xff" * 100, b"cellbed\0" + (1).to_bytes(4, "little") + b"\xff" * 52):
        (tmp_path / "page").write_bytes(content)
        with pytest.raises(ValueError, match=r"page of radio links"):
            Page(str(tmp_path / "page"))

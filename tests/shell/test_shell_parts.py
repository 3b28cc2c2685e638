"""The parts of `cellbed shell` that need no network: options, addresses, rules, name servers, the way out."""

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from cellbed.shell import resolver, wayout
from cellbed.shell.options import EachWay, parse_link
from cellbed.support.errors import CellbedError

PAIR = wayout.Pair(
    IPv4Address("100.127.0.1"), IPv4Address("100.127.0.2"), IPv6Address("fd63::1"), IPv6Address("fd63::2")
)
DEVICES = [{"name": name, "descriptor": 3, "netlink": 4} for name in ("cellbed0", "cellbed-1")]


def test_options_are_read_with_the_units_of_the_scenario(tmp_path: Path) -> None:
    trace = tmp_path / "x.down"
    trace.write_text("1\n2\n")
    link = parse_link(
        uplink="12 Mbit/s",
        downlink="x.down",
        delay=EachWay("20"),
        loss=EachWay("1 %"),
        queue=EachWay("100 packets"),
        looped=False,
        folder=tmp_path,
    )
    uplink, downlink = link.emulator_config(PAIR, DEVICES)["directions"]
    assert [stage["kind"] for stage in uplink["stages"]] == ["loss", "gate", "bottleneck", "delay"]
    assert uplink["stages"][0]["probability"] == 0.01
    assert uplink["stages"][2] == {
        "kind": "bottleneck",
        "schedule": {"kind": "constant", "bit_rate": 12_000_000},
        "queue": {"kind": "droptail", "packets": 100, "bytes": None},
    }
    assert uplink["stages"][3] == {"kind": "delay", "fixed_ns": 20_000_000}
    assert downlink["stages"][2]["schedule"] == {
        "kind": "trace",
        "path": str(trace),
        "looped": False,
        "offset_ns": 0,
    }


def test_directions_may_differ_and_have_any_queue_delay_and_loss(tmp_path: Path) -> None:
    (tmp_path / "delay.csv").write_text("time_s,delay_ms\n0,10\n1,20\n")
    (tmp_path / "rate.csv").write_text("time_s,rate_mbit_s\n0,10\n1,20\n")
    link = parse_link(
        uplink="rate.csv",
        downlink="token-bucket rate=12 Mbit/s burst=64 KiB",
        delay=EachWay("delay.csv", downlink="normal mean=20ms deviation=3ms"),
        loss=EachWay("1 %", uplink="gilbert-elliott to_bad=0.01 to_good=0.25"),
        queue=EachWay("codel 1 MB target=7ms", downlink="fqcodel"),
        folder=tmp_path,
    )
    loss, _, bottleneck, delay = link.uplink.stages
    assert (loss["kind"], loss["to_bad"], loss["to_good"]) == ("gilbert-elliott", 0.01, 0.25)
    assert bottleneck["schedule"]["steps"] == [[0, 10_000_000], [1_000_000_000, 20_000_000]]
    assert (bottleneck["queue"]["kind"], bottleneck["queue"]["target_ns"]) == ("codel", 7_000_000)
    assert bottleneck["queue"]["bytes"] == 1_000_000
    assert delay["series"] == [[0, 10_000_000], [1_000_000_000, 20_000_000]]
    loss, _, bottleneck, delay = link.downlink.stages
    assert (loss["kind"], loss["probability"]) == ("loss", 0.01)
    assert bottleneck["schedule"] == {"kind": "token-bucket", "bit_rate": 12_000_000, "burst_bytes": 65536}
    assert bottleneck["queue"]["kind"] == "fqcodel"
    assert delay["distribution"] == {"kind": "normal", "mean_ns": 20_000_000, "deviation_ns": 3_000_000}
    assert link.uplink.stages[0]["seed"] != link.downlink.stages[0]["seed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": EachWay("-3")}, "--delay: '-3' is negative: write '3 ms' or '3 s'"),
        ({"loss": EachWay("1 % or so")}, "--loss: '1 % or so' is not a probability"),
        ({"uplink": "12"}, "--up: '12' has no unit: write '12 Mbit/s'"),
        ({"downlink": "12 mbps"}, "--down: '12 mbps' has an unknown unit: write '12 Mbit/s'"),
        ({"downlink": "/"}, "--down: '/' is a folder, not a trace file"),
        ({"start": "5"}, "--start: '5' has no unit: write '5 ms' or '5 s'"),
        ({"queue": EachWay("codle")}, "--queue: kind: 'codle' is not known: did you mean 'codel'"),
        ({"queue": EachWay("")}, "--queue: not a queue: write '1 MB'"),
        ({"queue": EachWay("codel tarket=3ms")}, "--queue: tarket: unknown key; did you mean 'target'"),
        ({"queue": EachWay("1 MB", uplink="codel target=x")}, "--uplink-queue: target: 'x' is not a duration"),
        ({"delay": EachWay("0 ms", downlink="no.csv")}, "--downlink-delay: file: there is no file 'no.csv'"),
        ({"loss": EachWay("on-off on=10s")}, "--loss: off: missing"),
    ],
)
def test_a_wrong_option_is_answered_in_one_sentence(options: dict[str, str | EachWay], message: str) -> None:
    with pytest.raises(CellbedError, match=message) as caught:
        parse_link(**options, folder=Path("/nowhere"))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "servers", "forwarder"),
    [
        ("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n", ["127.0.0.53"], True),
        ("nameserver ::1\nnameserver 127.0.0.1\n", ["::1", "127.0.0.1"], True),
        ("nameserver fe80::1%eth0\n", ["fe80::1%eth0"], True),
        ("nameserver 127.0.0.1\nnameserver 192.168.1.1\n", ["127.0.0.1", "192.168.1.1"], False),
        ("# nothing\n", ["127.0.0.1"], True),
    ],
)
def test_a_forwarder_is_for_resolvers_that_only_the_host_reaches(
    text: str, servers: list[str], forwarder: bool
) -> None:
    assert resolver.name_servers(text) == servers
    assert resolver.needs_forwarder(servers) is forwarder


def test_inside_the_gateway_is_the_only_name_server_and_the_rest_stays() -> None:
    text = resolver.inner_resolv_conf("nameserver 127.0.0.53\nsearch lan\noptions edns0\n", IPv4Address("100.127.0.1"))
    assert text == "search lan\noptions edns0\nnameserver 100.127.0.1\n"


@pytest.mark.parametrize(
    ("privileged", "root", "granted", "translation", "helpers", "kind", "reason"),
    [
        (True, True, False, True, ("pasta",), "direct", ""),
        (True, False, True, True, (), "direct", ""),
        (False, False, True, True, ("pasta",), "granted", ""),
        (False, False, False, True, ("pasta", "slirp4netns"), "helper", ""),
        (False, False, False, True, (), "none", "apt install slirp4netns"),
        (False, True, False, True, ("pasta",), "none", "CAP_NET_ADMIN"),
        (True, True, False, False, (), "none", "apt install nftables"),
    ],
)
def test_the_way_out_follows_from_rights_and_programs(
    privileged: bool, root: bool, granted: bool, translation: bool, helpers: tuple[str, ...], kind: str, reason: str
) -> None:
    way = wayout.choose(privileged=privileged, root=root, granted=granted, translation=translation, helpers=helpers)
    assert way.kind == kind
    assert reason in way.reason

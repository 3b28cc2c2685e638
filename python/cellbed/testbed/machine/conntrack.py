"""Forget connections in the kernel's connection tracking of a network namespace, as ``conntrack -D`` does.

A separate program, run in the namespace: ``python conntrack.py PROTOCOL PORT,… ADDRESS…``. It deletes entries of the
protocol (a number) whose packets, in either direction, go to one of the ports of one of the addresses. The next packet
of such a connection is translated again. linux/netfilter/nfnetlink_conntrack.h defines the messages.
"""

import contextlib
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator

_NETFILTER, _CONNTRACK = 12, 1 << 8
_GET, _DELETE = 1, 2
_REQUEST, _ACK, _DUMP = 1, 4, 0x300
_ERROR, _DONE = 2, 3
_ORIGINAL, _REPLY, _ADDRESSES, _PROTOCOL = 1, 2, 1, 2
_TARGETS = (2, 4)
"""Attributes with the destination's IPv4 and IPv6 address."""


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the attributes of a netlink message: (type without flags, content)."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[-(-max(length, 4) // 4) * 4 :]


def matches(packets: bytes, addresses: set[bytes], ports: set[int], protocol: int) -> bool:
    """Return whether packets of a connection's tuple, for one direction, go to one of these destinations."""
    of_tuple = dict(attributes(packets))
    of_protocol = dict(attributes(of_tuple.get(_PROTOCOL, b"")))
    reached = {content for kind, content in attributes(of_tuple.get(_ADDRESSES, b"")) if kind in _TARGETS}
    found, port = (int.from_bytes(of_protocol.get(kind, b""), "big") for kind in (1, 3))
    return bool(reached & addresses) and port in ports and found == protocol


def _messages(netlink: socket.socket) -> Iterator[bytes]:
    """Return the messages of a reply, until its end or an acknowledgement."""
    while True:
        data = netlink.recv(1 << 17)
        while len(data) >= 16:
            length, kind = struct.unpack_from("=IH", data)
            if kind in (_ERROR, _DONE):
                return
            yield data[16:length]
            data = data[-(-length // 4) * 4 :]


def _main(protocol: str, ports: str, *addresses: str) -> None:
    wanted = {ipaddress.ip_address(address).packed for address in addresses}
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)

    def send(kind: int, flags: int, family: int, content: bytes = b"") -> None:
        body = struct.pack("=BBH", family, 0, 0) + content
        netlink.send(struct.pack("=IHHII", 16 + len(body), _CONNTRACK | kind, _REQUEST | flags, 0, 0) + body)

    for family in (socket.AF_INET, socket.AF_INET6):
        send(_GET, _DUMP, family)
        found = []
        for message in _messages(netlink):
            tuples = dict(attributes(message[4:]))
            # After a move, the service may send the first packet.
            both = [tuples.get(_ORIGINAL, b""), tuples.get(_REPLY, b"")]
            if any(matches(each, wanted, set(map(int, ports.split(","))), int(protocol)) for each in both):
                found.append(both[0])
        for original in found:
            send(_DELETE, _ACK, family, struct.pack("=HH", 4 + len(original), _ORIGINAL | 0x8000) + original)
            with contextlib.suppress(StopIteration):
                next(_messages(netlink))


if __name__ == "__main__":
    _main(*sys.argv[1:])

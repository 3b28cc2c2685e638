"""Synthetic files of other programs: captures, reports, output of ping."""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass

MS = 1_000_000
SECOND = 1_000_000_000

MAHIMAHI = b"# walk\n0\n1\n1\n7\n20\n"
PING = (
    b"PING h (192.0.2.1) 56(84) bytes of data.\n"
    b"[1696500000.020000] 64 bytes from h (192.0.2.1): icmp_seq=1 ttl=57 time=20.0 ms\n"
    b"[1696500001.500000] no answer yet for icmp_seq=2\n"
    b"[1696500002.030000] 64 bytes from h (192.0.2.1): icmp_seq=3 ttl=57 time=30.0 ms\n"
    b"\n--- h ping statistics ---\n"
    b"3 packets transmitted, 2 received, 33.3333% packet loss, time 2003ms\n"
    b"rtt min/avg/max/mdev = 20.000/25.000/30.000/5.000 ms\n"
)
CSV = b"time_s,downlink_mbit_s,rtt_ms\n0,10.5,20\n0.5,11,\n1.0,0,35.5\n"
HSDPA = (
    b"1300000000 70000 60.123456 11.5 248000 1000\n"
    b"1300000001 71000 60.1235  11.500001 191500 1000\n"
    b"1300000002 72250 -60 11.500002 0 1250\n"
)
"""Invented downloads of 1.984, 1.532 and 0 Mbit/s, in the layout of the Norwegian logs."""
LIGHT_UP = b"0 20 0 1 2\n100 21 0 1 3\n200 20 0 2 2\n"
LIGHT_DOWN = b"0 22 0 1\n100 20 0 1\n200 25 0 0\n"

NRSCOPE_COLUMNS = (
    "timestamp,system_frame_index,slot_index,rnti,rnti_type,dci_format,k,time_length,frequency_start,frequency_length,"
    "transport_block_size,new_data_indicator,nof_re,harq_id\n"
)


def nrscope(seconds: int = 1) -> bytes:
    """A log of NR-Scope of a cell with 50 resource blocks and a grant per frame each way, of 12 symbols and 20 kbit.

    The device 100 has all blocks in the even frames of the downlink, another one 30 of them in the odd ones, a quarter
    of these repeated. Only the device sends, in each frame.
    """
    rows = []
    for frame in range(100 * seconds):
        at, odd, turn = 1_700_000_000 + frame / 100, frame % 2, frame // 2
        user, blocks, indicator = (200, 30, (turn // 4 * 3 + min(turn % 4, 2)) % 2) if odd else (100, 50, turn % 2)
        for form, rnti, wide, new in (("1_1", user, blocks, indicator), ("0_1", 100, 50, frame % 2)):
            rows.append(f"{at:f},{frame},4,{rnti},C-RNTI,{form},0,12,0,{wide},20000,{new},1,0\n")
    return (NRSCOPE_COLUMNS + rows[0] + NRSCOPE_COLUMNS + "".join(rows[1:])).encode()


def half(start: float, rate: float, sender: bool) -> dict[str, object]:
    """A second in iperf3's report."""
    return {
        "start": start,
        "end": start + 1,
        "seconds": 1.0,
        "bytes": int(rate / 8),
        "bits_per_second": rate,
        "omitted": False,
        "sender": sender,
    }


def iperf3_report(rates: Iterable[tuple[float, float]]) -> bytes:
    """A client's report of a bidirectional test: rates of uplink and downlink, second by second."""
    intervals = []
    for second, (up, down) in enumerate(rates):
        sent, received = half(second, up, True), half(second, down, False)
        intervals.append({"streams": [sent, received], "sum": sent, "sum_bidir_reverse": received})
    start = {
        "connecting_to": {"host": "h", "port": 5201},
        "test_start": {"protocol": "TCP", "num_streams": 1, "bidir": 1},
    }
    return json.dumps({"start": start, "intervals": intervals, "end": {}}, indent="\t").encode()


@dataclass(frozen=True, slots=True)
class Packet:
    """A UDP or TCP packet of a capture. bytes: its IP length. kept: bytes of its frame in the capture."""

    at_ns: int
    source: tuple[str, int]
    target: tuple[str, int]
    bytes: int = 1500
    hop_limit: int = 57
    protocol: int = 17
    flags: int = 0x10
    kept: int = 96

    def frame(self, head: bytes) -> bytes:
        """Its frame: `head`, then its bytes."""
        addresses = b"".join(bytes(map(int, address.split("."))) for address, _ in (self.source, self.target))
        ip = struct.pack(">BBHHHBBH", 0x45, 0, self.bytes, 0, 0, self.hop_limit, self.protocol, 0) + addresses
        ports = struct.pack(">HH", self.source[1], self.target[1])
        rest = struct.pack(">IIBBHHH", 1, 1, 0x50, self.flags, 1000, 0, 0)
        payload = ports + (rest if self.protocol == 6 else struct.pack(">HH", self.bytes - 20, 0))
        return head + (ip + payload).ljust(self.bytes, b"\0")


ETHERNET = bytes(12) + b"\x08\x00"
VLAN = bytes(12) + b"\x81\x00\x00\x05\x08\x00"
COOKED = bytes(14) + b"\x08\x00"
COOKED2 = b"\x08\x00" + bytes(18)
LINKS = {
    "ethernet": (1, ETHERNET),
    "vlan": (1, VLAN),
    "raw": (101, b""),
    "cooked": (113, COOKED),
    "cooked2": (276, COOKED2),
}

DEVICE, SERVER = ("10.0.0.2", 40000), ("192.0.2.1", 5201)


def pcap(packets: Iterable[Packet], link: str = "ethernet", *, order: str = "<", nanoseconds: bool = True) -> bytes:
    """A capture in the older format."""
    number, head = LINKS[link]
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    parts = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, number)]
    for packet in packets:
        frame = packet.frame(head)
        kept = frame[: packet.kept]
        second, rest = divmod(packet.at_ns, SECOND)
        parts.append(struct.pack(f"{order}IIII", second, rest // unit, len(kept), len(frame)) + kept)
    return b"".join(parts)


def pcapng(packets: Iterable[Packet], link: str = "ethernet", *, order: str = "<") -> bytes:
    """A capture in the newer format, stamped in nanoseconds."""

    def block(kind: int, body: bytes) -> bytes:
        length = len(body) + 12
        return struct.pack(f"{order}II", kind, length) + body + struct.pack(f"{order}I", length)

    number, head = LINKS[link]
    resolution = struct.pack(f"{order}HHB3xHH", 9, 1, 9, 0, 0)
    parts = [
        block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)),
        block(1, struct.pack(f"{order}HHI", number, 0, 262144) + resolution),
    ]
    for packet in packets:
        frame = packet.frame(head)
        kept = frame[: packet.kept]
        fixed = struct.pack(f"{order}IIIII", 0, packet.at_ns >> 32, packet.at_ns & 0xFFFFFFFF, len(kept), len(frame))
        parts.append(block(6, fixed + kept + bytes(-len(kept) % 4)))
    return b"".join(parts)


def download(count: int = 40, step_ns: int = MS, at_ns: int = 1_700_000_000 * SECOND) -> list[Packet]:
    """A download over TCP with acknowledgements, captured at the device, and a smaller flow beside it."""
    opening = Packet(at_ns, DEVICE, SERVER, bytes=60, hop_limit=64, protocol=6, flags=0x02)
    packets = [opening]
    for n in range(1, count + 1):
        now = at_ns + n * step_ns
        packets.append(Packet(now, SERVER, DEVICE, protocol=6))
        if n % 2 == 0:
            packets.append(Packet(now + 1000, DEVICE, SERVER, bytes=52, hop_limit=64, protocol=6))
        if n % 10 == 0:
            packets.append(Packet(now + 2000, ("10.0.0.2", 5353), ("192.0.2.9", 53), bytes=200, hop_limit=64))
    return packets


PING_UNANSWERED = (
    b"PING h (192.0.2.1) 56(84) bytes of data.\n\n--- h ping statistics ---\n"
    b"4 packets transmitted, 0 received, 100% packet loss, time 3051ms\n"
)

"""Our replay beside the tool of CellReplay's authors: departures of the same packets from the same recordings.

    CELLREPLAY_QUEUE=/program python papers/benches/cellreplay_departures.py [--recordings N]

The program is the authors' CellularQueue with numbers in place of the clock, called with LIGHT HEAVY OFFSETS F_MS
END_MS. It reads lines "MS BYTES", the arrivals, and prints lines "NUMBER MS", the departures. This clock has whole
milliseconds: departures are compared to within one. Recordings are generated. Trains are no longer than the light rows,
because the tool and the paper serve longer ones in different ways (docs/explanation/cellreplay.md).
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
from pathlib import Path

from cellbed import Link

MS = 1_000_000
END_MS = 2_000
IDLE_MS = (0, 0, 5, 12, 24)
OFFSETS = [(100 * step, -7 + step // 2) for step in range(1, 15)]
READINGS = [(idle_at, anchor) for anchor in ("base-delay", "first-packet") for idle_at in ("link", "queue")]
SIZES = {"1400 bytes": (1400,), "100 bytes, one at a time": (100,), "both in a train": (100, 1400)}

Packets = list[tuple[int, int]]
"""Arrival, ms, and bytes of each packet."""


def write_recording(chance: random.Random, folder: Path) -> None:
    """Write two seconds of light rows each 50 ms, and a heavy opportunity each millisecond."""
    rows, delay = [], chance.randrange(20, 60)
    for number in range(END_MS // 50):
        delay = max(10, min(80, delay + chance.choice((0, 0, 0, -3, 3, -1, 1))))
        offsets = [0]
        for _ in range(9):
            offsets.append(offsets[-1] + chance.choice((0, 1, 1, 2, 3)))
        rows.append(f"{number * 50} {delay} {' '.join(map(str, offsets))}\n")
    (folder / "light").write_text("".join(rows))
    (folder / "heavy").write_text("".join(f"{at}\n" for at in range(1, 2 * END_MS)))
    (folder / "offsets").write_text("".join(f"{size} {offset}\n" for size, offset in OFFSETS))


def draw_packets(chance: random.Random, sizes: tuple[int, ...], *, single: bool) -> Packets:
    """Draw trains of 1 to 8 packets, 20 to 100 ms apart, until the recording ends."""
    found, now = Packets(), 0
    while now < END_MS - 100:
        for _ in range(1 if single else chance.choice((1, 1, 2, 5, 8))):
            found.append((now, chance.choice(sizes)))
            now += chance.choice((0, 0, 0, 1))
        now += chance.choice((20, 30, 50, 50, 70, 100))
    return found


def replay_original(program: Path, folder: Path, idle_ms: int, packets: Packets) -> list[float]:
    """Return departures from the original, ms."""
    arguments = [str(folder / "light"), str(folder / "heavy"), str(folder / "offsets"), str(idle_ms), str(2 * END_MS)]
    lines = "".join(f"{at} {size}\n" for at, size in packets)
    done = subprocess.run([str(program), *arguments], input=lines, capture_output=True, text=True, check=True)
    left = dict(tuple(map(int, line.split())) for line in done.stdout.splitlines())
    return [float(left[number]) for number in range(len(packets))]


def replay_link(folder: Path, idle_ms: int, packets: Packets, reading: tuple[str, str]) -> list[float]:
    """Return departures from our link, ms."""
    files = {"light": "light", "heavy": "heavy", "latency_offset": "offsets"}
    stage = {"kind": "workload-dependent", "looped": True, "idle_ns": idle_ms * MS, "queue": {"kind": "infinite"}}
    stage |= {key: str(folder / name) for key, name in files.items()}
    link = Link.of_stages([stage | dict(zip(("idle_at", "anchor"), reading, strict=True))])
    out = link.run([at * MS for at, _ in packets], [size for _, size in packets])
    left = dict(zip(out.packet.tolist(), out.departed.tolist(), strict=True))
    return [left[number] / MS for number in range(len(packets))]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=60)
    arguments = parser.parse_args()
    program = Path(os.environ.get("CELLREPLAY_QUEUE") or parser.error("set CELLREPLAY_QUEUE to the authors' queue"))
    print(f"{'packets':26}{'idle_at, anchor':22}{'count':>8}{'within 1 ms':>13}{'mean, ms':>10}{'worst, ms':>11}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, sizes in SIZES.items():
            off: dict[tuple[str, str], list[float]] = {reading: [] for reading in READINGS}
            chance = random.Random(7)
            for _ in range(arguments.recordings):
                write_recording(chance, folder)
                idle_ms, packets = chance.choice(IDLE_MS), draw_packets(chance, sizes, single=sizes == (100,))
                original = replay_original(program, folder, idle_ms, packets)
                for reading, each in off.items():
                    own = replay_link(folder, idle_ms, packets, reading)
                    each += [abs(a - b) for a, b in zip(original, own, strict=True)]
            for reading, each in off.items():
                near = sum(one < 1 for one in each) / len(each)
                figures = f"{len(each):8}{100 * near:11.1f} %{sum(each) / len(each):10.2f}{max(each):11.1f}"
                print(f"{name:26}{', '.join(reading):22}{figures}", flush=True)


if __name__ == "__main__":
    main()

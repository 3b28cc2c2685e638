"""Descriptions of cells of ns-3, drawn from stated ranges."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Description = dict[str, Any]
"""A cell, in JSON values: the names of :data:`RANGES` without ``pace``, ``handover`` and ``download``; ``name``;
``seed`` of all chance; ``speed_mps``; ``site_m``, 0 without a second base station; ``users``, a list of mappings with
``kind`` (``on-off`` or ``download``) and the names of :data:`USER`."""

RANGES: dict[str, Any] = {
    # Resource blocks of 5 and 10 MHz (3GPP TS 36.104, table 5.6-1); 20 MHz take twice the time of 10.
    "blocks": [25, 50],
    # Prefixes of ns-3's classes. Not drawn: FdTbfq and TdTbfq need guaranteed rates; FdMt, TdMt and Tta serve nobody
    # beside the best device; FdBet and TdBet give idle devices their share, so that a second device halves the rate.
    "scheduler": ["Pf", "Pf", "Rr", "Pss", "Cqa"],
    "harq": [True, True, True, False],
    # RLC in acknowledged mode. In ns-3 3.37, light traffic of one device then halves the rate of another.
    "acknowledged": [True, False],
    # A terminal's queue in each direction: 0.1 s at 10 Mbit/s to 1 MB (Jiang et al., "Understanding Bufferbloat in
    # Cellular Networks", CellNet 2012, §3).
    "buffer_bytes": (120_000, 1_000_000),
    # Distance of the measured devices: within a site of 500 m (3GPP TR 36.814, table A.2.1.1-1, case 1).
    "distance_m": (40, 450),
    "pace": ["static", "static", "walking", "driving"],
    # Of a moving device: whether a second base station takes over at a distance (TR 36.814, cases 1 and 3).
    "handover": [True, True, False],
    "site_m": (500, 900),
    # One-way delay behind the gateway: round trips of 20 to 60 ms in total (CellReplay, NSDI 2025, §3.1).
    "core_ms": (4, 22),
    # Profiles of 3GPP TS 36.104, annex B.2.
    "fading": [None, "EPA", "EVA", "ETU"],
    # Other users. One is a download by TCP without end; the others send during exponential times at rates of calls,
    # videos and pages.
    "users": [0, 0, 1, 2, 3, 4, 6],
    "download": [True, False, False],
}
"""Choices in lists; limits of log-uniform numbers in tuples."""
USER = {"distance_m": (40, 450), "down_mbps": (0.1, 8), "up_mbps": (0.02, 1.5), "on_s": (0.1, 4), "off_s": (0.3, 10)}
"""Limits of another user's log-uniform numbers. on_s, off_s: mean times with and without packets."""
SPEEDS = {"static": (0, 0), "walking": (0.8, 1.7), "driving": (8, 14)}
"""Limits of a device's uniform speed, m/s."""
_SURROUNDINGS_KMH = 1.0
"""Speed that fading of a static device corresponds to, km/h."""

# Delay, ns, and power, dB, of each tap: 3GPP TS 36.104, tables B.2-1 to B.2-3.
_TAPS = {
    "EPA": ((0, 30, 70, 90, 110, 190, 410), (0.0, -1.0, -2.0, -3.0, -8.0, -17.2, -20.8)),
    "EVA": ((0, 30, 150, 310, 370, 710, 1090, 1730, 2510), (0.0, -1.5, -1.4, -3.6, -0.6, -9.1, -7.0, -12.0, -16.9)),
    "ETU": ((0, 50, 120, 200, 230, 500, 1600, 2300, 5000), (-1.0, -1.0, -1.0, 0.0, 0.0, 0.0, -3.0, -5.0, -7.0)),
}
_FADING_MS, _WAVES = 20_000, 24
_CARRIER_HZ, _BLOCK_HZ, _LIGHT_MPS = 2.12e9, 180e3, 3e8


def draw(chance: random.Random) -> Description:
    """Return the description of a cell."""

    def value(limits: Any) -> Any:
        if isinstance(limits, list):
            return chance.choice(limits)
        low, high = map(math.log, limits)
        return round(math.exp(chance.uniform(low, high)), 2)

    seed = chance.randrange(1, 2**31)
    found: Description = {"name": f"ns3-{seed:08x}", "seed": seed}
    found |= {name: value(limits) for name, limits in RANGES.items()}
    pace, handover, download = (found.pop(name) for name in ("pace", "handover", "download"))
    found["speed_mps"] = round(chance.uniform(*SPEEDS[pace]), 2)
    found["buffer_bytes"] = round(found["buffer_bytes"])
    # Without HARQ, acknowledged mode stalls in ns-3 3.37.
    found["harq"] |= found["acknowledged"]
    found["site_m"] = found["site_m"] if pace != "static" and handover else 0
    if found["site_m"]:
        # The device passes to and fro between both base stations.
        found["distance_m"] = min(found["distance_m"], round(found["site_m"] / 4, 2))
    kinds = ["download" if download and not number else "on-off" for number in range(found["users"])]
    found["users"] = [{"kind": kind} | {name: value(limits) for name, limits in USER.items()} for kind in kinds]
    return found


def write(description: Description, folder: Path, devices: int, weather: int, course_ns: int) -> Path:
    """Write a description for the program, with its trace of fading, into a folder; return the file.

    devices: number of measured devices. weather: number of other chance in the same cell. course_ns: time for which a
    moving device has moved.
    """
    keys = ["seed", "blocks", "scheduler", "harq", "acknowledged", "buffer_bytes"]
    keys += ["distance_m", "speed_mps", "site_m", "core_ms"]
    lines = [f"{key} {description[key]}".replace("True", "1").replace("False", "0") for key in keys]
    lines += [f"devices {devices}", f"run {weather}", f"course_s {course_ns / 1e9}"]
    if description["fading"]:
        np.savetxt(folder / "fading", fading(description, weather), "%.1f")
        lines.append(f"fading {_FADING_MS} {folder / 'fading'}")
    fields = ("distance_m", "kind", "down_mbps", "up_mbps", "on_s", "off_s")
    lines += [f"user {' '.join(str(user[field]) for field in fields)}" for user in description["users"]]
    path = folder / "description"
    path.write_text("\n".join(lines) + "\n")
    return path


def describe(description: Description) -> str:
    """Return a description in one line."""
    kinds = [user["kind"] for user in description["users"]]
    site = f", other site at {description['site_m']:.0f} m" if description["site_m"] else ""
    return (
        f"{description['blocks']} blocks, {description['scheduler']}, HARQ {description['harq']}, "
        f"RLC {'AM' if description['acknowledged'] else 'UM'}, {description['buffer_bytes'] / 1e3:.0f} KB, "
        f"{description['distance_m']:.0f} m, {description['speed_mps']:.1f} m/s{site}, fading {description['fading']}, "
        f"{len(kinds)} other users, {kinds.count('download')} of them a download"
    )


def fading(description: Description, weather: int) -> npt.NDArray[np.float64]:
    """Return the gain of each resource block in each millisecond, dB.

    Each tap is a sum of plane waves from random directions (Clarke, "A Statistical Theory of Mobile-Radio Reception",
    BSTJ 47, 1968); the mean power of all taps is 0 dB.
    """
    delays, powers = map(np.array, _TAPS[description["fading"]])
    random = np.random.default_rng((description["seed"], weather))
    speed_mps = description["speed_mps"] or _SURROUNDINGS_KMH / 3.6
    turns = 2 * np.pi * speed_mps / _LIGHT_MPS * _CARRIER_HZ * np.arange(_FADING_MS) / 1000
    frequencies = np.arange(description["blocks"]) * _BLOCK_HZ
    shares = 10 ** (powers / 10) / np.sum(10 ** (powers / 10)) / _WAVES
    gain = np.zeros((len(frequencies), _FADING_MS), complex)
    for delay, share in zip(delays, shares, strict=True):
        waves = np.zeros(_FADING_MS, complex)
        for angle, phase in random.uniform(0, 2 * np.pi, (_WAVES, 2)):
            waves += np.exp(1j * (np.cos(angle) * turns + phase))
        gain += np.sqrt(share) * np.outer(np.exp(-2j * np.pi * frequencies * delay * 1e-9), waves)
    return 20 * np.log10(np.maximum(np.abs(gain), 1e-3))

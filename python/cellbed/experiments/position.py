"""Positions during a recording: from gpsd, or from a device or file with sentences of NMEA 0183."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from cellbed.experiments.sampling import Sampler
from cellbed.recordings.description import Description, Position

_GPSD = ("localhost", 2947)
_WATCH = b'?WATCH={"enable":true,"json":true};\n'
_LONGEST_LINE = 1 << 14
_POLL_S = 0.2
_SILENCE_S = 5.0
"""Maximum silence of gpsd before it is asked again."""
_KNOT_M_S = 1852 / 3600
_LIMITS = {"altitude_m": (-1e3, 1e5), "speed_m_s": (0.0, 1e3), "accuracy_m": (0.0, 1e6)}
"""Smallest and largest plausible values. Values beyond are dropped."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A position, WGS 84. latitude, longitude: degrees. altitude_m: above mean sea level. None is unknown."""

    latitude: float
    longitude: float
    altitude_m: float | None = None
    speed_m_s: float | None = None
    accuracy_m: float | None = None


class PositionSampler(Sampler):
    """Samples positions. source: ``gpsd``, or the path of a device or file."""

    kind = "position"

    def sample(self) -> None:
        """Read lines until the source ends. A file or pipe can grow at its end."""
        is_gpsd = self.source == "gpsd"
        reader = GpsdReader() if is_gpsd else NmeaReader()
        with self._open_gpsd() if is_gpsd else Path(self.source).open("rb") as source:
            if not is_gpsd and source.seekable():
                source.seek(0, os.SEEK_END)
            while not self.ending.is_set():
                line = source.readline(_LONGEST_LINE)
                if not line and is_gpsd:
                    raise ConnectionResetError("gpsd has closed the connection")
                fix = reader.read(line.decode("ascii", "replace").strip())
                if fix is not None:
                    self.add(fix.latitude, fix.longitude, fix.altitude_m, fix.speed_m_s, fix.accuracy_m)
                elif reader.is_searching:
                    self.problem = "no fix: the receiver sees too few satellites"
                if not line:
                    self.ending.wait(_POLL_S)

    def _open_gpsd(self) -> BinaryIO:
        with socket.create_connection(_GPSD, timeout=_SILENCE_S) as gpsd:
            gpsd.sendall(_WATCH)
            return gpsd.makefile("rb")

    @classmethod
    def summarize(cls, rows: pl.DataFrame, description: Description) -> tuple[dict[str, Any], list[str]]:
        """Return the medians of all columns."""
        medians = rows.select(pl.exclude("at_ns").median()).to_dicts()[0]
        turned = float(np.median(np.unwrap(rows["longitude"].to_numpy(), period=360)))  # across the date line
        return {"position": Position(fixes=rows.height, **medians | {"longitude": (turned + 180) % 360 - 180})}, []


def _number(value: Any) -> float | None:
    """Return a finite number, from a number or a plain decimal text."""
    if isinstance(value, bool) or (isinstance(value, str) and (len(value) > 20 or "_" in value)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _fix(latitude: float | None, longitude: float | None, **others: Any) -> Fix | None:
    """Return a fix without implausible values; None for an impossible place."""
    if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
        return None
    found = {name: _number(value) for name, value in others.items()}
    kept = {name: value for name, value in found.items() if value is not None and _is_plausible(name, value)}
    return Fix(latitude, longitude, **kept)


def _is_plausible(name: str, value: float) -> bool:
    low, high = _LIMITS[name]
    return low <= value <= high


class GpsdReader:
    """Reports of gpsd, one JSON object per line: TPV, time-position-velocity (gpsd_json(5)).

    is_searching: whether the last report had no fix.
    """

    is_searching = False

    def read(self, line: str) -> Fix | None:
        """Return the position in a report; None for other reports, or without a fix."""
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(report, dict) or report.get("class") != "TPV":
            return None
        self.is_searching = report.get("mode") not in (2, 3)
        if self.is_searching:
            return None
        altitude = report.get("altMSL", report.get("alt"))
        place = _number(report.get("lat")), _number(report.get("lon"))
        return _fix(*place, altitude_m=altitude, speed_m_s=report.get("speed"), accuracy_m=report.get("eph"))


class NmeaReader:
    """Sentences of NMEA 0183: the place and speed of RMC, with the altitude of a GGA of the same time.

    is_searching: whether the last RMC had no fix.
    """

    def __init__(self) -> None:
        self.is_searching = False
        self._altitude: tuple[str, str] = "", ""

    def read(self, line: str) -> Fix | None:
        """Return the position in a sentence; None for other or damaged sentences, or without a fix."""
        body, _, checksum = line.removeprefix("$").partition("*")
        if not line.startswith("$") or checksum.strip().upper() != nmea_checksum(body):
            return None
        kind, *words = body.split(",")
        if kind[-3:] == "GGA" and len(words) >= 9:
            self._altitude = words[0], words[8]
        if kind[-3:] != "RMC" or len(words) < 7:
            return None
        self.is_searching = words[1] != "A"
        if self.is_searching:
            return None
        at, altitude = self._altitude
        knots = _number(words[6])
        return _fix(
            _degrees(words[2], words[3], "NS"),
            _degrees(words[4], words[5], "EW"),
            altitude_m=altitude if at == words[0] else None,
            speed_m_s=None if knots is None else knots * _KNOT_M_S,
        )


def nmea_checksum(body: str) -> str:
    """Return the checksum of a sentence between ``$`` and ``*``: exclusive or of its bytes, in hexadecimal."""
    return f"{functools.reduce(operator.xor, body.encode(), 0):02X}"


def _degrees(text: str, side: str, sides: str) -> float | None:
    """Return an angle in degrees from NMEA's degrees and minutes, ``ddmm.mmm``. sides: positive, negative."""
    number = _number(text)
    if number is None or number < 0 or side not in tuple(sides):
        return None
    degrees, minutes = divmod(number, 100)
    return (degrees + minutes / 60) * (1 if side == sides[0] else -1) if minutes < 60 else None

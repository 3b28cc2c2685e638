"""The radio signal of Android phones during a recording: `dumpsys telephony.registry` over adb."""

from __future__ import annotations

import errno
import re
import subprocess
import threading
import time
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from cellbed.experiments.sampling import Sampler
from cellbed.recordings.description import Description

_EVERY_S = 0.2
_SLOW_NS = 400_000_000
"""Minimum median time between samples that a warning reports."""
_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
"""Maximum bytes read of a dump; a phone's dump has tens of KiB."""
_SIMULTANEOUS_NS = 10**9
"""Maximum time between samples of two devices whose cells are compared."""

_SIGNAL = re.compile(r"mSignalStrength=([^\n]{1,8000})")
_LTE = re.compile(r"CellSignalStrengthLte:([^,}]{1,1000})")
_NR = re.compile(r"CellSignalStrengthNr:([^}]{1,1000})")
_FLAT = re.compile(r"SignalStrength:((?: -?[0-9]{1,10}){11})")
"""Before Android 10: RSRP, RSRQ and RSSNR are the ninth to eleventh number."""
_PAIR = re.compile(r"(\w{1,40})\s{0,4}=\s{0,4}(-?[0-9]{1,12})(?![0-9*])")
_REGISTERED = r"mRegistered=(?:YES|true)[^\n]{0,300}?CellIdentity"
_CELLS = {
    kind: [
        re.compile(rf"{before}{kind}:\{{([^}}]{{1,1000}})")
        for before in (
            "mCellIdentity=CellIdentity",
            rf"CellInfo{kind}:\{{\s?{_REGISTERED}",
            "cellIdentity=CellIdentity",
        )
    ]
    for kind in ("Lte", "Nr")
}
"""The serving cell: in a line of its own, or registered among the cells around, or in the state of the service."""
_RANGES = {"lte": ((-140, -43), (-34, 3), (-20, 30)), "nr": ((-156, -31), (-43, 20), (-23, 40))}
"""Ranges of RSRP (dBm), RSRQ and SINR (dB): 3GPP TS 36.133, §9.1, and TS 38.133, §10.1. A missing value is beyond."""
_LARGEST_ID = {"Lte": (1 << 28) - 1, "Nr": (1 << 36) - 1}
"""Largest identities of cells: ECI (3GPP TS 36.413, §9.2.1.38) and NCI (TS 38.413, §9.3.1.7)."""


_Values = tuple[float | None, float | None, float | None]
"""RSRP, RSRQ, SINR."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A serving cell as a phone reports it; None is unknown. cell: ECI or NCI, else physical identity and channel."""

    technology: str
    cell: str | None
    rsrp_dbm: float | None
    rsrq_db: float | None
    sinr_db: float | None


def parse_registry(dump: str) -> Signal | None:
    """Return the signal in a dump of Android 8 or later: of the SIM with a data connection, else of the first one.

    With 5G beside LTE (`5g-nsa`), values are of 5G, and the cell is of LTE.
    """
    sims = [part for part in re.split(r"Phone Id=\d", dump)[:9] if _SIGNAL.search(part)]
    sims.sort(key=lambda part: "mDataConnectionState=2" not in part)
    return next((signal for part in sims if (signal := _signal(part)) is not None), None)


def _signal(part: str) -> Signal | None:
    found = _SIGNAL.search(part)
    assert found is not None
    line = found[0]
    lte = _lte_values(line)
    nr: _Values = (None, None, None)
    if (of_nr := _NR.search(line)) is not None:
        pairs = dict(_PAIR.findall(of_nr[1]))
        nr = _within("nr", *(pairs.get(name) for name in ("ssRsrp", "ssRsrq", "ssSinr")))
    if nr[0] is not None:
        kind, values = ("5g-sa" if lte[0] is None else "5g-nsa"), nr
    elif lte[0] is not None:
        kind, values = "lte", lte
    else:
        return None
    return Signal(kind, _cell(part, "Nr" if kind == "5g-sa" else "Lte"), *values)


def _lte_values(line: str) -> _Values:
    """Return RSRP, RSRQ and RSSNR. Android 10 and before report RSSNR in tenths of a dB."""
    if (flat := _FLAT.search(line)) is not None:
        rsrp, rsrq, tenths = flat[1].split()[8:11]
        return _within("lte", rsrp, rsrq, int(tenths) / 10)
    if (found := _LTE.search(line)) is None:
        return None, None, None
    pairs = dict(_PAIR.findall(found[1]))
    sinr = pairs.get("rssnr")
    if sinr is not None and not pairs.keys() & {"parametersUseForLevel", "cqiTableIndex"}:  # of Android 11 and later
        sinr = int(sinr) / 10
    return _within("lte", pairs.get("rsrp"), pairs.get("rsrq"), sinr)


def _within(kind: str, *values: str | float | None) -> _Values:
    numbers = [None if value is None else float(value) for value in values]
    first, second, third = (
        number if number is not None and low <= number <= high else None
        for number, (low, high) in zip(numbers, _RANGES[kind], strict=True)
    )
    return first, second, third


def _cell(part: str, kind: str) -> str | None:
    found = next(filter(None, (pattern.search(part) for pattern in _CELLS[kind])), None)
    pairs = {} if found is None else {name: int(value) for name, value in _PAIR.findall(found[1])}
    identity = pairs.get("mNci" if kind == "Nr" else "mCi", -1)
    if 0 <= identity <= _LARGEST_ID[kind]:
        return str(identity)
    if "mPci" in pairs:  # identities are masked on some phones
        return f"PCI {pairs['mPci']} on {pairs.get('mNrArfcn' if kind == 'Nr' else 'mEarfcn', '?')}"
    return None


class AndroidSampler(Sampler):
    """Samples a phone. source: ``adb`` for the only phone, or ``adb:SERIAL``."""

    kind = "signal"

    def sample(self) -> None:
        """Add a row for each dump with a signal."""
        serial = self.source.partition(":")[2]
        while not self.ending.is_set():
            due = time.monotonic() + _EVERY_S
            signal = parse_registry(self._dump(serial))
            if signal is None:
                self.problem = "the phone reports neither LTE nor 5G"
            else:
                technology, cell, *values = astuple(signal)
                self.add(serial or "adb", technology, cell, *values)
            self.ending.wait(max(0.0, due - time.monotonic()))

    def _dump(self, serial: str) -> str:
        command = ["adb", *(["-s", serial] if serial else []), "shell", "dumpsys", "telephony.registry"]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except FileNotFoundError:
            raise OSError(errno.ENOENT, "adb is not installed") from None
        timer = threading.Timer(_TIMEOUT_S, process.kill)
        timer.start()
        with process:
            assert process.stdout is not None
            output = process.stdout.read(_MOST_BYTES).decode(errors="replace")
            process.stdout.close()
        timer.cancel()
        if process.returncode and _SIGNAL.search(output) is None:
            *_, last = ["", *output.strip().splitlines()]
            raise OSError(errno.EIO, last[:200] or f"adb ended with status {process.returncode}")
        return output

    def warnings(self, rows: pl.DataFrame) -> list[str]:
        """Return the sentences of every sampler, and one about a slow phone."""
        warnings = super().warnings(rows)
        every_ns = rows["at_ns"].diff().median()
        if isinstance(every_ns, float) and every_ns > _SLOW_NS:
            warnings.append(f"{self.source} gave a signal every {every_ns / 1e9:.1f} s, not every {_EVERY_S:g} s.")
        return warnings

    @classmethod
    def summarize(cls, rows: pl.DataFrame, description: Description) -> tuple[dict[str, Any], list[str]]:
        """Return the first phone's median power, most frequent cell and technology, unless the user has given them."""
        known = description.signal.model_dump(exclude_none=True)
        first = rows.filter(pl.col("device") == pl.col("device").first())
        most = {name: first[name].drop_nulls().mode().sort() for name in ("technology", "cell")}
        found = {name: values[0] for name, values in most.items() if len(values)}
        found["rsrp_dbm"] = first["rsrp_dbm"].median()
        signal = description.signal.model_copy(update=found | known)
        return {"signal": signal}, _compare_cells(rows)


def _compare_cells(rows: pl.DataFrame) -> list[str]:
    """Return a warning if two devices were in different cells at the same time."""
    devices = [part.drop_nulls("cell") for part in rows.partition_by("device", maintain_order=True)]
    warnings = []
    for one, other in pairwise(devices):
        both = one.join_asof(
            other.select("at_ns", "cell", "device"), on="at_ns", strategy="nearest", tolerance=_SIMULTANEOUS_NS
        ).drop_nulls("cell_right")
        share = (both["cell"] != both["cell_right"]).mean()
        if isinstance(share, float) and share > 0:
            names = " and ".join(each["device"][0] for each in (one, other))
            warnings.append(
                f"{names} were in different cells for {share:.0%} of the time: they saw different networks."
            )
    return warnings

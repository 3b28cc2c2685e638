"""The check of a recording: each method replays parts of the recording that were held back from the method's fit.

Cross-validation over blocks of time (Stone, "Cross-validatory choice and assessment of statistical predictions",
Journal of the Royal Statistical Society B 36, 1974). The trains of a quarter of the blocks are held back at a time. The
method is fitted to the other trains and to the saturation. The same trains are sent through the replay at the same
times, and the arrivals in the held-back blocks are compared with the recorded ones. Downloads are never used for a fit.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

import cellbed
from cellbed.link import Link
from cellbed.measure.differences import Samples, difference, estimate, share_difference
from cellbed.recordings.certificate import FILE, Certificate, Checked, Deviation, read_certificate, write_certificate
from cellbed.recordings.derived import METHODS, Method, fingerprint, write_replay_files
from cellbed.recordings.description import Span
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording, read_recording
from cellbed.recordings.series import Stretch, round_trips, visible_stretches
from cellbed.recordings.sharing import alone, learn
from cellbed.recordings.virtual import send_again
from cellbed.scenario.recorded import calibration_idle, load_replay, recorded_queue
from cellbed.support.errors import CellbedError
from cellbed.support.units import SIZE
from cellbed.support.ways import WAYS, Way
from cellbed.testbed.links.stages import Parameters, Playing, Stage, bottleneck_stage
from cellbed_node.temporary import temporary_folder

BLOCK_NS = 5_000_000_000
"""Length of a block: longer than the time for which a network remembers packets."""
PARTS = 4
"""Number of parts; each is held back once."""
_FEWEST = 2 * PARTS
"""Minimum number of blocks."""
_FEWEST_SAMPLES, _FEWEST_DOWNLOADS = 5, 8
"""Minimum number of trains of a class, and of downloads, that count."""
_MOST = 4000
"""Maximum number of samples of a measure; of more, every second, third … is used."""
_LONGEST_NS = 24 * 3600 * 10**9
_CLASSES = (2, 10, 50, 150, 400)
"""Minimum lengths of the classes of trains, packets."""


def replay_stage(recording: Recording, way: Way, method: Method, folder: Path) -> Stage:
    """Return the stage that replays a direction of a recording by a method, with the recorded queue.

    Args:
        recording: The recording.
        way: The direction.
        method: The method.
        folder: An existing folder for the files of the stage.

    Returns:
        The stage, in the emulator's configuration.

    Raises:
        CellbedError: The recording lacks what the method needs.
    """
    description = recording.description
    files = write_replay_files(recording, way, method, folder)
    idle = calibration_idle(description, way, Path("the recording")) if method == "cellreplay" else 0
    capacity = load_replay(files, way, description.packet_bytes, idle)
    parameters = Parameters(capacity, recorded_queue(description, way, files.queue_bytes))
    return bottleneck_stage(parameters, Playing(), lambda _: WAYS.index(way))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks of a recording. A block's begin and part follow from the recording's id.

    phase: time of the first block before time zero, ns. shift: part of the block with number 0.
    """

    phase: int
    shift: int
    end: int

    @classmethod
    def of(cls, recording: Recording) -> _Blocks:
        drawn = int.from_bytes(hashlib.sha256(recording.description.id.encode()).digest()[:8], "big")
        return cls(drawn % BLOCK_NS, drawn // BLOCK_NS % PARTS, recording.description.duration_ns)

    def number(self, at: pl.Expr) -> pl.Expr:
        """Return the block of a time."""
        return (at + self.phase) // BLOCK_NS

    def part(self, at: pl.Expr) -> pl.Expr:
        """Return the part of a time's block."""
        return (self.number(at) + self.shift) % PARTS

    def kept(self, part: int) -> list[Stretch]:
        """Return the blocks that are not in a part."""
        numbers = range((self.end + self.phase) // BLOCK_NS + 1)
        begins = [(number, number * BLOCK_NS - self.phase) for number in numbers]
        return [
            Stretch(max(0, begin), min(self.end, begin + BLOCK_NS))
            for number, begin in begins
            if (number + self.shift) % PARTS != part
        ]


def check_recording(folder: Path, progress: Callable[[float], None] = lambda _: None) -> tuple[Certificate, str]:
    """Check the recording in a folder and write its certificate.

    Args:
        folder: The folder.
        progress: As for :func:`certify`.

    Returns:
        The certificate, and a sentence if it cannot be written; else an empty text.

    Raises:
        CellbedError: The recording cannot be read or checked.
    """
    recording = read_recording(folder)
    try:
        certificate = certify(recording, fingerprint(folder), progress)
    except RecordingError as error:
        raise RecordingError(f"{folder}: {error}") from None
    try:
        write_certificate(certificate, folder)
    except OSError as error:
        reason = error.strerror or error
        return certificate, f"{folder / FILE}: cannot be written: {reason}: the recording counts as not checked"
    return certificate, ""


def ensure_certificate(folder: Path) -> Certificate:
    """Return the certificate of the recording in a folder. Check the recording if needed; if this is not possible, the
    certificate contains the reason.

    Raises:
        CellbedError: The recording cannot be read.
    """
    if (certificate := read_certificate(folder)[0]) is not None:
        return certificate
    try:
        return check_recording(folder)[0]
    except RecordingError as error:
        impossible = Checked(reason=" ".join(str(error).split())[:1000])
        methods = dict.fromkeys(METHODS, impossible)
        return Certificate(tool=f"cellbed {cellbed.__version__}", files=fingerprint(folder), rule="", methods=methods)


def certify(recording: Recording, files: str, progress: Callable[[float], None] = lambda _: None) -> Certificate:
    """Check a recording with every method.

    A method's error is the largest of four: of the median and the 95th percentile of round trips, and the root mean
    squares of the errors of trains and of downloads. Errors include chance: a recording that is too short to show an
    error must not get a small one. A mean of the four would hide a method that fits its own probes alone. In place of
    fewer than eight downloads counts the mean number of packets per train that the replay loses too many or too few.

    Args:
        recording: The recording.
        files: Hash of its files, which binds the certificate.
        progress: Function called with the completed share.

    Returns:
        The certificate.

    Raises:
        RecordingError: The recording is too short, or contains no answered train.
    """
    if recording.description.duration_ns > _LONGEST_NS:
        raise RecordingError(f"too long for a check: at most {_LONGEST_NS // 3600 // 10**9} hours")
    blocks = _Blocks.of(recording)
    recorded = _samples(functools.reduce(alone, WAYS, recording), blocks)
    if recorded["block"].n_unique() < _FEWEST:
        seconds = _FEWEST * BLOCK_NS // 10**9
        raise RecordingError(f"too short for a check: record trains with answers for {seconds} s or more")
    found: dict[Method, Checked] = {}
    for number, method in enumerate(METHODS):
        replayed = []
        try:
            for part in range(PARTS):
                progress((number + part / PARTS) / len(METHODS))
                again = _replay(recording, blocks, part, method)
                replayed.append(_samples(again, blocks).filter(pl.col("part") == part))
            found[method] = _compare(recorded, pl.concat(replayed))
        except CellbedError as error:
            found[method] = Checked(reason=" ".join(str(error).split())[:1000])
    rule = (
        f"blocks of {BLOCK_NS // 10**9} s from {-blocks.phase} ns, each {PARTS}th held back, from part {blocks.shift}"
    )
    shares = {way: str(learn(recording, way)) for way in WAYS}
    return Certificate(tool=f"cellbed {cellbed.__version__}", files=files, rule=rule, methods=found, shares=shares)


def _hold_back(recording: Recording, blocks: _Blocks, part: int) -> Recording:
    """Return the recording without the trains in the blocks of a part."""
    description = recording.description
    spans = [span for span in description.spans if span.workload != "light"]
    for light in visible_stretches(description, "light") or [Stretch(0, description.duration_ns)]:
        for block in blocks.kept(part):
            start, end = max(light.start, block.start), min(light.end, block.end)
            if start < end:
                spans.append(Span(workload="light", start_ns=start, end_ns=end))
    described = replace(recording, description=description.model_copy(update={"spans": tuple(spans)}))
    return _only(described, blocks.part(pl.col("at")) != part)


def _only(recording: Recording, condition: pl.Expr) -> Recording:
    """Return a recording with the trains alone whose begin `at` meets a condition."""
    starts = recording.light_uplink.group_by("train").agg(at=pl.col("sent_ns").min())
    in_train = pl.col("train").is_in(starts.filter(condition)["train"].implode())
    light = recording.light_uplink.filter(in_train), recording.light_downlink.filter(in_train)
    return replace(recording, light_uplink=light[0], light_downlink=light[1])


def _replay(recording: Recording, blocks: _Blocks, part: int, method: Method) -> Recording:
    """Return the trains and downloads of a part over a replay of the others. The other trains are sent, too."""
    fitted, asked = _hold_back(recording, blocks, part), recording.downloads
    if asked is not None:
        asked = asked.filter(blocks.part(pl.col("started_ns")) == part)
    with temporary_folder() as folder:
        uplink, downlink = (Link.of_stages([replay_stage(fitted, way, method, Path(folder))]) for way in WAYS)
        again = send_again(replace(recording, downloads=asked), (uplink, downlink))
    return _only(again, blocks.part(pl.col("at")) == part)


def _samples(recording: Recording, blocks: _Blocks) -> pl.DataFrame:
    """Return a row per sample of a recording.

    Columns: group; measure; value: seconds, or for losses 0 or 1 of each packet; block; part.
    A train lasts for the round trip of its first packet and the time between its first and its last arrival.
    """
    trips = round_trips(recording)
    starts = recording.light_uplink.group_by("train").agg(at=pl.col("sent_ns").min())
    found = [_rows("round trip", "round trip", trips, "sent_ns", pl.col("round_trip_ns") / 1e9)]
    for way in WAYS:
        packets = recording.packets("light", way)
        arrived = pl.col("arrived_ns")
        trains = packets.group_by("train").agg(length=pl.len(), spread=arrived.max() - arrived.min())
        for least, above in pairwise((*_CLASSES, 65536)):
            those = trains.filter(pl.col("length").is_between(least, above - 1)).join(trips, on="train")
            lengths = f"{least} to {above - 1} packets" if above < 65536 else f"{least} packets and more"
            taken = (pl.col("round_trip_ns") + pl.col("spread")) / 1e9
            found.append(_rows("trains", f"{way} trains of {lengths}", those, "sent_ns", taken))
        lost = arrived.is_null().cast(pl.Float64)
        found.append(_rows("loss", f"{way} loss", packets.join(starts, on="train"), "at", lost))
    if recording.downloads is not None:
        for (size,), those in recording.downloads.partition_by("bytes", as_dict=True).items():
            name = f"download of {SIZE.format(size)}"
            found.append(_rows("downloads", name, those, "started_ns", pl.col("taken_ns") / 1e9))
    at = pl.col("at")
    return pl.concat(found).drop_nulls().with_columns(block=blocks.number(at), part=blocks.part(at))


def _rows(group: str, measure: str, table: pl.DataFrame, at: str, value: pl.Expr) -> pl.DataFrame:
    return table.select(group=pl.lit(group), measure=pl.lit(measure), at=at, value=value)


def _compare(recorded: pl.DataFrame, replayed: pl.DataFrame) -> Checked:
    """Return the deviations of replayed from recorded samples, with intervals from resampling the blocks (Carlstein,
    "The use of subseries values for estimating the variance", Annals of Statistics 14, 1986)."""
    again = replayed.partition_by("measure", as_dict=True)
    deviations: list[Deviation] = []
    squares: dict[str, list[Samples]] = {}
    has_downloads = (recorded["group"] == "downloads").sum() >= _FEWEST_DOWNLOADS
    for (group, measure), each in recorded.partition_by("group", "measure", as_dict=True, maintain_order=True).items():
        there, here = _units(each, again.get((measure,), each.clear()))
        if group == "loss":
            lost, lost_here = (np.array([(one.sum(), len(one)) for one in units]) for units in (there, here))
            shares = share_difference(lost, lost_here)
            deviations.append(_deviation(measure, shares, len(there), "share"))
            if not has_downloads:
                packets = each.height / int((recorded["group"] == "round trip").sum())
                squares.setdefault(group, []).append((packets * shares) ** 2)
            continue
        try:
            found = difference(there, here)
        except ValueError:
            continue  # a measure without samples
        if group == "round trip":
            named = {f"{measure}, median": found.median, f"{measure}, 95th percentile": found.p95}
        else:
            named = {measure: found.mean}
        for name, values in named.items():
            deviations.append(_deviation(name, values, found.units))
            if has_downloads if group == "downloads" else each.height >= _FEWEST_SAMPLES:
                squares.setdefault(name if group == "round trip" else group, []).append(values**2)
    if not squares:
        raise RecordingError("no train was answered by the replay")
    groups = {group: np.sqrt(np.mean(each, axis=0)) for group, each in squares.items()}
    largest: Samples = np.max([*groups.values()], axis=0)
    return Checked(
        largest=_deviation("largest", largest, recorded["block"].n_unique()),
        group=max(groups, key=lambda group: float(groups[group][0])),
        deviations=tuple(deviations),
    )


def _units(recorded: pl.DataFrame, replayed: pl.DataFrame) -> tuple[list[Samples], list[Samples]]:
    """Return the samples of a measure, network and replay, in each block with samples of both."""
    both = [each.gather_every(1 + each.height // _MOST) for each in (recorded, replayed)]
    blocks = sorted(set.intersection(*(set(each["block"]) for each in both)))
    there, here = ([each.filter(pl.col("block") == block)["value"].to_numpy() for block in blocks] for each in both)
    return there, here


def _deviation(measure: str, values: Samples, units: int, unit: Literal["relative", "share"] = "relative") -> Deviation:
    found = estimate(values, units)
    return Deviation(measure=measure, unit=unit, error=found.value, low=found.low, high=found.high)

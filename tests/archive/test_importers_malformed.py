"""Importers make sound series of any file, or report in one line what is wrong and where.

The files are made here: hand-written ones for each format, and good ones with other bytes put in.
"""

import io
import shutil
from pathlib import Path

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recorded_files as made
from cellbed.archive import TraceError
from cellbed.archive.entry import About, Draft
from cellbed.archive.importers import Options
from cellbed.archive.soundness import require_sound
from cellbed.recordings.importing import FORMATS, recognise
from cellbed.recordings.tool_files import NAMES

CAPTURE = made.pcap(made.download(12))
NEWER = made.pcapng(made.download(12))
REPORT = made.iperf3_report([(1e6, 2e6), (3e6, 4e6)])
HEAVY = "".join(f"{n * 2}\n" for n in range(1, 40)).encode()


def parquet() -> bytes:
    file = io.BytesIO()
    pl.read_csv(made.CSV).write_parquet(file)
    return file.getvalue()


GOOD: dict[str, bytes] = {
    "mahimahi": made.MAHIMAHI,
    "pcap": CAPTURE,
    "pcapng": NEWER,
    "iperf3": REPORT,
    "ping": made.PING,
    "nrscope": made.nrscope(),
    "hsdpa": made.HSDPA,
    "csv": made.CSV,
    "parquet": parquet(),
    "cellreplay": made.LIGHT_UP,
}


OPTIONS = {"mahimahi": Options(direction="uplink")}
BITS = st.sampled_from(
    (b"", b"\0", b"\n", b"-1", b"9" * 25, b"nan", b"1e999", b",", b'"', b"{", b"]", b"\xff\xff\xff\xff", b"\x80")
)


def laid_out(name: str, content: bytes, folder: Path) -> list[Path]:
    """The files of a recording of which one holds `content`."""
    if name != "cellreplay":
        path = folder / f"walk.{name}"
        path.write_bytes(content)
        return [path]
    whole = folder / "theirs"
    whole.mkdir(exist_ok=True)
    for file, held in zip(NAMES.values(), (content, made.LIGHT_DOWN, HEAVY, HEAVY), strict=False):
        (whole / file).write_bytes(held)
    return [whole]


def read_soundly(name: str, content: bytes, folder: Path, as_format: str | None = None) -> str | None:
    """What an import says that was refused; else its series are sound and nothing else is in the draft."""
    paths = laid_out(name, content, folder)
    draft = Draft(folder / "draft", About(origin="recorded"))
    draft.folder.mkdir(exist_ok=True)
    try:
        recognise(paths, as_format).read(paths, draft, OPTIONS.get(name))
    except TraceError as error:
        reported = str(error)
        assert "\n" not in reported
        assert "Traceback" not in reported
        assert reported.startswith(str(paths[0])), reported
        assert list(draft.folder.iterdir()) == []
        assert (draft.parts, draft.notes, draft.history) == ({}, [], [])
        return reported
    assert draft.parts
    for series in draft.parts.values():
        require_sound(series)
    files = {series.path.name for series in draft.parts.values()} | ({draft.recording} if draft.recording else set())
    files |= set(draft.tables)
    assert {path.name for path in draft.folder.iterdir()} == files
    shutil.rmtree(draft.folder)
    return None


FORMAT_NAMES = tuple(format.name for format in FORMATS)


def test_each_format_has_a_good_file_here() -> None:
    assert set(FORMAT_NAMES) - {"recording"} <= GOOD.keys()  # a recording is a folder


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(GOOD)),
    as_format=st.none() | st.sampled_from(FORMAT_NAMES),
    at=st.integers(0, 10**4),
    removed=st.integers(0, 60) | st.just(10**5),
    odd=BITS | st.binary(max_size=40),
)
def test_any_bytes_are_read_soundly_or_refused(
    name: str, as_format: str | None, at: int, removed: int, odd: bytes, tmp_path: Path
) -> None:
    good = GOOD[name]
    at %= len(good)
    content = good[:at] + odd + good[at + removed :]
    read_soundly(name, content, tmp_path, None if name == "cellreplay" else as_format)

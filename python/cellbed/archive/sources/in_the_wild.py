"""4G and 5G mmWave in Minneapolis: runs of Lumos5G as “A Variegated Look at 5G in the Wild” (SIGCOMM 2021) has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.sources.source import Recording, Source, entry_name, git_files, load_digests, put
from cellbed_node import inputs

_SECOND = 1_000_000_000
_COMMIT = "35aaf2857550c7f4c736fe9b01e894253a777e4e"
_FILE = re.compile(r"([45])g_trace_(?:(?P<run>\d+)_)?(?P<how>walking|driving)(?:_(?P<loop>\d+_\w+))?")


def _convert(folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.rglob("?g_trace_*")):
        found = _FILE.fullmatch(path.name)
        if found is None or not path.is_file():
            continue
        fifth = found[1] == "5"
        about = IN_THE_WILD.about(
            technology=f"{found[1]}g",
            band="mmwave" if fifth else None,
            operator="Verizon",
            place="Minneapolis, United States",
            date="2020",
            mobility=found["how"],
            method="throughput of TCP downlink by iPerf, each second",
            note="Of Lumos5G, processed by the authors. The date is when Lumos5G was published.",
        )
        number = found["run"] or found["loop"] or ""
        name = entry_name("5g-in-the-wild", f"{found[1]}g", found["how"], number.replace("_", "-"))
        yield Recording(name, path.relative_to(folder).as_posix(), about, partial(_fill, path))


def _fill(path: Path, draft: Draft) -> None:
    """A line holds a time in s and a rate in Mbit/s."""
    import polars as pl

    file = inputs.check(path)
    lines = pl.read_csv(
        file, has_header=False, new_columns=["line"], separator="\x1f", quote_char=None, infer_schema=False
    )
    words = lines.select(pl.col("line").str.strip_chars().str.extract_groups(r"^(?<s>[0-9.]+)\s+(?<rate>[0-9.]+)$"))
    rows = words.unnest("line").select(pl.col("s", "rate").cast(pl.Float64))
    if bad := rows["rate"].null_count():
        at = int(rows.with_row_index().filter(pl.col("rate").is_null())["index"][0]) + 1
        raise TraceError(f"{path.name}:{at}: {bad} lines do not have a time and a rate, this one first")
    if (rows["s"].diff() < 0).any():
        raise TraceError(f"{path.name}: its times run backwards")
    at_ns = ((pl.col("s") - float(rows["s"][0])) * _SECOND).round().cast(pl.Int64)
    # A few seconds are there twice.
    series = rows.group_by(at_ns.alias("at_ns"), maintain_order=True).agg(bit_s=pl.col("rate").mean() * 1e6)
    put(draft, "downlink", series, _SECOND)


IN_THE_WILD = Source(
    name="5g-in-the-wild",
    title="4G and 5G mmWave of Verizon in Minneapolis, walking and driving: the traces of the SIGCOMM 2021 study",
    page="https://github.com/SIGCOMM21-5G/artifact",
    licence="not stated",
    terms=(
        "The repository has no licence: ask the authors before passing the traces on. Cite the paper, and the "
        "paper of Lumos5G, their origin."
    ),
    citation=(
        "A. Narayanan, X. Zhang, R. Zhu, A. Hassan, S. Jin, X. Zhu, X. Zhang, D. Rybkin, Z. Yang, Z. M. Mao, F. Qian, "
        "Z.-L. Zhang. A Variegated Look at 5G in the Wild: Performance, Power, and QoE Implications. ACM SIGCOMM 2021, "
        "doi:10.1145/3452296.3472923"
    ),
    layout=(
        "Video-Streaming/Network-Traces/Lumous5G/STANDARD/…: a line holds a time in s and a throughput in Mbit/s; "
        "standard, number and means are in the name (5g_trace_100_walking, 4g_trace_driving_50015_dr)."
    ),
    checked="the repository's README and the 296 files themselves",
    convert=_convert,
    doubt=(
        "They are runs of Lumos5G, prepared by the same group for a video player; what the "
        "letters at the end of the names of 4G are is not stated. The repository's other measurements are not taken."
    ),
    remote=git_files(
        "SIGCOMM21-5G/artifact",
        _COMMIT,
        load_digests("5g-in-the-wild"),
        "Video-Streaming/Network-Traces/Lumous5G/",
    ),
)

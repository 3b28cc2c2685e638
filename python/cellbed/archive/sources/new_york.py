"""The recordings of New York University in the city's cellular networks: delivery opportunities of 2018 and 2019."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cellbed.archive.sources.source import Imported, Recording, Source, entry_name, git_files, load_digests

_COMMIT_2018 = "6138081113601ab74d145931616384b0eb7a77b0"
_FILE_2018 = re.compile(r"(downlink|uplink)-((3g|4g)-(no|with)-cross-(subway|times)(?:-\d)?)(?:\.pps)?")
_PLACES_2018 = {"subway": ("subway", "the subway"), "times": (None, "Times Square")}


def _of_2018(folder: Path) -> Iterator[Recording]:
    found: dict[Path, list[tuple[re.Match[str], Path]]] = {}
    for path in sorted(folder.rglob("*-cross-*")):
        name = _FILE_2018.fullmatch(path.name)
        # Of four uplinks the files are empty.
        if name is not None and path.is_file() and path.stat().st_size:
            found.setdefault(path.with_name(name[2]), []).append((name, path))
    for pair in found.values():
        name = pair[0][0]
        paths = tuple(path for _, path in pair)
        mobility, place = _PLACES_2018[name[5]]
        about = NYC_2018.about(
            technology=name[3],
            place=f"New York City, United States: {place}",
            date="2018",
            mobility=mobility,
            method="delivery opportunities in whole milliseconds, prepared for Mahimahi; the method is not stated",
            note=f"The date is of the publication. The file's name contains '{name[4]} cross', unexplained.",
        )
        yield Recording(
            entry_name("nyc-2018", name[2]), paths[0].relative_to(folder).as_posix(), about, Imported(paths, "mahimahi")
        )


NYC_2018 = Source(
    name="nyc-2018",
    title="New York University's 3G and 4G of 2018: Times Square and the subway, both directions",
    page="https://github.com/Soheil-ab/Cellular-Traces-2018",
    licence="not stated",
    terms="The repository has no licence: ask the authors before passing the recordings on. Cite the paper.",
    citation=(
        "S. Abbasloo et al. C2TCP: A Flexible Cellular TCP to Meet Stringent Delay Requirements. IEEE Journal on "
        "Selected Areas in Communications 37(4), 918–932, 2019"
    ),
    layout=(
        "DIRECTION-STANDARD-CROSS-PLACE with DIRECTION of downlink, uplink, STANDARD of 3g, 4g, CROSS of no-cross, "
        "with-cross and PLACE of subway, times (Times Square), in Mahimahi's format."
    ),
    checked="the repository's README, and 10 of the 16 files themselves",
    convert=_of_2018,
    doubt=(
        "The README states that the traces are of cellular networks in New York City and made for Mahimahi, and "
        "nothing of operator, day, device, or what 'cross' in the names is; the place is read from the names. Four "
        "uplinks of 3G are empty files there and are not asked for."
    ),
    remote=git_files("Soheil-ab/Cellular-Traces-2018", _COMMIT_2018, load_digests("nyc-2018")),
)

_COMMIT_2019 = "ac6717b5f113bf899344e91ffc57e472daf29954"
_FILE_2019 = re.compile(r"trace-(\d+)-(taxi|bus|home|timessquare)\d*")
_STATIONARY_2019 = {"3457194", "3458374"}
"""Recordings in Times Square (trace-info); in the others the user walked."""
_MOBILITY_2019 = {"taxi": "driving", "bus": "bus", "home": "stationary", "timessquare": "walking"}
_PLACES_2019 = {"taxi": "in a taxi", "bus": "on a bus", "home": "at home", "timessquare": "Times Square"}


def _of_2019(folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.rglob("trace-*")):
        name = _FILE_2019.fullmatch(path.name)
        if name is None or not path.is_file():
            continue
        about = NYC_2019.about(
            place=f"New York City, United States: {_PLACES_2019[name[2]]}",
            date="2019",
            mobility="stationary" if name[1] in _STATIONARY_2019 else _MOBILITY_2019[name[2]],
            method="delivery opportunities in whole milliseconds, in Mahimahi's format; the method is not stated",
            note="The README does not state the generation of the networks.",
        )
        of = path.relative_to(folder).as_posix()
        words = ("nyc-2019", name[2], name[1])
        yield Recording(entry_name(*words), of, about, Imported((path,), "mahimahi", "downlink"))


NYC_2019 = Source(
    name="nyc-2019",
    title="New York University's recordings of 2019: walking, stationary, bus and taxi in New York, downlink",
    page="https://github.com/Soheil-ab/Cellular-Traces-NYC",
    licence="not stated",
    terms="The repository has no licence: ask the authors before passing the recordings on. Cite the paper.",
    citation=(
        "S. Abbasloo, C.-Y. Yen, H. J. Chao. Classic Meets Modern: a Pragmatic Learning-Based Congestion Control for "
        "the Internet. ACM SIGCOMM 2020"
    ),
    layout=(
        "trace-NUMBER-WHERE with WHERE of taxi, bus, home, timessquare, in Mahimahi's format; trace-info states which "
        "are stationary, walking, driving."
    ),
    checked="the repository's README and trace-info, and 15 of the 23 files themselves",
    convert=_of_2019,
    doubt=(
        "The README calls the networks cellular without a generation or an operator, so the entries have none. It "
        "uses each trace for the downlink, which is what is taken for its direction; there are no uplinks (the "
        "repository's wired48 is a constant rate and is left out)."
    ),
    remote=git_files("Soheil-ab/Cellular-Traces-NYC", _COMMIT_2019, load_digests("nyc-2019")),
)

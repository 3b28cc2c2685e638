"""The recordings that come with Mahimahi, and KPN's 5G recordings, which are of the same format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cellbed.archive.sources.source import Imported, Recording, Source, entry_name, git_files, load_digests

_COMMIT = "ae477d437615b972217498ba52be07db17a15618"
_OPERATORS = {"ATT": "AT&T", "TMobile": "T-Mobile", "Verizon": "Verizon"}
_GENERATIONS = {"LTE": "4g", "UMTS": "3g", "EVDO": "3g"}
_CITATION = (
    "K. Winstein, A. Sivaraman, H. Balakrishnan. Stochastic Forecasts Achieve High Throughput and Low Delay over "
    "Cellular Networks. USENIX NSDI 2013"
)


def _mahimahi(folder: Path) -> Iterator[Recording]:
    for stem, files in _pairs(folder):
        operator, standard, *how = [*stem.split("-"), ""]
        if operator not in _OPERATORS or standard not in _GENERATIONS:
            continue
        year = next((word for word in how if word.isdecimal()), None)
        about = MAHIMAHI.about(
            technology=_GENERATIONS[standard],
            operator=_OPERATORS[operator],
            place="United States",
            date=year,
            mobility="driving" if "driving" in how else None,
            method=f"Saturator (delivery opportunities in whole milliseconds), {standard}",
        )
        yield Recording(entry_name(stem), files[0].name, about, Imported(files, "mahimahi"))


def _pairs(folder: Path) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Return the files that end in ``.up`` and ``.down``, paired by the rest of their names."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".up", ".down"):
            found.setdefault(path.stem, {})[path.suffix] = path
    yield from ((stem, tuple(files.values())) for stem, files in found.items())


MAHIMAHI = Source(
    name="mahimahi",
    title="Mahimahi's recordings: LTE, UMTS and EV-DO of three operators in the United States, both directions",
    page="https://github.com/ravinet/mahimahi/tree/master/traces",
    licence="GPL-3.0-or-later",
    terms="The licence is the repository's; it does not mention the recordings separately. Cite the paper.",
    citation=_CITATION,
    layout=(
        "OPERATOR-STANDARD-HOW.up and .down: a whole number of milliseconds a line, each one opportunity to send 1500 "
        "bytes (traces/README)."
    ),
    checked="the repository's README, and 13 of the 16 files themselves",
    convert=_mahimahi,
    remote=git_files("ravinet/mahimahi", _COMMIT, load_digests("mahimahi"), "traces/"),
)

_CONTINUUM = "f3ab5a5eb8623f7d96cc48067e77fbab249c7410"
_SETTINGS = {
    "KPN_5G": ("kpn-5g", "5g", None),
    "KPN_5G_low_band": ("kpn-5g-window", "5g", "window"),
    "KPN_4G": ("kpn-lte", "4g", None),
}
"""The files that the testbed's code names for each preset of the publication (appendix A.5)."""


def _kpn(folder: Path) -> Iterator[Recording]:
    for stem, files in _pairs(folder):
        if stem not in _SETTINGS:
            continue
        name, technology, obstacle = _SETTINGS[stem]
        about = KPN.about(
            technology=technology,
            operator="KPN",
            place="Amsterdam, The Netherlands (52.320949, 4.875078), 230 m from the cell tower",
            mobility="stationary",
            obstacle=obstacle,
            method="saturatr with a feedback device (delivery opportunities in whole milliseconds)",
            note=(
                "The publication (table 5.1) dates its recordings 17 June and traces of up to 120 s; the repository "
                "has this file since 8 June 2025 and it is longer, so it need not be the one that was evaluated."
                if stem == "KPN_5G"
                else None
            ),
        )
        yield Recording(name, files[0].name, about, Imported(files, "mahimahi"))


KPN = Source(
    name="kpn",
    title="KPN's 5G in Amsterdam (Mishchenko, 2025)",
    page=f"https://github.com/atlarge-research/continuum/tree/{_CONTINUUM}/mahimahi/traces",
    licence="not stated",
    terms=(
        "The repository is under the MIT licence, the copy of Mahimahi around the recordings under GPL-3.0; of them "
        "nothing is said: ask the authors before passing them on."
    ),
    citation=(
        "G. Mishchenko. Network Simulation for AI in the Digital Continuum. "
        "Vrije Universiteit Amsterdam, 2025, chapter 5"
    ),
    layout=(
        "KPN_5G.up and .down (no obstacle), KPN_5G_low_band.up and .down (behind a window), KPN_4G.up and .down, each "
        "in Mahimahi's format."
    ),
    checked="the testbed's code, which names the files, and KPN_5G.up itself",
    convert=_kpn,
    doubt=(
        "Only KPN_5G.up and .down have a public address that is known. The LTE recording and that behind a window are "
        "on Google Drive according to the publication, whose text does not have the link: get them from the authors "
        "and give the files, under their names, to --from."
    ),
    remote=git_files(
        "atlarge-research/continuum",
        _CONTINUUM,
        {
            "KPN_5G.down": "2c65bb67f64e5852d4d497b1b6c9396c97b76f39",
            "KPN_5G.up": "683824c8790ca6c108a6eef5d4540d045e736125",
        },
        "mahimahi/traces/",
    ),
)

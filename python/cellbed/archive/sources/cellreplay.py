"""The recordings that are published with CellReplay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cellbed.archive.sources.source import Imported, Recording, Source, entry_name, git_files

_COMMIT = "2ca662cb01a222dd7fcc10f9ed79293803b4ef21"
_HEAVY = "up-heavy-pdo"
_FILES = {_HEAVY, "down-heavy-pdo", "up-delay-light-pdo", "down-delay-light-pdo"}
_OPERATORS = {"tmobile": "T-Mobile", "t-mobile": "T-Mobile", "verizon": "Verizon"}


def _convert(folder: Path) -> Iterator[Recording]:
    for heavy in sorted(folder.rglob(_HEAVY)):
        if not {path.name for path in heavy.parent.iterdir()} >= _FILES:
            continue
        of = heavy.parent.relative_to(folder)
        words = [each for each in of.parts if each != "traces"]
        operator = next((_OPERATORS[word.lower()] for word in words if word.lower() in _OPERATORS), None)
        setting = words[-1] if words and words[-1].lower() not in _OPERATORS else None
        about = CELLREPLAY.about(
            technology="5g",
            operator=operator,
            place="United States",
            mobility=setting if setting in ("stationary", "walking", "driving") else None,
            method="CellReplay: packet trains and saturation at the same time",
            note=None if setting in ("stationary", "walking", "driving", None) else f"Setting: {setting}.",
        )
        yield Recording(entry_name("cellreplay", *words), of.as_posix(), about, Imported((heavy.parent,), "cellreplay"))


CELLREPLAY = Source(
    name="cellreplay",
    title="CellReplay's 5G recordings of two operators: light and heavy opportunities, base delay, offsets by size",
    page="https://github.com/williamsentosa95/cellreplay",
    licence="GPL-3.0",
    terms="The licence is the repository's; it does not mention the recordings separately. Cite the paper.",
    citation=(
        "W. Sentosa, B. Chandrasekaran, P. B. Godfrey, H. Hassanieh. CellReplay: Towards accurate record-and-replay "
        "for cellular networks. USENIX NSDI 2025"
    ),
    layout=(
        "In the archive OPERATOR/SETTING/ with up-delay-light-pdo, down-delay-light-pdo, up-heavy-pdo, down-heavy-pdo, "
        "latency-offset-up and latency-offset-down (README)."
    ),
    checked="the repository's README and the tool's code; the archive itself was not at hand",
    convert=_convert,
    doubt="Dates, places and bands of the single recordings are not in the README, so the entries lack them.",
    remote=git_files(
        "williamsentosa95/cellreplay",
        _COMMIT,
        {"cellular-traces.zip": "3bd230229547c05f7be80d4a6b2495d30f6621f0"},
        "traces/",
    ),
)

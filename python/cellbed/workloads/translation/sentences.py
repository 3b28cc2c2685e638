"""The data bank of a translation: English sentences of 100 to 200 bytes from a grammar."""

import random
from pathlib import Path

from cellbed.workloads.cache import Note, build_file, silent
from cellbed_node.offloading.translator import LONGEST, SHORTEST

COUNT = 100
SEED = 1
NOTE = "the sentences are synthetic, generated from a grammar"
"""The note on the data in reports."""

_FORMAT = 1


def _words(text: str) -> list[str]:
    return text.split()


_PEOPLE = _words(
    "engineer teacher farmer driver doctor student neighbour captain painter baker lawyer singer writer nurse judge "
    "mayor sailor tourist child mother father brother sister friend"
)
_THINGS = _words(
    "bridge letter house garden window car boat table picture book road wall bicycle train door lamp map ticket basket "
    "machine telephone camera hospital school"
)
_PLACES = _words("station river market church mountain library beach village museum airport harbour forest bakery park")
_QUALITIES = _words("old new small big red green expensive heavy beautiful dirty empty quiet famous dangerous")
_ACTS = _words("repaired painted opened visited photographed cleaned sold bought closed measured described lost")
_WHERE = _words("near behind in at opposite")
_LINKS = (", and", ", but", " because", " while", " after", " before", ", although", " when")
_TIMES = ("yesterday", "in the morning", "last week", "on Monday", "in the winter", "three years ago", "at night", "")


def data_bank(cache: Path, *, count: int = COUNT, seed: int = SEED, note: Note = silent) -> Path:
    """Return the file with ``count`` sentences under ``cache``, one per line, built if missing. Raises CellbedError."""
    path = cache / f"sentences-{_FORMAT}-{count}-{seed}.txt"
    if not path.is_file():
        note(f"building the data bank of {count} sentences, once: {path}")
        build_file(path, lambda temporary: write(temporary, count, seed))
    return path


def write(path: Path, count: int, seed: int) -> None:
    """Write ``count`` sentences, one per line; the same seed gives the same bytes."""
    path.write_text("".join(f"{sentence(seed, number)}\n" for number in range(count)), encoding="utf-8")


def sentence(seed: int, number: int) -> str:
    """Return the sentence of this number, with SHORTEST to LONGEST bytes."""
    generator = random.Random(f"{seed}/{number}")
    while True:
        clauses = [_clause(generator) for _ in range(generator.randint(2, 4))]
        text = clauses[0] + "".join(f"{generator.choice(_LINKS)} {clause}" for clause in clauses[1:])
        whole = f"{text[0].upper()}{text[1:]}."
        if SHORTEST <= len(whole) <= LONGEST:
            return whole


def _clause(generator: random.Random) -> str:
    draw = generator.choice
    person, thing, place = draw(_PEOPLE), draw(_THINGS), draw(_PLACES)
    if generator.random() < 0.5:
        thing = f"{draw(_QUALITIES)} {thing}"
    return f"the {person} {draw(_ACTS)} the {thing} {draw(_WHERE)} the {place} {draw(_TIMES)}".rstrip()

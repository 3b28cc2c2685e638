"""Checksums of files, as publishers write them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cellbed.archive.sources.source import Algorithm, Checksum

_PIECE = 1 << 20


def digest(path: Path, algorithm: Algorithm) -> str:
    """Hexadecimal digest of a file's bytes. Raises OSError."""
    # What is compared here is an accident of transport and not an attack, but for which the address is HTTPS.
    if algorithm == "git-blob":
        state = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    elif algorithm == "md5":
        state = hashlib.md5(usedforsecurity=False)
    else:
        state = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            state.update(piece)
    return state.hexdigest()


def matches(path: Path, checksum: Checksum) -> bool:
    """Whether a file is what its publisher says. Raises OSError."""
    return digest(path, checksum.algorithm) == checksum.digest.lower()

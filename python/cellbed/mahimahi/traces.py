"""What mm-link replays: a file in Mahimahi's format, any readable one, a constant rate, or a trace of the archive."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cellbed.mahimahi.errors import MahimahiError
from cellbed.mahimahi.rates import constant_trace, parse_rate


@dataclass(frozen=True, slots=True)
class Replayed:
    """name: as it was written. path: of a regular file with the trace, as long as this process lives."""

    name: str
    path: str
    duration_s: float


def replayed(text: str) -> Replayed:
    """The trace that `text` names, checked. A file comes before a rate of the same name, and that before the archive's.

    Errors: :class:`MahimahiError`.
    """
    # The module is large, and only this command needs it.
    from cellbed._core import TraceFormatError, parse_trace

    path = str(Path(text).absolute())
    try:
        if not stat.S_ISREG(Path(text).stat().st_mode):
            # A pipe can be read once only, and the trace is read by several.
            path = _kept(Path(text).read_bytes())
    except OSError as error:
        rate = parse_rate(text)
        path = _archived(text, error) if rate is None else _kept(constant_trace(rate).encode())
    try:
        trace = parse_trace(path)
    except (TraceFormatError, OSError) as error:
        raise MahimahiError(str(error).replace(path, text)) from None
    return Replayed(text, path, trace.duration_ns / 1e9)


def _archived(text: str, error: OSError) -> str:
    """The file of a trace that the archive calls so. error: why there is no such file otherwise."""
    from cellbed.traces import TraceError, is_named, resolve

    if not is_named(text):
        raise MahimahiError(f"{text}: cannot be read: {error.strerror}")
    try:
        return str(resolve(text, Path()).path)
    except TraceError as refused:
        raise MahimahiError(str(refused)) from None


def _kept(content: bytes) -> str:
    """A path of this process's memory with that content: it leaves nothing behind, however the process ends."""
    descriptor = os.memfd_create("trace")
    with contextlib.closing(os.fdopen(descriptor, "wb", closefd=False)) as file:
        file.write(content)
    return f"/proc/{os.getpid()}/fd/{descriptor}"

"""Traces for mm-link: a file in Mahimahi's format, a constant rate, or a trace of the archive."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cellbed.shell.mahimahi.arguments import MahimahiError, constant_trace, parse_rate
from cellbed_node import inputs


@dataclass(frozen=True, slots=True)
class Replayed:
    """A trace. name: as it was written. path: a regular file with the trace.

    descriptor: where the trace is in memory alone, the descriptor in `path`, which is valid for processes that
    inherit the descriptor.
    """

    name: str
    path: str
    duration_s: float
    descriptor: int | None = None


def find_trace(text: str) -> Replayed:
    """Return the trace that `text` names, validated: a file, otherwise a rate, otherwise a name of the archive.

    Errors: :class:`MahimahiError`.
    """
    # The module is large, and only this command needs it.
    from cellbed._core import TraceFormatError, parse_trace

    path = str(Path(text).absolute())
    descriptor = None
    try:
        if not stat.S_ISREG(Path(text).stat().st_mode):
            # A pipe can be read once only, and several processes read the trace.
            descriptor = _in_memory(inputs.content(Path(text), pipe=True))
    except OSError as error:
        rate = parse_rate(text)
        if rate is None:
            path = _find_in_archive(text, error)
        else:
            descriptor = _in_memory(constant_trace(rate).encode())
    if descriptor is not None:
        path = f"/proc/self/fd/{descriptor}"
    try:
        trace = parse_trace(path)
    except (TraceFormatError, OSError) as error:
        raise MahimahiError(str(error).replace(path, text)) from None
    return Replayed(text, path, trace.duration_ns / 1e9, descriptor)


def _find_in_archive(text: str, error: OSError) -> str:
    """Return the file of the archive's trace with this name. error: the reason why no other file was found."""
    from cellbed.archive import TraceError, is_named, resolve

    if not is_named(text):
        raise MahimahiError(f"{text}: cannot read the trace: {error.strerror}")
    try:
        return str(resolve(text, Path()).path)
    except TraceError as refused:
        raise MahimahiError(str(refused)) from None


def _in_memory(content: bytes) -> int:
    """Return a descriptor of memory with that content: nothing is left behind, however the processes end."""
    descriptor = os.memfd_create("trace")
    with contextlib.closing(os.fdopen(descriptor, "wb", closefd=False)) as file:
        file.write(content)
    return descriptor

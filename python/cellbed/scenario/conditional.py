"""A recording replayed conditional on each packet's situation: one direction of a load-dependent network."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cellbed.archive import TraceError, TraceSource
from cellbed.support import inputs


@dataclass(frozen=True)
class Conditional:
    """A model learnt from a recording, as the emulator's stage ``conditional`` reads it.

    name: of the recording and its direction. model: file. heavy: opportunities of saturation, of `opportunity` bytes;
    the same as in the model, used to state the rate.
    """

    name: str
    model: Path
    heavy: TraceSource
    opportunity: int

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal digest of the model. Raises TraceError when the file cannot be read."""
        try:
            with inputs.opened(self.model) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise TraceError(f"{self.model}: cannot read this file: {error.strerror}") from error

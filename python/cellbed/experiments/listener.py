"""The listener of a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellbed.measure.meter import Reading


class Listener:
    """Takes reports of the progress of a run. This class ignores them; subclasses override methods."""

    def phase(self, text: str) -> None:
        """Take the begin of a phase."""

    def note(self, text: str) -> None:
        """Take a message."""

    def progress(self, elapsed_s: float, total_s: float, counts: dict[str, int]) -> None:
        """Take the state of the workload: requests sent, completed, timed out."""

    def links(self, readings: Sequence[Reading]) -> None:
        """Take the current state of the links; called only if requested."""


class Logged(Listener):
    """A listener whose phases and notes are logged, too."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._log = listener, logging.getLogger(__name__)
        self.progress, self.links = listener.progress, listener.links  # type: ignore[method-assign]

    def phase(self, text: str) -> None:
        """Log and show the phase."""
        self._log.info(text)
        self._listener.phase(text)

    def note(self, text: str) -> None:
        """Log and show the note."""
        self._log.info(text)
        self._listener.note(text)

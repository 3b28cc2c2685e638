"""Rich's console for texts that others chose."""

from __future__ import annotations

from collections.abc import Iterable

from rich import console
from rich.segment import Segment

from cellbed.support.errors import printable


class Console(console.Console):  # noqa: TID251
    """A console that escapes the control characters of what it prints."""

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable with their control characters escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

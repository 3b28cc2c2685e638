"""Names in braces in texts, and their values: ``http://{server.address}:8080``."""

import re
from collections.abc import Mapping

PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
"""A doubled brace, a name in braces, or a single brace."""


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with each name replaced by its value; doubled braces become single ones."""
    return PART.sub(lambda part: values[part[1]] if part[1] is not None else part[0][0], text)

"""What every table of a scenario file has in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict

Path = tuple[str | int, ...]
"""Where a value lies in the file: keys from its top on, and numbers of entries of lists."""


class Table(BaseModel):
    """A table of the file: no keys but the known ones, no conversions between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def written(default: object) -> Any:
    """A default as the file would have it; it is validated like the file's own values."""
    return default

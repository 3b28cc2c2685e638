"""Base of all tables of a scenario file."""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

Path = tuple[str | int, ...]
"""Where a value lies in the file: keys from its top on, and numbers of entries of lists."""


class Table(BaseModel):
    """A table of the file: no keys but the known ones, no conversions between types."""

    # Most tables are only parts of others, whose validators contain theirs: validators are built when they are used.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, defer_build=True
    )

    def stage(self) -> dict[str, Any]:
        """Return the table as the path model reads it: quantities are whole numbers, with the unit in the key.

        The annotation of a field decides what it becomes (:attr:`cellbed.scenario.fields.TextField.stage`).
        """
        found: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            # Of a type that may be left out the annotation lies deeper: ``Annotated[int, …] | None``.
            inner = [each for choice in get_args(field.annotation) for each in getattr(choice, "__metadata__", ())]
            forms = [each.stage for each in (*field.metadata, *inner) if hasattr(each, "stage")]
            found |= forms[0](name, value) if forms and value is not None else {name: value}
        return found


def written(default: object) -> Any:
    """Return a default as in the file; it is validated like the file's values."""
    return default

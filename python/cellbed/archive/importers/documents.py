"""Documents in JSON that other programs wrote, checked against a model."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cellbed.archive.errors import TraceError
from cellbed.archive.importers.wording import in_quotes


class Document(BaseModel):
    """A JSON object; numbers are finite, and no value of one type stands for another."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


D = TypeVar("D", bound=Document)


def checked(value: Any, model: type[D], place: str) -> D:
    """Return the document that is a value of another one. place: of the value, for errors. Raises TraceError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise TraceError(f"{place}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(map(str, fault["loc"]))
    if fault["type"] == "value_error":
        return f"{where}: {fault['ctx']['error']}".removeprefix(": ")
    return f"{where}: {fault['msg']}, not {in_quotes(repr(fault['input']))}".removeprefix(": ")

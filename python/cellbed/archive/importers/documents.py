"""Documents in JSON that other programs wrote, checked against a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cellbed.archive.errors import TraceError
from cellbed.archive.importers.wording import in_quotes
from cellbed.support import inputs

TRUNCATED = "the JSON ends too early: the file is truncated"
"""The reason of a document that ends inside a value."""


class Document(BaseModel):
    """A JSON object; numbers are finite, and no value of one type stands for another."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


D = TypeVar("D", bound=Document)


def read_document(path: Path, model: type[D], remedy: str = "") -> D:
    """Return the document in a file. remedy: for one larger than the memory allows. Raises TraceError."""
    try:
        content = inputs.content(path, inputs.share_of_memory() // 8)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}{remedy}") from None
    return document(content, model, str(path))


def document(content: bytes, model: type[D], place: str) -> D:
    """Return the document in a text. place: of the text, for errors. Raises TraceError."""
    return _valid(lambda: model.model_validate_json(content), place)


def checked(value: Any, model: type[D], place: str) -> D:
    """Return the document that is a value of another one. Errors: as above."""
    return _valid(lambda: model.model_validate(value), place)


def _valid(validate: Callable[[], D], place: str) -> D:
    try:
        return validate()
    except ValidationError as error:
        raise TraceError(f"{place}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(map(str, fault["loc"]))
    if fault["type"] == "json_invalid":
        reason = str(fault["ctx"]["error"])
        return TRUNCATED if reason.startswith("EOF") else f"not JSON: {reason}"
    if fault["type"] == "value_error":
        return f"{where}: {fault['ctx']['error']}".removeprefix(": ")
    return f"{where}: {fault['msg']}, not {in_quotes(repr(fault['input']))}".removeprefix(": ")

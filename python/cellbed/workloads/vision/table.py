"""The keys of the kinds that look at images."""

import ast
import pathlib
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from cellbed.scenario.applications import Groups, Key
from cellbed.scenario.fields import CODE_FILE, FILE
from cellbed.workloads.offloading.table import Offloading
from cellbed_node import inputs

FUNCTIONS = ("preprocess", "postprocess")
"""Of the user's Python file."""
_RUNTIMES: dict[str, dict[str, str]] = {".onnx": {}, ".tflite": {"ai-edge-litert": "vision"}}


class Vision(Offloading):
    """Images go from the endpoints to a node over MQTT, where a network computes the replies."""

    model: Annotated[pathlib.Path, FILE] | None = Field(
        None, description="The user's own network in ONNX (.onnx) or LiteRT format (.tflite), with 'code'."
    )
    code: Annotated[pathlib.Path, CODE_FILE] | None = Field(
        None,
        description="Python file with preprocess(image) -> arrays and postprocess(outputs) -> bytes for 'model'.",
    )

    @property
    def packages(self) -> dict[str, str]:
        """As of :class:`Application`, for 'model'."""
        return _RUNTIMES.get(self.model.suffix, {}) if self.model is not None else {}

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.model is not None and self.model.suffix not in _RUNTIMES:
            yield "model", "neither a network in ONNX (.onnx) nor in LiteRT format (.tflite): convert it"
        if self.model is not None and self.code is None:
            yield "code", "missing: write the Python file with preprocess and postprocess for 'model'"
        if self.code is not None:
            if self.model is None:
                yield "model", "missing: write the network that 'code' is for, or remove 'code'"
            if (problem := _problem(self.code)) is not None:
                yield "code", problem


def _problem(code: pathlib.Path) -> str | None:
    """Return why a Python file cannot be used, without running it."""
    try:
        parsed = ast.parse(inputs.content(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        return f"'{code.name}' is not Python: {line}{getattr(error, 'msg', error)}"
    except OSError as error:
        return f"'{code.name}' cannot be read: {error.strerror}"
    defined = {each.name for each in parsed.body if isinstance(each, ast.FunctionDef)}
    if missing := [name for name in FUNCTIONS if name not in defined]:
        return f"'{code.name}' has no function {missing[0]}: write preprocess(image) and postprocess(outputs)"
    return None

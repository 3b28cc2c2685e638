"""The keys of all kinds that offload over MQTT, and of kinds with images."""

import ast
import pathlib
from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, Load
from cellbed.scenario.fields import CODE_FILE, FILE
from cellbed.scenario.roles import Role
from cellbed_node import inputs
from cellbed_node.offloading.runtimes import RUNTIMES, find_runtime

FUNCTIONS = ("preprocess", "postprocess")
"""Functions of the user's Python file."""


class Offloading(Load):
    """Inputs go from the endpoints to a node over MQTT, where workers compute the replies."""

    model_config = ConfigDict(json_schema_extra={**RATE_IF_NEEDED, "required": ["kind", "server"]})

    workers: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Worker processes of each server. Default: one per whole CPU.",
        examples=[2],
    )

    @property
    def served_by(self) -> Role | None:
        """The servers."""
        return self.server

    @property
    def movable_by(self) -> tuple[str, ...]:
        """All strategies but state: broker and workers have none that they could pass on."""
        return ("redeploy", "stop-and-copy", "pre-copy", "post-copy")

    def complete(self, groups: Groups) -> Self:
        """Return the application with the defaults that depend on the nodes filled in."""
        server = self.served_by
        group = groups.get(server.on) if server is not None else None
        workers = self.workers or (max(1, int(group.cpus)) if group is not None else None)
        return super().complete(groups).model_copy(update={"workers": workers, "server": server})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.served_by is None:
            yield "server", 'missing: write the node group that runs the service, server = "edge"'


class Vision(Offloading):
    """Images go from the endpoints to a node over MQTT, where a network computes the replies."""

    model: Annotated[pathlib.Path, FILE] | None = Field(
        None,
        description="The user's own network, with 'code', for ONNX Runtime (.onnx), LiteRT (.tflite), TensorFlow "
        "(.keras) or PyTorch (.pt2, .pt).",
    )
    code: Annotated[pathlib.Path, CODE_FILE] | None = Field(
        None,
        description="Python file with preprocess(image) -> arrays and postprocess(outputs) -> bytes for 'model'.",
    )

    @property
    def needs_code(self) -> bool:
        """Return whether the user's network needs the user's processing."""
        return True

    @property
    def packages(self) -> dict[str, str]:
        runtime = None if self.model is None else find_runtime(self.model)
        return {runtime.package: runtime.extra} if runtime is not None and runtime.extra else {}

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.model is not None and find_runtime(self.model) is None:
            endings = ", ".join(ending for each in RUNTIMES.values() for ending in each.suffixes)
            yield "model", f"no runtime for this ending; write a network with one of {endings}"
        if self.model is not None and self.code is None and self.needs_code:
            yield "code", "missing: write the Python file with preprocess and postprocess for 'model'"
        if self.code is not None:
            if self.model is None:
                yield "model", "missing: write the network that 'code' is for, or remove 'code'"
            if (problem := _problem(self.code)) is not None:
                yield "code", problem


def _problem(code: pathlib.Path) -> str | None:
    """Return why a Python file is unusable, without running it; None if usable."""
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

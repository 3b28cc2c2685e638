"""The policy ``python``: a function of the user chooses the node of a service."""

from __future__ import annotations

import ast
import pathlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from cellbed.scenario.fields import CODE_FILE, refusal
from cellbed.scenario.policies.policy import Decide, Decision, Policy, State
from cellbed.support.errors import CellbedError, printable
from cellbed_node import inputs
from cellbed_node.processes import time_limit

FUNCTION = "place"
LIMIT_S = 1.0
"""Maximum time of a call of the function, seconds."""


class PolicyError(CellbedError):
    """A failure of the user's function, or a result that is no node."""


def _check_function(path: pathlib.Path) -> pathlib.Path:
    try:
        tree = ast.parse(inputs.content(path), str(path))
    except SyntaxError as error:
        raise refusal(f"{path}:{error.lineno}: {error.msg}") from error
    except (OSError, ValueError) as error:
        raise refusal(f"{path}: {error}") from error
    if not any(isinstance(each, ast.FunctionDef) and each.name == FUNCTION for each in tree.body):
        raise refusal(f"{path} has no function: write def {FUNCTION}(state), which returns the name of a node or None")
    return path


class Python(Policy):
    """A function of the user, ``place(state)``, which returns the name of a node, or ``None``."""

    SEES_LINKS: ClassVar[bool] = True
    kind: Literal["python"] = Field(description="Decide by a function of a Python file.")
    file: Annotated[pathlib.Path, CODE_FILE, AfterValidator(_check_function)] = Field(
        description=f"Python file with a function {FUNCTION}(state), which returns the name of a node, or None."
    )
    nodes: list[str] = Field(min_length=1, description="Possible nodes of the service.", examples=[["edge-0"]])

    def targets(self) -> list[str]:
        return self.nodes

    def decider(self) -> Decide:
        """Return the function as a policy. Errors of the function and its file, with line: :class:`PolicyError`."""
        names: dict[str, Any] = {"__name__": self.file.stem, "__file__": str(self.file)}
        with self._errors(limit_s=0):
            exec(compile(inputs.content(self.file), str(self.file), "exec", dont_inherit=True), names)

        def decide(state: State) -> Decision | None:
            with self._errors(LIMIT_S):
                found = names[FUNCTION](state)
            if found is not None and (not isinstance(found, str) or found not in state.nodes):
                returned = f"{self.file}: {FUNCTION}() returned {printable(repr(found)[:200])}"
                raise PolicyError(f"{returned}: return None or one of {', '.join(state.nodes)}")
            return None if found is None else (found, str(self))

        return decide

    @contextmanager
    def _errors(self, limit_s: float) -> Iterator[None]:
        """Convert errors of the user's code to :class:`PolicyError`, and interrupt the code after `limit_s`, unless 0.
        Requires the main thread."""
        try:
            with time_limit(limit_s, TooLateError(f"{FUNCTION}() takes longer than {LIMIT_S:g} s")):
                yield
        except (Exception, SystemExit, TooLateError) as error:
            steps = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(self.file)]
            line = f":{steps[-1].lineno}" if steps else ""
            name = "" if isinstance(error, TooLateError) else f"{type(error).__name__}: "
            raise PolicyError(f"{self.file}{line}: {name}{printable(str(error)[:200])}") from error

    def __str__(self) -> str:
        """Return the policy in words."""
        return f"{FUNCTION}() of {self.file.name}"


class TooLateError(BaseException):
    """The function takes too long."""

"""The work of a kind's service for a request: decode the payload, compute, answer with text or bytes.

The module of a task has a function ``load(**options)`` that returns the task ready: the first request must not pay for
allocations. ``load`` imports the runtime, because the dispatcher imports the module before it forks.
"""

import importlib
import json
import subprocess
import sys
from typing import Any, Protocol


class ModelError(ValueError):
    """A model that cannot be used here. The text has the model, the reason and the remedy."""


class Task(Protocol):
    """A loaded model with its pre-processing."""

    def decode(self, payload: bytes) -> Any:
        """Return the payload as the model's input. Raises any exception for a damaged payload."""

    def compute(self, decoded: Any) -> str | bytes:
        """Return the reply."""


def check(task: str, **options: object) -> None:
    """Load a task in a separate process, since runtimes start threads and the caller may be about to fork.

    task: its module. Raises ModelError.
    """
    command = [sys.executable, "-P", "-m", "cellbed_node.offloading.task", task, json.dumps(options)]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()
        raise ModelError(reason[-1] if reason else f"{task}: the check ended with status {result.returncode}")


def _main() -> None:
    try:
        importlib.import_module(sys.argv[1]).load(**json.loads(sys.argv[2]))
    # Not `ModelError`: run as a program, this module is not the module that the task imports.
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()

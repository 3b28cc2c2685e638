"""The task of the kinds that process images: a network of any runtime, with processing in Python.

The Python code is a module of cellbed or a user's file. ``preprocess(image)`` gets a Pillow image in RGB and returns an
array, or one for each input of the network in order. ``postprocess(outputs)`` gets a list of arrays and returns the
bytes of the reply.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cellbed_node.offloading.images import decode
from cellbed_node.offloading.runtimes import Arrays, Network, find_runtime, reason
from cellbed_node.offloading.task import ModelError, Task


def load(model: str, code: str) -> Task:
    """Return the task of a network, warmed up with a grey image. code: a module, or the path of a Python file. Raises
    ModelError."""
    path = Path(model)
    if (runtime := find_runtime(path)) is None:
        raise ModelError(f"{path}: no runtime for this kind of file")
    found = Inference(runtime.network(path), _module(code), code)
    found.compute(found.prepare(Image.new("RGB", (640, 480), (128, 128, 128))))
    return found


class Inference:
    """A network with its processing; errors of the processing are a ValueError that names the function."""

    def __init__(self, run: Network, module: Any, code: str) -> None:
        self._run, self._module, self._code = run, module, Path(code).name

    def decode(self, payload: bytes) -> Arrays:
        """Return the inputs of the network. Raises ValueError."""
        return self.prepare(decode(payload))

    def prepare(self, image: Image.Image) -> Arrays:
        """Return the inputs of the network for an image."""
        arrays = self._call("preprocess", image)
        return [arrays] if isinstance(arrays, np.ndarray) else [np.asarray(each) for each in arrays]

    def compute(self, decoded: Arrays) -> bytes:
        """Return the reply."""
        try:
            outputs = self._run(decoded)
        # Each runtime has its own exception types.
        except Exception as error:
            shapes = ", ".join(f"{each.dtype} {list(each.shape)}" for each in decoded)
            raise ModelError(f"the network cannot take {shapes} of {self._code}: {reason(error)}") from error
        reply = self._call("postprocess", list(outputs))
        if not isinstance(reply, bytes):
            raise ModelError(f"{self._code}: postprocess returned {type(reply).__name__}: return bytes")
        return reply

    def _call(self, function: str, argument: object) -> Any:
        try:
            return getattr(self._module, function)(argument)
        # Any error in the user's code.
        except Exception as error:
            raise ModelError(f"{self._code}: {function}: {type(error).__name__}: {reason(error)}") from error


def _module(code: str) -> Any:
    if not code.endswith(".py"):
        return importlib.import_module(code)
    spec = importlib.util.spec_from_file_location("processing", code)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    # Any error in the user's code.
    except Exception as error:
        raise ModelError(f"{code}: {type(error).__name__}: {reason(error)}") from error
    return module

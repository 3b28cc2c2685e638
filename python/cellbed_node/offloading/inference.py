"""The task of the kinds that process images: a network in ONNX Runtime or LiteRT, with processing in Python.

The Python code is a module of cellbed or a user's file. ``preprocess(image)`` gets a Pillow image in RGB and returns an
array, or one for each input of the network in order. ``postprocess(outputs)`` gets a list of arrays and returns the
bytes of the reply.
"""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cellbed_node.offloading.classifier import decode, open_session
from cellbed_node.offloading.task import ModelError, Task

Arrays = Sequence[NDArray[Any]]


def load(model: str, code: str) -> Task:
    """Return the task of a network, warmed up with a grey image. code: a module, or the path of a Python file. Raises
    ModelError."""
    path = Path(model)
    found = Inference(_lite(path) if path.suffix == ".tflite" else _onnx(path), _module(code), code)
    found.compute(found.prepare(Image.new("RGB", (640, 480), (128, 128, 128))))
    return found


class Inference:
    """A network with its processing; errors of the processing are a ValueError that names the function."""

    def __init__(self, run: Callable[[Arrays], Arrays], module: Any, code: str) -> None:
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
            raise ModelError(f"the network cannot take {shapes} of {self._code}: {_reason(error)}") from error
        reply = self._call("postprocess", list(outputs))
        if not isinstance(reply, bytes):
            raise ModelError(f"{self._code}: postprocess returned {type(reply).__name__}: return bytes")
        return reply

    def _call(self, function: str, argument: object) -> Any:
        try:
            return getattr(self._module, function)(argument)
        # Any error in the user's code.
        except Exception as error:
            raise ModelError(f"{self._code}: {function}: {type(error).__name__}: {_reason(error)}") from error


def _onnx(path: Path) -> Callable[[Arrays], Arrays]:
    session = open_session(path)
    names = [each.name for each in session.get_inputs()]

    def run(arrays: Arrays) -> Arrays:
        found: Arrays = session.run(None, dict(zip(names, arrays, strict=True)))
        return found

    return run


def _lite(path: Path) -> Callable[[Arrays], Arrays]:
    from ai_edge_litert.interpreter import Interpreter

    try:
        interpreter = Interpreter(model_path=str(path), num_threads=1)
        interpreter.allocate_tensors()
    # Each runtime has its own exception types.
    except Exception as error:
        raise ModelError(f"{path}: LiteRT cannot load this model: {_reason(error)}") from error
    inputs, outputs = (
        [each["index"] for each in of()] for of in (interpreter.get_input_details, interpreter.get_output_details)
    )

    def run(arrays: Arrays) -> Arrays:
        for index, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run


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
        raise ModelError(f"{code}: {type(error).__name__}: {_reason(error)}") from error
    return module


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

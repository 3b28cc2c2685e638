"""Runtimes of networks: each opens a file and returns a function from arrays to arrays, on one thread."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed_node.offloading.task import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays = Sequence["NDArray[Any]"]
Network = Callable[[Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime. title: name in errors. suffixes: endings of its files. package: Python package; extra: the extra of
    cellbed with this package, "" for the base. load: opens a file; any exception is an error of the file."""

    title: str
    suffixes: tuple[str, ...]
    package: str
    extra: str
    load: Callable[[Path], Network]

    def network(self, path: Path) -> Network:
        """Return the network in a file. Raises ModelError."""
        found: Network = _open(path, self.title, self.load)
        return found


def find_runtime(path: Path) -> Runtime | None:
    """Return the runtime of a file's ending."""
    return next((each for each in RUNTIMES.values() if path.suffix in each.suffixes), None)


def load_onnx_runtime() -> Any:
    """Return the module ``onnxruntime``, imported without its vendor's telemetry.

    Otherwise ONNX Runtime writes a device identifier below the cache folder and, after some seconds, resolves the name
    of its vendor's host. These lookups would be part of the measurement.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # noqa: TID251 - here, after the setting

    return onnxruntime


def open_session(path: Path) -> Any:
    """Return a model in ONNX Runtime, on one thread that sleeps when idle. Raises ModelError."""
    return _open(path, "ONNX Runtime", _session)


def _open(path: Path, title: str, load: Callable[[Path], Any]) -> Any:
    if not path.is_file():
        raise ModelError(f"{path}: no such model file")
    try:
        return load(path)
    # Each runtime has its own exception types.
    except Exception as error:
        raise ModelError(f"{path}: {title} cannot load this model: {reason(error)}") from error


def _session(path: Path) -> Any:
    onnxruntime = load_onnx_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def reason(error: Exception) -> str:
    """Return the first line of an error."""
    return str(error).strip().partition("\n")[0]


def _onnx(path: Path) -> Network:
    session = _session(path)
    names = [each.name for each in session.get_inputs()]

    def run(arrays: Arrays) -> Arrays:
        found: Arrays = session.run(None, dict(zip(names, arrays, strict=True)))
        return found

    return run


def _lite(path: Path) -> Network:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    inputs, outputs = (
        [each["index"] for each in of()] for of in (interpreter.get_input_details, interpreter.get_output_details)
    )

    def run(arrays: Arrays) -> Arrays:
        for index, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run


def _tensorflow(path: Path) -> Network:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    # `safe_mode`: the code of a layer would run in this process.
    model = tensorflow.keras.models.load_model(path, compile=False, safe_mode=True)
    call = tensorflow.function(lambda *inputs: model(inputs[0] if len(inputs) == 1 else inputs, training=False))

    def run(arrays: Arrays) -> Arrays:
        return [each.numpy() for each in tensorflow.nest.flatten(call(*map(tensorflow.constant, arrays)))]

    return run


def _torch(path: Path) -> Network:
    import torch

    torch.set_num_threads(1)
    if path.suffix == ".pt2":
        model = torch.export.load(path).module()
    else:
        model = torch.jit.load(str(path), map_location="cpu").eval()

    def run(arrays: Arrays) -> Arrays:
        with torch.inference_mode():
            found = model(*(torch.tensor(each) for each in arrays))
        return [each.numpy() for each in (found if isinstance(found, (list, tuple)) else [found])]

    return run


RUNTIMES = {
    "onnx": Runtime("ONNX Runtime", (".onnx",), "onnxruntime", "", _onnx),
    "litert": Runtime("LiteRT", (".tflite",), "ai-edge-litert", "vision", _lite),
    "tensorflow": Runtime("TensorFlow", (".keras",), "tensorflow", "tensorflow", _tensorflow),
    "torch": Runtime("PyTorch", (".pt2", ".pt"), "torch", "torch", _torch),
}
"""Runtimes by name."""

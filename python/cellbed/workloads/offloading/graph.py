"""Networks as ONNX graphs with seeded weights: the compute of the real network, without its training.

Batch normalisation has neutral statistics and is folded into the biases of the convolutions, as an exporter for
inference does.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.workloads.cache import Note, build_elsewhere, build_file

if TYPE_CHECKING:
    import onnx

SEED = 1
_OPSET = 17
_IR_VERSION = 8


def built_model(cache: Path, name: str, what: str, module: str, seed: int, note: Note) -> Path:
    """Return the file of a model under ``cache``, built where it is missing: by `module`, run as a program. what: the
    model in words. Raises CellbedError when it cannot be built."""
    path = cache / f"{name}-{seed}.onnx"
    if not path.is_file():
        note(f"building {what} with seeded weights, once: {path}")
        build_file(path, lambda temporary: build_elsewhere(what, module, temporary, seed))
    return path


def write(model: "onnx.ModelProto", path: Path) -> None:
    """Write a model; the same model gives the same bytes."""
    path.write_bytes(model.SerializeToString(deterministic=True))


class Graph:
    """A network to which layers are appended. newest: name of the newest activation; channels: its channels. The same
    seed and layers give the same bytes."""

    def __init__(self, seed: int) -> None:
        """Begin with the input ``image`` of three channels."""
        import numpy

        self._numpy = numpy
        self._random = numpy.random.Generator(numpy.random.PCG64(seed))
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self.newest = "image"
        self.channels = 3

    def model(self, name: str, shape: list[int], output_shape: list[int], note: str) -> "onnx.ModelProto":
        """Return the model, whose output is the newest activation. shape, output_shape: of float32 input and output.
        note: its documentation."""
        from onnx import TensorProto, helper

        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(self.newest, TensorProto.FLOAT, output_shape)],
            initializer=self._weights,
            doc_string=note,
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="cellbed",
        )

    def convolution(
        self,
        channels: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        dilation: int = 1,
        depthwise: bool = False,
        rectified_input: bool = False,
    ) -> None:
        """Append a convolution that keeps the size, divided by `stride`."""
        inputs = 1 if depthwise else self.channels
        fan_in = inputs * kernel * kernel
        name = f"convolution{len(self._nodes)}"
        # He et al., ICCV 2015, §2.2: variance 2 / fan-in keeps the scale behind a rectifier, 1 / fan-in elsewhere.
        variance = (2 if rectified_input else 1) / fan_in
        self.weigh(f"{name}.weight", self.normal((channels, inputs, kernel, kernel), variance))
        self.weigh(f"{name}.bias", self._numpy.zeros(channels, self._numpy.float32))
        dilated: dict[str, Any] = {"dilations": [dilation, dilation]} if dilation > 1 else {}
        self.append(
            "Conv",
            [self.newest, f"{name}.weight", f"{name}.bias"],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[dilation * (kernel // 2)] * 4,
            **dilated,
            group=self.channels if depthwise else 1,
        )
        self.channels = channels

    def normal(self, shape: tuple[int, ...], variance: float) -> Any:
        """Return normally distributed weights."""
        return (self._random.standard_normal(shape) * variance**0.5).astype(self._numpy.float32)

    def weigh(self, name: str, value: Any) -> None:
        """Add a constant."""
        from onnx import numpy_helper

        self._weights.append(numpy_helper.from_array(self._numpy.asarray(value), name))

    def append(self, operator: str, inputs: list[str], output: str | None = None, **attributes: Any) -> None:
        """Append an operator."""
        from onnx import helper

        self.newest = output or f"{operator.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [self.newest], **attributes))

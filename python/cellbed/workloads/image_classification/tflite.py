"""MobileNetV2 as a .tflite file: the graph and weights of ``mobilenet.py`` for LiteRT.

Written with LiteRT's own classes of its schema (schema.fbs), so no converter is needed. Activations are NHWC. LiteRT's
padding "same" is asymmetric where the stride is 2, so the padding of these convolutions is an operator before them.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.workloads.image_classification import mobilenet

if TYPE_CHECKING:
    import onnx


def write(path: Path, seed: int = mobilenet.SEED) -> None:
    """Build the model and write it: input float32 [1, 224, 224, 3], output float32 [1, 1000]."""
    path.write_bytes(convert(mobilenet.build(seed)))


def convert(model: "onnx.ModelProto") -> bytes:
    """Return the content of the file for a model of :func:`cellbed.workloads.mobilenet.build`."""
    return _Converter(model).content()


class _Converter:
    """Translates the operators in their order. Tensors are known by their names in the source."""

    def __init__(self, model: "onnx.ModelProto") -> None:
        import numpy
        from ai_edge_litert import schema_py_generated as schema
        from onnx import numpy_helper

        self._numpy, self._schema = numpy, schema
        self._source = model.graph
        self._weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
        self._codes: list[int] = []
        self._operators: list[Any] = []
        self._buffers: list[Any] = [schema.BufferT()]  # the first is empty: that of activations
        self._tensors: list[Any] = []
        self._places: dict[str, int] = {}
        self._sizes: dict[str, tuple[int, ...]] = {}

    def content(self) -> bytes:
        import flatbuffers

        schema = self._schema
        (entry,), (result,) = self._source.input, self._source.output
        self._activation(entry.name, (1, mobilenet.SIDE, mobilenet.SIDE, 3))
        for node in self._source.node:
            getattr(self, f"_{node.op_type.lower()}")(node)
        graph, model = schema.SubGraphT(), schema.ModelT()
        graph.tensors, graph.operators = self._tensors, self._operators
        graph.inputs, graph.outputs = [self._places[entry.name]], [self._places[result.name]]
        model.version, model.description = 3, mobilenet.NOTE
        model.buffers, model.subgraphs, model.operatorCodes = self._buffers, [graph], []
        for number in self._codes:
            code = schema.OperatorCodeT()
            code.builtinCode, code.deprecatedBuiltinCode, code.version = number, number, 1
            model.operatorCodes.append(code)
        builder = flatbuffers.Builder(1 << 24)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _conv(self, node: Any) -> None:
        attributes = {each.name: list(each.ints) or [each.i] for each in node.attribute}
        entered, (weight, bias) = node.input[0], (self._weights[name] for name in node.input[1:])
        depthwise, kernel, stride = attributes["group"][0] > 1, attributes["kernel_shape"][0], attributes["strides"][0]
        _, height, width, _ = self._sizes[entered]
        if stride > 1:
            entered = self._padded(node.output[0], entered, kernel // 2)
        name = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        options = getattr(self._schema, f"{name}T")()
        options.strideH = options.strideW = stride
        options.dilationHFactor = options.dilationWFactor = 1
        options.padding = self._schema.Padding.VALID if stride > 1 else self._schema.Padding.SAME
        if depthwise:
            options.depthMultiplier = 1
        # From [outputs, inputs, height, width] to [outputs, height, width, inputs] or [1, height, width, channels].
        order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
        operands = [
            self._places[entered],
            self._constant(node.input[1], weight.transpose(order)),
            self._constant(node.input[2], bias),
        ]
        size = (1, -(-height // stride), -(-width // stride), len(bias))
        self._operator("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", operands, node.output[0], size, name, options)

    def _padded(self, name: str, entered: str, pixels: int) -> str:
        _, height, width, channels = self._sizes[entered]
        edges = self._numpy.array([[0, 0], [pixels, pixels], [pixels, pixels], [0, 0]], self._numpy.int32)
        size = (1, height + 2 * pixels, width + 2 * pixels, channels)
        operands = [self._places[entered], self._constant(f"{name}.edges", edges)]
        self._operator("PAD", operands, f"{name}.padded", size, "PadOptions", self._schema.PadOptionsT())
        return f"{name}.padded"

    def _clip(self, node: Any) -> None:
        """ReLU6 is part of the convolution before it."""
        self._operators[-1].builtinOptions.fusedActivationFunction = self._schema.ActivationFunctionType.RELU6
        self._alias(node)

    def _add(self, node: Any) -> None:
        operands = [self._places[name] for name in node.input]
        size = self._sizes[node.input[0]]
        self._operator("ADD", operands, node.output[0], size, "AddOptions", self._schema.AddOptionsT())

    def _globalaveragepool(self, node: Any) -> None:
        axes = self._constant(f"{node.output[0]}.axes", self._numpy.array([1, 2], self._numpy.int32))
        size = (1, self._sizes[node.input[0]][3])
        operands = [self._places[node.input[0]], axes]
        self._operator("MEAN", operands, node.output[0], size, "ReducerOptions", self._schema.ReducerOptionsT())

    def _flatten(self, node: Any) -> None:
        self._alias(node)

    def _gemm(self, node: Any) -> None:
        weights = [self._constant(name, self._weights[name]) for name in node.input[1:]]
        operands, size = [self._places[node.input[0]], *weights], (1, mobilenet.CLASSES)
        options = self._schema.FullyConnectedOptionsT()
        self._operator("FULLY_CONNECTED", operands, node.output[0], size, "FullyConnectedOptions", options)

    def _alias(self, node: Any) -> None:
        self._places[node.output[0]] = self._places[node.input[0]]
        self._sizes[node.output[0]] = self._sizes[node.input[0]]

    def _operator(
        self, code: str, inputs: list[int], output: str, size: tuple[int, ...], kind: str, options: Any
    ) -> None:
        number = getattr(self._schema.BuiltinOperator, code)
        if number not in self._codes:
            self._codes.append(number)
        operator = self._schema.OperatorT()
        operator.opcodeIndex = self._codes.index(number)
        operator.inputs, operator.outputs = inputs, [self._activation(output, size)]
        operator.builtinOptionsType = getattr(self._schema.BuiltinOptions, kind)
        operator.builtinOptions = options
        self._operators.append(operator)

    def _activation(self, name: str, size: tuple[int, ...]) -> int:
        self._sizes[name] = size
        return self._tensor(name, size, self._schema.TensorType.FLOAT32, 0)

    def _constant(self, name: str, value: Any) -> int:
        kinds = {"float32": self._schema.TensorType.FLOAT32, "int32": self._schema.TensorType.INT32}
        buffer = self._schema.BufferT()
        buffer.data = self._numpy.frombuffer(value.tobytes(), self._numpy.uint8)
        self._buffers.append(buffer)
        return self._tensor(name, value.shape, kinds[str(value.dtype)], len(self._buffers) - 1)

    def _tensor(self, name: str, size: tuple[int, ...], kind: int, buffer: int) -> int:
        tensor = self._schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(size), kind, buffer
        self._tensors.append(tensor)
        self._places[name] = len(self._tensors) - 1
        return self._places[name]


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))

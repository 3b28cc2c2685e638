"""MobileNetV2 with seeded weights, and models of the user's own."""

import hashlib
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from cellbed.support.errors import CellbedError
from cellbed.workloads.image_classification import kind as image_classification
from cellbed.workloads.image_classification import mobilenet
from cellbed_node.offloading.classifier import Classifier, load, load_onnx_runtime
from cellbed_node.offloading.task import ModelError


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mobilenet.seeded_model(tmp_path_factory.mktemp("cache"), note=lambda _: None)


def _photograph(red: int, green: int, blue: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (320, 200), (red, green, blue)).save(buffer, "JPEG")
    return buffer.getvalue()


def _own_model(path: Path, shape: list[Any], *, kind: int = TensorProto.FLOAT, axes: tuple[int, int] = (2, 3)) -> Path:
    """A model whose class is the colour channel with the highest mean."""
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["picture"], ["means"], axes=list(axes), keepdims=0),
        ],
        "means",
        [helper.make_tensor_value_info("picture", kind, shape)],
        [helper.make_tensor_value_info("means", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def test_the_graph_is_valid_and_has_the_size_of_the_paper() -> None:
    model = mobilenet.build()
    onnx.checker.check_model(model, full_check=True)
    parameters = sum(numpy_helper.to_array(weights).size for weights in model.graph.initializer)
    assert 3_400_000 < parameters < 3_600_000
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 52
    assert sum(node.op_type == "Add" for node in model.graph.node) == 10


def test_it_runs_and_depends_on_the_picture(seeded: Path) -> None:
    session = load_onnx_runtime().InferenceSession(str(seeded), providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    assert (entry.shape, entry.type) == ([1, 3, 224, 224], "tensor(float)")
    pictures = np.random.default_rng(1).standard_normal((2, 1, 3, 224, 224)).astype(np.float32)
    first, second = (session.run(None, {entry.name: picture})[0] for picture in pictures)
    assert first.shape == (1, 1000)
    assert np.isfinite(first).all()
    assert not np.allclose(first, second)


def test_it_is_built_once_and_the_same_elsewhere(seeded: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert mobilenet.seeded_model(seeded.parent, note=said.append) == seeded
    assert said == []
    again = mobilenet.seeded_model(tmp_path, note=said.append)
    assert len(said) == 1
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(seeded.read_bytes()).digest()


@pytest.mark.parametrize(
    ("shape", "axes", "size"),
    [
        ([1, 3, 96, 64], (2, 3), (96, 64)),
        ([1, 96, 64, 3], (1, 2), (96, 64)),
        (["batch", 3, "height", "width"], (2, 3), (224, 224)),
    ],
)
def test_a_model_of_the_users_own_gets_its_input(
    tmp_path: Path, shape: list[Any], axes: tuple[int, int], size: tuple[int, int]
) -> None:
    path = _own_model(tmp_path / "own.onnx", shape, axes=axes)
    classifier = load(str(path))
    assert (classifier.input.height, classifier.input.width) == size
    for channel, colour in enumerate([(250, 10, 10), (10, 250, 10), (10, 10, 250)]):
        assert classifier.compute(classifier.decode(_photograph(*colour))) == f"class {channel}"


@pytest.mark.parametrize(
    ("shape", "kind", "complaint"),
    [
        ([1, 1, 28, 28], TensorProto.FLOAT, r"'picture' is tensor\(float\) \[1, 1, 28, 28\]"),
        ([8, 3, 224, 224], TensorProto.FLOAT, r"\[8, 3, 224, 224\]"),
        ([3, 224], TensorProto.FLOAT, r"\[3, 224\]"),
        ([1, 3, 224, 224], TensorProto.DOUBLE, r"tensor\(double\)"),
    ],
)
def test_a_model_that_takes_no_photograph_is_refused(
    tmp_path: Path, shape: list[Any], kind: int, complaint: str
) -> None:
    path = _own_model(tmp_path / "own.onnx", shape, kind=kind, axes=(0, 1))
    with pytest.raises(ModelError, match=complaint) as caught:
        load(str(path))
    assert "needed is one float32 input [1, 3, height, width]" in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_is_no_model_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    spec = SimpleNamespace(model=path, images=1)
    with pytest.raises(CellbedError, match=r"workload\.model: .*no such model file"):
        image_classification.prepare(spec, tmp_path, lambda _: None)
    path.write_bytes(b"this is not a model")
    with pytest.raises(CellbedError, match="ONNX Runtime cannot load this model"):
        image_classification.prepare(spec, tmp_path, lambda _: None)


@pytest.mark.parametrize("content", [b"", b"not a photograph", _photograph(9, 9, 9)[:500]])
def test_what_cannot_be_decoded_is_an_error_of_its_own(seeded: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be decoded"):
        Classifier(seeded).decode(content)


def test_reports_say_what_seeded_labels_are_worth() -> None:
    labels = "seeded weights: compute is real, labels are not"

    def cautions(model: str | None) -> list[str]:
        return [caution.text for caution in image_classification.describe({"model": model}).cautions]

    assert labels in cautions(None)
    assert labels not in cautions("own.onnx")

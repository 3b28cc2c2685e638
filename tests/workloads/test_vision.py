"""Images: photographs, segmentation and licence plates, trained and seeded networks, the user's own, and runs."""

import concurrent.futures
import contextlib
import importlib.util
import io
import os
import random
import re
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from cellbed.measure.rows import measure
from cellbed.measure.summary import Summary
from cellbed.support.errors import CellbedError
from cellbed.support.user_folders import cache_folder
from cellbed.workloads.image_classification import kind as image_classification
from cellbed.workloads.image_classification import mobilenet, photographs
from cellbed.workloads.image_classification.photographs import data_bank
from cellbed.workloads.plates import frames
from cellbed.workloads.plates import kind as plates
from cellbed.workloads.segmentation import scenes
from cellbed_node.offloading import classifier, images, inference, jpeg, person, screen
from cellbed_node.offloading import plate_reader as reader
from cellbed_node.offloading.broker import find_mosquitto
from cellbed_node.offloading.camera import plate_of
from cellbed_node.offloading.classifier import load
from cellbed_node.offloading.endpoint import Images, OffloadedRequest, UnusableInputError
from cellbed_node.offloading.task import ModelError, check
from in_process import cellbed
from scenario_text import NODES
from workload_needs import needs_person, needs_reader

NAMED = f'name = "vision"\nduration = "4 s"\nseed = 3\n{NODES}\n'.replace("20 Mbit/s", "100 Mbit/s")
KEYS = 'server = "edge"\nrate = "3 /s"\ntimeout = "5 min"\ndrain = "5 min"\n'
CODE = """
import numpy as np

def preprocess(image):
    return np.asarray(image.resize((8, 8)), np.float32).transpose(2, 0, 1)[None]

def postprocess(outputs):
    return f"{outputs[0].shape[1]} channels".encode()
"""


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _jpeg(size: tuple[int, int], red: int, green: int, blue: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (red, green, blue)).save(buffer, "JPEG")
    return buffer.getvalue()


def _own_model(path: Path, shape: list[Any], *, kind: int = TensorProto.FLOAT, axes: tuple[int, int] = (2, 3)) -> Path:
    """A network that returns the mean of each colour."""
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["picture"], ["means"], axes=list(axes), keepdims=0)],
        "means",
        [helper.make_tensor_value_info("picture", kind, shape)],
        [helper.make_tensor_value_info("means", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def _frame(number: int) -> tuple[str, bytes]:
    generator = random.Random(number)
    plate = f"AB {generator.randrange(10, 100)} CDE"
    return frames.plain(plate), frames.frame(plate, generator)


@needs_person
def test_the_trained_network_marks_persons() -> None:
    task = inference.load(str(person.model()), person.__name__)
    photograph = photographs.original()
    reply = task.compute(task.decode(_png(photograph)))
    mask = np.asarray(Image.open(io.BytesIO(reply)))  # type: ignore[arg-type]
    assert mask.shape == (person.HEIGHT, person.WIDTH)
    face, corner = mask[40:60, 110:140], mask[:20, :20]
    assert (face == 255).all()
    assert (corner == 0).all()
    assert 0.4 < (mask == 255).mean() < 0.75
    empty = np.asarray(Image.open(io.BytesIO(task.compute(task.decode(_png(Image.new("RGB", (640, 480))))))))  # type: ignore[arg-type]
    assert (empty == 255).mean() < 0.05


def test_a_mask_is_displayed_and_what_is_none_is_an_error(tmp_path: Path) -> None:
    bank = scenes.data_bank(tmp_path, count=1)
    with Image.open(bank / "000.png") as image:
        assert image.size == (2048, 1024)  # as those of Cityscapes
    inputs = screen.open_inputs(bank)
    request = OffloadedRequest(0, "endpoint-0", 0, input="000.png")
    mask = np.zeros((10, 20), np.uint8)
    mask[:, :5] = 255
    inputs.show(request, _png(Image.fromarray(mask)))
    assert (request.output, request.correct) == ("20 × 10, 25.0% marked", None)
    for damaged in (b"", b"mask", _png(Image.fromarray(mask))[:40]):
        with pytest.raises(ValueError, match="not a PNG or JPEG"):
            inputs.show(request, damaged)


def test_frames_have_their_size_and_differ(tmp_path: Path) -> None:
    bank = frames.data_bank(tmp_path, count=4)
    files = sorted(bank.iterdir())
    assert len({plate_of(file.name) for file in files}) == 4
    assert all(6 <= len(plate_of(file.name)) <= 7 for file in files)
    assert all(frames.SMALLEST <= file.stat().st_size <= frames.LARGEST for file in files)
    assert _frame(1) == _frame(1)


@needs_reader
def test_plates_are_read(tmp_path: Path) -> None:
    task = reader.load(str(plates.KIND.model(None, tmp_path, print)))
    found = [(plate, task.compute(task.decode(content))) for plate, content in map(_frame, range(10))]
    assert sum(plate == text for plate, text in found) >= 8, found
    assert task.compute(Image.new("RGB", (1280, 720), (90, 90, 90))) == ""
    with pytest.raises(ValueError, match="cannot be decoded"):
        task.decode(_frame(0)[1][:1000])
    with pytest.raises(ModelError, match="no such model file"):
        reader.load(str(tmp_path))


def test_a_model_of_the_users_own_runs_with_its_code(tmp_path: Path) -> None:
    model = _own_model(tmp_path / "own.onnx", [1, 3, 8, 8])
    (tmp_path / "own.py").write_text(CODE)
    task = reader.load(str(model), str(tmp_path / "own.py"))
    assert task.compute(task.decode(_frame(0)[1])) == b"3 channels"


def _pytorch_model(path: Path) -> Path:
    """Write a network that returns the means of the channels."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'cellbed[torch]'")

    class Means(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, image: Any) -> Any:
            return image.mean((2, 3), keepdim=True)

    example = (torch.zeros(1, 3, 8, 8),)
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(Means(), example), path)
    else:
        torch.jit.trace(Means(), example).save(str(path))
    return path


def _keras_model(path: Path) -> Path:
    """Write a network that returns the means of the channels."""
    keras = pytest.importorskip("keras", reason="needs TensorFlow: pip install 'cellbed[tensorflow]'")
    image = keras.Input((3, 8, 8))
    pooled = keras.layers.GlobalAveragePooling2D(data_format="channels_first", keepdims=True)
    keras.Model(image, pooled(image)).save(path)
    return path


@pytest.mark.parametrize("name", ["own.pt2", "own.pt", "own.keras"])
def test_a_model_of_the_users_own_runs_in_its_runtime(tmp_path: Path, name: str) -> None:
    model = (_keras_model if name.endswith(".keras") else _pytorch_model)(tmp_path / name)
    (tmp_path / "own.py").write_text(CODE.replace("{outputs[0].shape[1]} channels", "{outputs[0].ravel()[1]:.0f}"))
    options = {"model": str(model), "code": str(tmp_path / "own.py")}
    check(classifier.__name__, **options)
    task = load(**options)
    assert task.compute(task.decode(_jpeg((320, 200), 10, 200, 10))) in (b"199", b"200", b"201")
    model.write_bytes(b"this is not a model")
    with pytest.raises(ModelError, match=rf"{name}: (PyTorch|TensorFlow) cannot load this model"):
        check(classifier.__name__, **options)


def test_the_seeded_network_of_keras_has_the_size_of_the_paper(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras", reason="needs TensorFlow: pip install 'cellbed[tensorflow]'")
    path = mobilenet.seeded_model(tmp_path, "tensorflow")
    assert 3_400_000 < keras.models.load_model(path).count_params() < 3_600_000
    task = load(str(path), images.__name__)
    reply = task.compute(task.decode(_jpeg((320, 200), 10, 200, 10)))
    assert re.fullmatch(rb"class [0-9]{1,3}", reply)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ('model = "own.onnx"\nruntime = "tensorflow"', "the ending of 'model' names its runtime"),
        (
            'model = "own.bin"',
            "no runtime for this ending; write a network with one of .onnx, .tflite, .keras, .pt2, .pt",
        ),
        ('model = "own.keras"', "missing: write the Python file with preprocess and postprocess"),
    ],
)
def test_a_runtime_that_does_not_fit_the_model_is_named(tmp_path: Path, keys: str, problem: str) -> None:
    for name in ("own.onnx", "own.bin", "own.keras"):
        (tmp_path / name).write_bytes(b"")
    application = f'[apps.vision]\nkind = "image-classification"\n{KEYS}{keys}\n'
    (tmp_path / "vision.toml").write_text(NAMED + application)
    done = cellbed("run", tmp_path / "vision.toml", "--dry-run")
    assert done.returncode == 2
    assert problem in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("outputs[0].shape[1]", "outputs[1]", r"own\.py: postprocess: IndexError: list index out of range"),
        (".encode()", "", r"own\.py: postprocess returned str: return bytes"),
        ("(8, 8)", "(9, 9)", r"the network cannot take float32 \[1, 3, 9, 9\] of own\.py"),
        ("import numpy", "import nump", r"own\.py: ModuleNotFoundError: No module named 'nump'"),
    ],
)
def test_what_is_wrong_in_the_users_code_is_named_before_a_run(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    (tmp_path / "own.py").write_text(CODE.replace(old, new))
    table = SimpleNamespace(model=_own_model(tmp_path / "own.onnx", [1, 3, 8, 8]), code=tmp_path / "own.py", images=1)
    with pytest.raises(CellbedError, match=problem):
        plates.prepare(table, tmp_path)


@pytest.fixture(scope="module")
def seeded() -> Path:
    """The model in the cache that runs use."""
    return mobilenet.seeded_model(cache_folder(), note=lambda _: None)


def test_the_graph_is_valid_and_has_the_size_of_the_paper(seeded: Path) -> None:
    model = onnx.load(str(seeded))
    onnx.checker.check_model(model, full_check=True)
    parameters = sum(numpy_helper.to_array(weights).size for weights in model.graph.initializer)
    assert 3_400_000 < parameters < 3_600_000
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 52
    assert sum(node.op_type == "Add" for node in model.graph.node) == 10


def test_it_is_built_once_and_the_same_elsewhere(seeded: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert mobilenet.seeded_model(seeded.parent, note=said.append) == seeded
    assert said == []
    again = mobilenet.seeded_model(tmp_path, note=said.append)
    assert len(said) == 1
    assert again.read_bytes() == seeded.read_bytes()


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
        assert classifier.compute(classifier.decode(_jpeg((320, 200), *colour))) == f"class {channel}"


@pytest.mark.parametrize(
    ("shape", "kind", "complaint"),
    [
        ([1, 1, 28, 28], TensorProto.FLOAT, r"'picture' is tensor\(float\) \[1, 1, 28, 28\]"),
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
    spec = SimpleNamespace(model=path, code=None, runtime=None, images=1)
    with pytest.raises(CellbedError, match=r"workload\.model: .*no such model file"):
        image_classification.prepare(spec, tmp_path, lambda _: None)
    path.write_bytes(b"this is not a model")
    with pytest.raises(CellbedError, match="ONNX Runtime cannot load this model"):
        image_classification.prepare(spec, tmp_path, lambda _: None)


def test_the_bank_has_the_sizes_that_were_asked_for(tmp_path: Path) -> None:
    images = Images(data_bank(tmp_path, note=lambda _: None))
    contents = [images.payload(name) for name in images.names]
    sizes = [len(content) for content in contents]
    assert len(sizes) == 100
    assert min(sizes) >= 7_000
    assert max(sizes) <= 170_000
    assert abs(statistics.median(sizes) / 65_000 - 1) < 0.05
    for content in contents[:20]:
        with Image.open(io.BytesIO(content)) as image:
            assert image.format == "JPEG"
            size = image.size
        assert jpeg.preprocess(content) == content
        reduced = jpeg.preprocess(content, 0.5)
        with Image.open(io.BytesIO(reduced)) as image:
            assert image.size == (round(size[0] / 2), round(size[1] / 2))
        assert len(reduced) < 0.6 * len(content)


def _build(folder: Path) -> dict[str, bytes]:
    images = Images(data_bank(folder, count=5))
    return {name: images.payload(name) for name in images.names}


def test_two_processes_may_build_the_bank_at_once_and_it_is_the_same_elsewhere(tmp_path: Path) -> None:
    with concurrent.futures.ProcessPoolExecutor(3) as pool:
        first, second, elsewhere = pool.map(_build, [tmp_path / "one", tmp_path / "one", tmp_path / "other"])
    assert first == second == elsewhere
    assert len(list((tmp_path / "one").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CellbedError, match="XDG_CACHE_HOME"):
        data_bank(tmp_path / "file" / "cache", count=1, note=lambda _: None)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    with pytest.raises(CellbedError, match=r"pip install .* matplotlib"):
        data_bank(tmp_path, count=1, note=lambda _: None)


@pytest.mark.parametrize("level", [0, 255])
def test_black_and_burnt_out_photographs_are_unusable(level: int) -> None:
    with pytest.raises(UnusableInputError, match="luminance"):
        jpeg.preprocess(_jpeg((64, 48), level, level, level))


@given(st.binary(max_size=300) | st.integers(0, 600).map(lambda size: _jpeg((64, 48), 128, 128, 128)[:size]))
def test_what_is_no_photograph_is_unusable_and_never_another_error(content: bytes) -> None:
    with contextlib.suppress(UnusableInputError):
        jpeg.preprocess(content)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of masks, plates and a network of the user's own."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK) or find_mosquitto() is None:
        pytest.skip("no /dev/net/tun or no Mosquitto")
    for name in ("ai_edge_litert", "mediapipe", "rapidocr_onnxruntime"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    here = tmp_path_factory.mktemp("run")
    _own_model(here / "own.onnx", [1, 3, 8, 8])
    (here / "own.py").write_text(CODE)
    kinds = {"masks": "segmentation", "plates": "plates", "own": "plates"}
    own = {"masks": "images = 3\n", "plates": "images = 3\n", "own": 'model = "own.onnx"\ncode = "own.py"\n'}
    apps = "".join(f'[apps.{name}]\nkind = "{kind}"\n{KEYS}{own[name]}' for name, kind in kinds.items())
    (here / "x.toml").write_text(NAMED + apps + '[expect.plates]\ncorrect_share = ">= 0 %"\n')
    done = cellbed("run", here / "x.toml", "--no-limits", "--out", here / "runs", status=0)
    assert "plates read exactly: " in done.stdout
    (found,) = (here / "runs").iterdir()
    return found


def test_parts_of_a_request_end_with_its_display(run: Path) -> None:
    requests = pl.read_parquet(run / "requests.parquet")
    assert set(requests["status"]) == {"ok"}
    shown = (requests["reply_ns"] - requests["arrived_ns"]) / 1e9
    assert (requests["part_display"] == shown).all()
    assert requests["residual_s"].null_count() == 0
    masks, plates, own = (requests.filter(app=name) for name in ("masks", "plates", "own"))
    assert masks["bytes_up"].min() > 2_000_000  # type: ignore[operator]
    assert masks["output"].str.contains(r"^256 × 144, \d+\.\d% marked$").all()
    assert (masks["part_display"] > plates["part_display"].max()).all()
    assert plates["bytes_up"].is_between(frames.SMALLEST, frames.LARGEST).all()
    read = plates["input"].map_elements(plate_of, pl.String) == plates["output"]
    assert read.to_list() == plates["correct"].cast(pl.Boolean).to_list()
    assert set(own["output"]) == {"3 channels"}
    assert (own["correct"] == 0).all()


def test_the_share_of_plates_read_is_a_measure(run: Path) -> None:
    rows = {row["app"]: row for row in measure(run)[0]}
    summaries = {each.name: each.measures[-1] for each in Summary.read(run).applications}
    assert rows["own"]["correct_share"] == 0
    assert rows["plates"]["correct_share"] == summaries["plates"].mean
    assert rows["masks"]["correct_share"] is None
    page = (run / "report.html").read_text()
    assert "Plates read exactly" in page
    assert "Display" in page
    assert "seeded weights" not in page


def test_a_prediction_draws_displays_and_readings_from_the_run(run: Path) -> None:
    cellbed(
        "run", run.parents[1] / "x.toml", "--virtual", "--profile", run, "--out", run.parents[1] / "virtual", status=0
    )
    (found,) = (run.parents[1] / "virtual").iterdir()
    real, virtual = (pl.read_parquet(folder / "requests.parquet") for folder in (run, found))
    assert set(virtual["status"]) == {"ok"}
    columns = ("output", "correct", "bytes_down")
    known = {(row["app"], row["input"], *(row[name] for name in columns)) for row in real.iter_rows(named=True)}
    inputs = {key[:2] for key in known}
    drawn = [row for row in virtual.iter_rows(named=True) if (row["app"], row["input"]) in inputs]
    assert drawn
    assert all((row["app"], row["input"], *(row[name] for name in columns)) in known for row in drawn)
    assert (virtual.filter(app="masks")["part_display"] > 0).all()

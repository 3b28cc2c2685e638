"""Image classification offloaded over MQTT: endpoints send photographs, a remote node answers with their classes."""

from cellbed.runformat.description import Caution, Measure
from cellbed.workloads.image_classification import mobilenet, photographs
from cellbed.workloads.image_classification.table import ImageClassification
from cellbed.workloads.offloading.kind import Kind
from cellbed_node.offloading import images


def _code(table: ImageClassification) -> str:
    """Return the processing of the network; empty for the one of networks in ONNX."""
    if table.code is not None:
        return str(table.code.absolute())
    return images.__name__ if table.runtime == "tensorflow" else ""


KIND = Kind(
    name="image-classification",
    client="cellbed_node.offloading.jpeg",
    task="cellbed_node.offloading.classifier",
    bank=lambda table, cache, note: photographs.data_bank(cache, count=table.images, note=note),
    model=lambda table, cache, note: mobilenet.seeded_model(cache, table.runtime or "onnx", note=note),
    options=lambda table: {"code": _code(table)},
    seeded=Caution(mobilenet.NOTE, mobilenet.NOTE_DETAIL),
    data=Caution(photographs.NOTE),
    measures=(Measure("bytes_up", "photograph sent", "B"),),
    profile=("5 /s", 20),
)
prepare, processes, describe = KIND.prepare, KIND.processes, KIND.describe

"""Image classification offloaded over MQTT: endpoints send photographs, a remote node answers with their classes."""

from cellbed.runformat.description import Caution, Measure
from cellbed.workloads.image_classification import mobilenet, photographs
from cellbed.workloads.offloading.kind import Kind

KIND = Kind(
    name="image-classification",
    client="cellbed_node.offloading.jpeg",
    task="cellbed_node.offloading.classifier",
    bank=lambda table, cache, note: photographs.data_bank(cache, count=table.images, note=note),
    model=lambda table, cache, note: mobilenet.seeded_model(cache, note=note),
    seeded=Caution(mobilenet.NOTE, mobilenet.NOTE_DETAIL),
    data=Caution(photographs.NOTE),
    measures=(Measure("bytes_up", "photograph sent", "B"),),
    profile=("5 /s", 20),
)
prepare, processes, describe = KIND.prepare, KIND.processes, KIND.describe

"""Licence plates read over MQTT: endpoints send frames, a remote node answers with the text of the plates."""

from cellbed.runformat.description import Caution, Measure
from cellbed.workloads.offloading.kind import Kind
from cellbed.workloads.plates import frames
from cellbed_node.inputs import package_path

KIND = Kind(
    name="plates",
    client="cellbed_node.offloading.camera",
    task="cellbed_node.offloading.plate_reader",
    bank=lambda table, cache, note: frames.data_bank(cache, count=table.images, note=note),
    model=lambda table, cache, note: package_path("rapidocr_onnxruntime", "models", "vision"),
    options=lambda table: {"code": str(table.code.absolute())} if table.code is not None else {},
    data=Caution(frames.NOTE),
    measures=(Measure("bytes_up", "frame sent", "B"), Measure("correct", "plates read exactly", "share")),
    displayed=True,
    profile=("3 /s", 30),  # a profile must contain most frames
)
prepare, processes, describe = KIND.prepare, KIND.processes, KIND.describe

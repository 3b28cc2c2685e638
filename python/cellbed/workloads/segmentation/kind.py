"""Segmentation offloaded over MQTT: endpoints send photographs, a remote node answers with masks."""

from cellbed.runformat.description import Caution, Measure
from cellbed.workloads.offloading.kind import Kind
from cellbed.workloads.segmentation import scenes
from cellbed_node.offloading import person

KIND = Kind(
    name="segmentation",
    client="cellbed_node.offloading.screen",
    task="cellbed_node.offloading.inference",
    bank=lambda table, cache, note: scenes.data_bank(cache, count=table.images, note=note),
    model=lambda table, cache, note: person.model(),
    options=lambda table: {"code": str(table.code.absolute()) if table.code is not None else person.__name__},
    data=Caution(scenes.NOTE),
    measures=(Measure("bytes_up", "photograph sent", "B"), Measure("bytes_down", "mask received", "B")),
    displayed=True,
    profile=("1 /s", 30),
)
prepare, processes, describe = KIND.prepare, KIND.processes, KIND.describe

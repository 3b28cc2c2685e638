"""Segmentation offloaded over MQTT: endpoints send photographs, a remote node answers with masks."""

from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.runformat.description import Caution, Measure
from cellbed.workloads.cache import Note
from cellbed.workloads.offloading.kind import Kind
from cellbed.workloads.segmentation import person, pspnet, scenes

if TYPE_CHECKING:
    from cellbed.workloads.segmentation.table import Segmentation


def _model(table: "Segmentation", cache: Path, note: Note) -> Path:
    return person.model() if table.network == "person" else pspnet.seeded_model(cache, note=note)


def _options(table: "Segmentation") -> dict[str, str]:
    network = person if table.network == "person" else pspnet
    return {"code": str(table.code.absolute()) if table.code is not None else network.__name__}


KIND = Kind(
    name="segmentation",
    client="cellbed.workloads.segmentation.screen",
    task="cellbed.workloads.vision.inference",
    bank=lambda table, cache, note: scenes.data_bank(cache, count=table.images, note=note),
    model=_model,
    seeded=Caution(pspnet.NOTE, pspnet.NOTE_DETAIL),
    trained=lambda table: table.get("model") is not None or table.get("network") != "pspnet",
    options=_options,
    data=Caution(scenes.NOTE),
    measures=(Measure("bytes_up", "photograph sent", "B"), Measure("bytes_down", "mask received", "B")),
    displayed=True,
)
prepare, processes, describe = KIND.prepare, KIND.processes, KIND.describe

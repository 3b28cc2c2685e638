"""Image classification offloaded over MQTT: endpoints send photographs, a remote node answers with their classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.runformat.description import Caution, Description, Measure
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.cache import Note, silent
from cellbed.workloads.image_classification import mobilenet, photographs
from cellbed.workloads.kind import Deployment
from cellbed.workloads.offloading import kind as offloading
from cellbed.workloads.offloading import task

if TYPE_CHECKING:
    from cellbed.workloads.image_classification.table import ImageClassification

_TASK = "cellbed.workloads.image_classification.classifier"


def prepare(table: "ImageClassification", cache: Path, note: Note = silent) -> None:
    """Build the data bank and the model under ``cache`` where they are missing, or check the user's model.

    Raises CellbedError.
    """
    photographs.data_bank(cache, count=table.images or photographs.COUNT, note=note)
    if table.model is None:
        mobilenet.seeded_model(cache, note=note)
        return
    try:
        task.check(_TASK, model=str(table.model))
    except task.ModelError as error:
        raise CellbedError(f"workload.model: {error}") from error


def programs(table: "ImageClassification", cache: Path) -> offloading.Programs:
    """Return the contents of its programs. Call prepare before."""
    model = mobilenet.seeded_model(cache) if table.model is None else Path(table.model).absolute()
    return offloading.Programs(
        topic="cellbed/image-classification",
        client="cellbed.workloads.image_classification.jpeg",
        inputs=photographs.data_bank(cache, count=table.images or photographs.COUNT),
        task=_TASK,
        options={"model": str(model)},
    )


def processes(
    deployment: Deployment, raw: Path, *, cache: Path, seed: int, port: int = offloading.PORT
) -> list[Process | Command]:
    """Broker and service for each server, and the clients; see :class:`cellbed.workloads.kind.Workload`."""
    return offloading.processes(deployment, raw, programs(deployment.table, cache), seed=seed, port=port)


def describe(table: Mapping[str, Any]) -> Description:
    """Photographs are sent; their classes come back."""
    seeded = [Caution(mobilenet.NOTE, mobilenet.NOTE_DETAIL)] if table.get("model") is None else []
    return offloading.description(
        "image-classification",
        table,
        (Measure("bytes_up", "photograph sent", "B"),),
        (*seeded, Caution(photographs.NOTE)),
    )

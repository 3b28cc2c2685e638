"""Translation offloaded over MQTT: endpoints send English sentences, a remote node answers with their translations."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.runformat.description import Caution, Description, Measure
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.cache import Note, silent
from cellbed.workloads.kind import Deployment
from cellbed.workloads.offloading import kind as offloading
from cellbed.workloads.offloading import task
from cellbed.workloads.translation import marian, sentences

if TYPE_CHECKING:
    from cellbed.workloads.translation.table import Translation

_TASK = "cellbed.workloads.translation.translator"


def prepare(table: "Translation", cache: Path, note: Note = silent) -> None:
    """Build the data bank and the model under ``cache`` where they are missing, or check the user's translator.

    Raises CellbedError.
    """
    sentences.data_bank(cache, count=table.sentences, note=note)
    if table.model is None:
        marian.seeded_model(cache, note=note)
        return
    try:
        task.check(_TASK, model=str(table.model))
    except task.ModelError as error:
        raise CellbedError(f"workload.model: {error}") from error


def programs(table: "Translation", cache: Path) -> offloading.Programs:
    """Return the contents of its programs. Call prepare before."""
    model = str(table.model) if table.model is not None else str(marian.seeded_model(cache))
    return offloading.Programs(
        topic="cellbed/translation",
        client="cellbed.workloads.translation.sentences",
        inputs=sentences.data_bank(cache, count=table.sentences),
        task=_TASK,
        options={"model": str(Path(model).absolute())},
    )


def processes(
    deployment: Deployment, raw: Path, *, cache: Path, seed: int, port: int = offloading.PORT
) -> list[Process | Command]:
    """Broker and service for each server, and the clients; see :class:`cellbed.workloads.kind.Workload`."""
    return offloading.processes(deployment, raw, programs(deployment.table, cache), seed=seed, port=port)


def describe(table: Mapping[str, Any]) -> Description:
    """Sentences are sent; their translations come back."""
    seeded = [Caution(marian.NOTE, marian.NOTE_DETAIL)] if table.get("model") is None else []
    return offloading.description(
        "translation",
        table,
        (Measure("bytes_up", "sentence sent", "B"), Measure("bytes_down", "translation received", "B")),
        (*seeded, Caution(sentences.NOTE)),
    )

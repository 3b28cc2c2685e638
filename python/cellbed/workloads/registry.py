"""The programs and models of the kinds of application, by name."""

import importlib
from importlib.util import find_spec
from typing import Any

from cellbed.scenario.applications import Application
from cellbed.support.errors import CellbedError
from cellbed.support.extensions import entries
from cellbed.support.user_folders import cache_folder
from cellbed.workloads.cache import Note
from cellbed.workloads.kind import Prepared, Workload
from cellbed.workloads.offloading.kind import Kind
from cellbed.workloads.virtual.model import Model, Sampling


def workload(kind: str) -> Workload:
    """Return the programs of a kind. Raises CellbedError for an unknown kind."""
    found: Workload | None = _module(kind, "kind", "processes")
    if found is None:
        raise CellbedError(f"workload.kind: there is no workload '{kind}'")
    return found


def prepare(table: Application, note: Note) -> None:
    """Build the files that an application needs in the user's cache; check the user's files. Raises CellbedError."""
    if isinstance(module := workload(table.kind), Prepared):
        module.prepare(table, cache_folder(), note)


def virtual_model(kind: str) -> Model | None:
    """Return the model of a kind in virtual time, if it has one (:mod:`cellbed.workloads.virtual.model`)."""
    if isinstance(offloading := getattr(_module(kind, "kind", "processes"), "KIND", None), Kind):
        from cellbed.workloads.offloading.virtual import Offloading

        return Offloading(offloading)
    found: Model | None = getattr(_module(kind, "virtual", "VIRTUAL"), "VIRTUAL", None)
    return found


def samplings() -> dict[str, Sampling]:
    """Return the measurements of profiles by kind, without kinds that need no profile."""
    models = {kind: virtual_model(kind) for kind in entries("applications")}
    return {kind: model.sampling for kind, model in models.items() if model is not None and model.sampling is not None}


def _module(kind: str, name: str, member: str) -> Any:
    """Return the module of a kind that has a member: the module of its table, else the module `name` in the same
    package; ``None`` if there is none."""
    if (entry := entries("applications").get(kind)) is None:
        return None
    if hasattr(own := importlib.import_module(entry.module), member):
        return own
    beside = f"{own.__package__}.{name}"
    return importlib.import_module(beside) if own.__package__ and find_spec(beside) is not None else None

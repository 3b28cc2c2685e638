"""The kinds of workload and application, by name."""

import importlib
from importlib.util import find_spec

from cellbed.scenario.applications import KINDS
from cellbed.support.errors import CellbedError
from cellbed.workloads.kind import Workload
from cellbed.workloads.offloading.kind import Kind
from cellbed.workloads.virtual.model import Model, Sampling


def workload(kind: str) -> Workload:
    """Return the programs of a kind. Raises CellbedError for an unknown kind."""
    if kind not in KINDS:
        raise CellbedError(f"workload.kind: there is no workload '{kind}'")
    found: Workload = importlib.import_module(f"{KINDS[kind]}.kind")
    return found


def virtual_model(kind: str) -> Model | None:
    """Return the model of a kind in virtual time, if it has one (:mod:`cellbed.workloads.virtual.model`)."""
    if kind not in KINDS:
        return None
    if isinstance(offloading := getattr(workload(kind), "KIND", None), Kind):
        from cellbed.workloads.offloading.virtual import Offloading

        return Offloading(offloading)
    if find_spec(module := f"{KINDS[kind]}.virtual") is None:
        return None
    found: Model = importlib.import_module(module).VIRTUAL
    return found


def samplings() -> dict[str, Sampling]:
    """Return how the profiles of kinds are measured, of those that need one."""
    models = {kind: virtual_model(kind) for kind in KINDS}
    return {kind: model.sampling for kind, model in models.items() if model is not None and model.sampling is not None}

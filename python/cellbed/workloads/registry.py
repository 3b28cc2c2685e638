"""The kinds of workload and application, by name."""

import importlib
from collections.abc import Mapping
from typing import Any

from cellbed.errors import CellbedError
from cellbed.workloads.application import Application
from cellbed.workloads.downloads import Downloads, Player
from cellbed.workloads.kind import Workload
from cellbed.workloads.pages import Pages
from cellbed.workloads.round_trips import RoundTrips
from cellbed.workloads.trains import Trains

_WORKLOADS = {"image-classification": "cellbed.workloads.image_classification"}

APPLICATIONS: dict[str, type[Application]] = {
    each.name: each for each in (RoundTrips, Trains, Downloads, Pages, Player)
}
"""What measures a network, by name."""


def workload(kind: str) -> Workload:
    """The workload of this kind. Raises CellbedError for an unknown one."""
    module = _WORKLOADS.get(kind)
    if module is None:
        raise CellbedError(f"workload.kind: there is no workload '{kind}'; there are: {', '.join(_WORKLOADS)}")
    loaded: Workload = importlib.import_module(module)
    return loaded


def application(description: Mapping[str, Any]) -> Application:
    """The application of a description that :meth:`Application.described` made."""
    return APPLICATIONS[description["name"]].from_description(description)

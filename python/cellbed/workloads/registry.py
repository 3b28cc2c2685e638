"""The kinds of workload and application, by name."""

import importlib
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from cellbed.errors import CellbedError
from cellbed.workloads.application import Application
from cellbed.workloads.downloads import Downloads, Player
from cellbed.workloads.kind import Workload
from cellbed.workloads.pages import Pages
from cellbed.workloads.round_trips import RoundTrips
from cellbed.workloads.trains import Trains

APPLICATIONS: dict[str, type[Application]] = {
    each.name: each for each in (RoundTrips, Trains, Downloads, Pages, Player)
}
"""What measures a network, by name."""


def workload(kind: str) -> Workload:
    """The module of a kind: ``image-classification`` is :mod:`cellbed.workloads.image_classification`.

    Raises CellbedError for an unknown kind.
    """
    if re.fullmatch("[a-z][a-z-]*", kind) and find_spec(name := f"{__package__}.{kind.replace('-', '_')}"):
        module = importlib.import_module(name)
        if hasattr(module, "describe"):
            found: Workload = module
            return found
    raise CellbedError(f"workload.kind: there is no workload '{kind}'")


def application(description: Mapping[str, Any]) -> Application:
    """The application of a description that :meth:`Application.described` made."""
    return APPLICATIONS[description["name"]].from_description(description)

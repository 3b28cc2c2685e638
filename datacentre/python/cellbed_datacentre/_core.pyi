"""The data-centre simulator, compiled."""

from collections.abc import Callable
from typing import Any

def transports() -> str:
    """Return all transports of data centres as a list in JSON: ``table``, with all keys and defaults, ``text``,
    ``keys``, with texts and minima, ``mobile_users``, whether the transport reaches mobile users, and ``at_unit``,
    whether it ends at the central unit."""

def congestion_controls() -> list[str]:
    """Return the names of the congestion control laws of the transport ``tcp``."""

def watch(file: str) -> None:
    """Note in the first four bytes of a file the number of the function of a C header that is running; 0: none."""

def called(number: int) -> str:
    """Return the name of a function that `watch` notes; empty for 0."""

def check_radio(description: str) -> None:
    """Refuse cells that cannot be simulated. description: a radio access network of ``simulate``'s description, JSON.

    Errors: :class:`ValueError`.
    """

def simulate(description: str, progress: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Run flows between the hosts of a data centre in virtual time; public as :func:`cellbed_datacentre.simulate`.

    description: JSON of ``Description`` (``datacentre/crates/fabric/src/description.rs``). progress: called several
    times a second with the number of finished flows; its exceptions end the run.

    Returns ``flows``, ``ports`` and ``tables`` (by host of the central unit and name): columns by name, see
    ``datacentre/crates/bindings``; ``packet_hops`` and ``end_ps``.

    Errors: :class:`ValueError` for a malformed description.
    """

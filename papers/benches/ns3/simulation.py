"""A running simulation of ns-3, in step with the virtual time of others."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from cellbed import CellbedError
from cellbed.path import OutsideProgram
from ns3.scenarios import Description, write

HERE = Path(__file__).resolve().parent
_LIBRARIES = "lte applications internet point-to-point mobility propagation spectrum network core"


def lacking() -> str | None:
    """Return what a simulation lacks on this machine, or ``None``."""
    if not Path("/usr/include/ns3/lte-module.h").exists():
        return "ns-3 is missing: apt-get install libns3-dev"
    return None if shutil.which("g++") else "a C++ compiler is missing: apt-get install g++"


@functools.cache
def build() -> Path:
    """Compile the program, once for each state of its source, and return its path.

    Errors: :class:`CellbedError` for a missing library or compiler.
    """
    if reason := lacking():
        raise CellbedError(reason)
    sources = sorted(HERE.glob("*.cc"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, *sorted(HERE.glob("*.h"))])).hexdigest()
    program = HERE.parents[2] / "build" / f"ns3-{digest[:16]}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            made = Path(folder, "program")
            command = ["g++", "-std=c++17", "-O1", "-w", *map(str, sources), "-o", str(made)]
            subprocess.run([*command, *(f"-lns3-{name}" for name in _LIBRARIES.split())], check=True)
            made.rename(program)
    return program


class Simulation(OutsideProgram):
    """A cell of ns-3 as an outside network of :class:`cellbed.path.Path`.

    A direction is twice the number of a device for its uplink, and one more for its downlink.
    """

    def __init__(self, description: Description, *, devices: int = 1, weather: int = 1, course_ns: int = 0) -> None:
        """Start a simulation.

        devices: number of measured devices, at one place. weather: number of other chance in the same cell. course_ns:
        time for which a moving device has moved.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="cellbed-ns3-")
        folder = Path(self._folder.name)
        super().__init__([str(build()), str(write(description, folder, devices, weather, course_ns))], folder)

"""The client of the kind: frames that are sent as they are, and readings that are compared with what is known.

Run as ``python -m cellbed.workloads.plates.camera --config FILE.json``;
:class:`cellbed.workloads.offloading.endpoint.Settings` describes the file.
"""

from collections.abc import Sequence
from pathlib import Path

from cellbed.workloads.image_classification import photographs
from cellbed.workloads.offloading import endpoint
from cellbed.workloads.offloading.endpoint import OffloadedRequest
from cellbed.workloads.plates.frames import plain, plate_of


class Frames:
    """The inputs of the kind; see :class:`cellbed.workloads.offloading.endpoint.Displayed`."""

    def __init__(self, folder: Path) -> None:
        """Open the data bank in `folder`."""
        self._frames = photographs.load(folder)
        self.names: Sequence[str] = list(self._frames)

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """Return the frame of this name, which is sent as it is."""
        return self._frames[name][:]

    def show(self, request: OffloadedRequest, reply: bytes) -> None:
        """Compare the reading with the plate of the frame. Raises ValueError for one that is not UTF-8."""
        request.output = reply.decode()
        request.correct = int(plain(request.output) == plate_of(request.input))


open_inputs = Frames

if __name__ == "__main__":
    endpoint.run(open_inputs)

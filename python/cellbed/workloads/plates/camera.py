"""The client of the kind: frames that are sent as they are, and readings that are compared with what is known.

Run as ``python -m cellbed.workloads.plates.camera --config FILE.json``;
:class:`cellbed.workloads.offloading.endpoint.Settings` describes the file.
"""

from cellbed.workloads.image_classification.photographs import Images
from cellbed.workloads.offloading import endpoint
from cellbed.workloads.offloading.endpoint import OffloadedRequest
from cellbed.workloads.plates.frames import plain, plate_of


class Frames(Images):
    """The inputs of the kind; see :class:`cellbed.workloads.offloading.endpoint.Displayed`."""

    def show(self, request: OffloadedRequest, reply: bytes) -> None:
        """Compare the reading with the plate of the frame. Raises ValueError for one that is not UTF-8."""
        request.output = reply.decode()
        request.correct = int(plain(request.output) == plate_of(request.input))


open_inputs = Frames

if __name__ == "__main__":
    endpoint.run(open_inputs)

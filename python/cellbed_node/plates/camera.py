"""The client of the kind: frames that are sent as they are, and readings that are compared with the known plates.

Run as ``python -m cellbed_node.plates.camera --config FILE.json``;
:class:`cellbed_node.offloading.endpoint.Settings` describes the file.
"""

from cellbed_node import lifecycle
from cellbed_node.image_classification.images import Images
from cellbed_node.offloading import endpoint
from cellbed_node.offloading.endpoint import OffloadedRequest
from cellbed_node.plates import plain, plate_of


class Frames(Images):
    """The inputs of the kind; see :class:`cellbed_node.offloading.endpoint.Displayed`."""

    def show(self, request: OffloadedRequest, reply: bytes) -> None:
        """Compare the reading with the plate of the frame. Raises ValueError for one that is not UTF-8."""
        request.output = reply.decode()
        request.correct = int(plain(request.output) == plate_of(request.input))


open_inputs = Frames
main = endpoint.program(open_inputs)

if __name__ == "__main__":
    lifecycle.run(main)

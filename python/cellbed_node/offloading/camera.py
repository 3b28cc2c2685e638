"""The client of the kind, which sends frames unchanged and compares readings with the known plates.

Run as ``python -m cellbed_node.offloading.camera --config FILE.json``;
:class:`cellbed_node.offloading.endpoint.Settings` describes the file.
"""

from cellbed_node import lifecycle
from cellbed_node.offloading import endpoint
from cellbed_node.offloading.endpoint import Images, OffloadedRequest


def plain(text: str) -> str:
    """Return the letters and digits of a plate, for comparison of readings."""
    return "".join(each for each in text.upper() if each.isascii() and each.isalnum())


def plate_of(name: str) -> str:
    """Return the plate of a frame by its name, such as ``"007-AB12CDE.jpg"``."""
    return name.partition("-")[2].partition(".")[0]


class Frames(Images):
    """The inputs of the kind; see :class:`cellbed_node.offloading.endpoint.Displayed`."""

    def show(self, request: OffloadedRequest, reply: bytes) -> None:
        """Compare the reading with the plate of the frame. Raises ValueError if the reading is not UTF-8."""
        request.output = reply.decode()
        request.correct = int(plain(request.output) == plate_of(request.input))


open_inputs = Frames
main = endpoint.program(open_inputs)

if __name__ == "__main__":
    lifecycle.run(main)

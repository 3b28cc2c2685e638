"""The client of the kind, which sends photographs unchanged and displays masks.

Run as ``python -m cellbed_node.offloading.screen --config FILE.json``;
:class:`cellbed_node.offloading.endpoint.Settings` describes the file.
"""

import io

from PIL import Image

from cellbed_node import lifecycle
from cellbed_node.offloading import endpoint
from cellbed_node.offloading.endpoint import Images, OffloadedRequest
from cellbed_node.offloading.person import PHOTOGRAPH

Image.preinit()  # loads the decoders; a fork finds them loaded


class Scenes(Images):
    """The inputs of the kind; see :class:`cellbed_node.offloading.endpoint.Displayed`."""

    def show(self, request: OffloadedRequest, reply: bytes) -> None:
        """Scale the mask to the size of the photograph in RGB, as a screen needs it. Raises ValueError."""
        try:
            with Image.open(io.BytesIO(reply), formats=("PNG", "JPEG")) as mask:
                grey = mask if mask.mode in ("1", "L", "P") else mask.convert("L")
                marked = 1 - grey.histogram()[0] / (mask.width * mask.height)
                mask.convert("RGB").resize(PHOTOGRAPH, Image.Resampling.BILINEAR)
        # Pillow's decoders raise many kinds of errors for damaged files, e.g. SyntaxError and struct.error.
        except Exception as error:
            raise ValueError(f"not a PNG or JPEG: {error}") from error
        request.output = f"{mask.width} × {mask.height}, {marked:.1%} marked"


open_inputs = Scenes
main = endpoint.program(open_inputs)

if __name__ == "__main__":
    lifecycle.run(main)

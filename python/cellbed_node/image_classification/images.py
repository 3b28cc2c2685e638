"""Images of a data bank as inputs."""

import mmap
from collections.abc import Sequence
from pathlib import Path

from cellbed_node import inputs


class Images:
    """The images of a data bank as inputs that are sent as they are (:class:`~.offloading.endpoint.Inputs`)."""

    def __init__(self, folder: Path) -> None:
        """Open the data bank in `folder`, mapped, so that many endpoints have it in memory once."""
        self._images = {path.name: _map_file(path) for path in sorted(folder.iterdir())}
        self.names: Sequence[str] = list(self._images)

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """Return the image of this name. No policy reduces it."""
        return self._images[name][:]


def _map_file(path: Path) -> mmap.mmap:
    with inputs.open_file(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

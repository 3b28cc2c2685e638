"""The client of translation, which sends the sentences of a data bank.

Run as ``python -m cellbed_node.offloading.sentences --config FILE.json``;
:class:`cellbed_node.offloading.endpoint.Settings` describes the file.
"""

from collections.abc import Sequence
from pathlib import Path

from cellbed_node import inputs, lifecycle
from cellbed_node.offloading import endpoint


class Sentences:
    """The inputs of a translation; see :class:`cellbed_node.offloading.endpoint.Inputs`."""

    def __init__(self, bank: Path) -> None:
        """Read the data bank in the file `bank`."""
        lines = inputs.text(bank).splitlines()
        self._sentences = {f"{number:03d}": line for number, line in enumerate(lines)}
        self.names: Sequence[str] = list(self._sentences)

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """Return the sentence of this name as sent: single spaces, UTF-8. No policy reduces sentences."""
        return " ".join(self._sentences[name].split()).encode()


open_inputs = Sentences
main = endpoint.program(open_inputs)

if __name__ == "__main__":
    lifecycle.run(main)

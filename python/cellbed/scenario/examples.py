"""The scenarios that come with cellbed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from itertools import takewhile
from pathlib import Path

from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.whole_files import write_whole
from cellbed_node import inputs


@dataclass(frozen=True, slots=True)
class Example:
    """A scenario of cellbed. path: its file."""

    path: Path

    @property
    def name(self) -> str:
        """Return the name of the file without its suffix."""
        return self.path.stem

    @property
    def sentence(self) -> str:
        """Return the first sentence of the comment at the begin of the scenario."""
        lines = takewhile(lambda line: line.startswith("# "), inputs.text(self.path).splitlines())
        return re.sub(r"([.?!])\s.*", r"\1", " ".join(line[2:].strip() for line in lines))

    def copy(self, folder: Path) -> list[Path]:
        """Copy the scenario and the files that its text names into a folder, which is made, and return the copies.

        Errors: :class:`CellbedError` for a file that exists, ``OSError``.
        """
        text, files = inputs.text(self.path), {}
        for quoted in re.findall(r'"([^"\n]+)"', text):
            if (source := self.path.parent / quoted).is_file():
                files[folder / source.name] = inputs.content(source)
                text = text.replace(f'"{quoted}"', f'"{source.name}"')
        files = {folder / self.path.name: text.encode(), **files}
        if there := [target for target in files if target.exists()]:
            raise CellbedError(f"{there[0]}: exists already: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        for target, content in files.items():
            write_whole(target, content)
        return list(files)


def examples() -> dict[str, Example]:
    """Return the examples by name."""
    folder = Path(str(files("cellbed") / "examples"))
    return {path.stem: Example(path) for path in sorted(folder.glob("*.toml"))}


def find_example(name: str) -> Example:
    """Return an example. Errors: :class:`CellbedError` with the nearest name."""
    found = examples()
    if (example := found.get(name.removesuffix(".toml"))) is not None:
        return example
    raise CellbedError(f"no example '{name[:80]}': {did_you_mean(name, found)}`cellbed examples` lists them")

"""Services of a Compose file or of manifests, independent of the format, and a list of unmapped keys."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, NoReturn

from cellbed.importing.documents import Items, Map, Place, as_text
from cellbed.scenario.nodes import NodeClass

_LONGEST = 128 << 10
"""Maximum characters of a command: the kernel's limit of an argument."""
MOST_SERVICES = 1000
"""Maximum number of services in a file."""
Level = Literal["not mapped", "differs", "not needed", "assumed"]


@dataclass(frozen=True, slots=True)
class Note:
    """The treatment of a key of the input.

    level: *not mapped*: the scenario lacks it; *differs*: the scenario approximates it; *not needed*: a run behaves the
    same without it; *assumed*: a value that the input lacks.
    """

    level: Level
    place: Place
    key: str
    text: str

    @property
    def is_loss(self) -> bool:
        """Return whether the scenario may behave differently."""
        return self.level in ("not mapped", "differs")

    def __str__(self) -> str:
        return f"{self.place}: {self.level}: {self.key}: {self.text}"


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this machine in a container."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(slots=True)
class Service:
    """One container, or several equal containers.

    entrypoint, command: None for the image's own. templates: variables of the environment whose values have names in
    braces, which the scenario fills in. folder: working directory. ports: TCP ports of the service, as far as known.
    offers: whether the service has clients: it publishes ports, other services depend on it, or a Service selects it.
    uses: whether the service is a client. files: contents of files in the container, by path. ready: the scenario's
    table. after: services that must be ready first. memory: bytes. build: the command that builds the image.
    """

    name: str
    place: Place
    image: str = ""
    entrypoint: list[str] | None = None
    command: list[str] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    folder: str | None = None
    ports: list[int] = field(default_factory=list)
    offers: bool = False
    uses: bool = False
    mounts: list[Mount] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    cpus: float | None = None
    memory: int | None = None
    count: int = 1
    restart: str = "never"
    ready: dict[str, Any] | None = None
    after: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    build: str | None = None
    notes: list[Note] = field(default_factory=list)

    @property
    def node_class(self) -> NodeClass:
        """Return the default class: endpoint for a client that no other service uses, else edge."""
        return "edge" if self.offers or not self.uses else "endpoint"


@dataclass(slots=True)
class Imported:
    """The content of one or more files. notes: notes that concern no single service."""

    name: str
    services: list[Service] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def literal(text: str) -> str:
    """Return the text as a scenario's value, where names in braces are replaced."""
    return text.replace("{", "{{").replace("}", "}}")


def is_there(path: Path) -> bool:
    """Return whether there is a file or a folder; not a socket or a device."""
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


class Keys:
    """A mapping of the input. `close` lists the keys that were not read as not mapped."""

    def __init__(self, value: Any, path: str, place: Place, notes: list[Note]) -> None:
        if value is None:
            value = Map(place)
        if not isinstance(value, Map):
            raise place.error(f"{path}: a mapping is needed")
        self.value, self.path, self.place, self.notes = value, path, place, notes
        self._left = dict.fromkeys(value)

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def where(self, key: str) -> Place:
        """Return the place of a key, or of the mapping if the key is missing."""
        return self.value.places.get(key, self.place)

    def key(self, key: str) -> str:
        """Return the whole path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def refuse(self, key: str, text: str) -> NoReturn:
        """Raise the error for the value of a key."""
        raise self.where(key).error(f"{self.key(key)}: {text}")

    def note(self, level: Level, key: str, text: str) -> None:
        """Add a note on the treatment of a key."""
        self._left.pop(key, None)
        self.notes.append(Note(level, self.where(key), self.key(key), text))

    def take(self, key: str) -> Any:
        """Return the value of a key; None if it is missing."""
        self._left.pop(key, None)
        return self.value.get(key)

    def text(self, key: str) -> str | None:
        """Return a scalar as text."""
        value = self.take(key)
        if isinstance(value, Map | Items):
            self.refuse(key, "text is needed")
        return None if value is None else as_text(value)

    def whole(self, key: str, default: int) -> int:
        """Return a whole number of at least 0; the default if the key is missing."""
        text = self.text(key)
        if text is not None and not (text.isascii() and text.isdecimal() and len(text) <= 9):
            self.refuse(key, f"'{text[:40]}' is not a whole number")
        return default if text is None else int(text)

    def flag(self, key: str) -> bool:
        """Return a truth value; false if it is missing."""
        value = self.take(key)
        if value not in (None, True, False, "true", "false"):
            self.refuse(key, "true or false is needed")
        return value in (True, "true")

    def words(self, key: str) -> list[str] | None:
        """Return a command: a list of texts, or a text that is split like a shell's words."""
        value = self.take(key)
        if isinstance(value, Items | None):
            return None if value is None else self._texts(key, value)
        if isinstance(value, Map):
            self.refuse(key, "text or a list is needed")
        if len(as_text(value)) > _LONGEST:
            self.refuse(key, f"longer than {_LONGEST >> 10} KiB: no program can be started so")
        try:
            return shlex.split(as_text(value))
        except ValueError as error:
            self.refuse(key, f"not a command: {str(error).lower()}")

    def texts(self, key: str) -> list[str]:
        """Return a list of texts, also for a single text; empty if the key is missing."""
        value = self.take(key)
        if isinstance(value, Map):
            self.refuse(key, "text or a list is needed")
        return [] if value is None else self._texts(key, value if isinstance(value, Items) else [value])

    def _texts(self, key: str, values: Iterable[Any]) -> list[str]:
        found = []
        for value in values:
            if isinstance(value, Map | Items):
                self.refuse(key, "a list of texts is needed")
            found.append(as_text(value))
        return found

    def pairs(self, key: str) -> dict[str, str]:
        """Return a mapping of texts; empty if it is missing."""
        return {name: as_text(value) for name, value in self.inside(key).value.items()}

    def entries(self, key: str) -> list[tuple[Any, Place]]:
        """Return the entries of a list with their places; empty if it is missing."""
        value = self.take(key)
        if value is not None and not isinstance(value, Items):
            self.refuse(key, "a list is needed")
        return [] if value is None else list(zip(value, value.places, strict=True))

    def inside(self, key: str) -> Keys:
        """Return the mapping at a key; empty if it is missing."""
        return Keys(self.take(key), self.key(key), self.where(key), self.notes)

    def mappings(self, key: str) -> list[Keys]:
        """Return the mappings of a list."""
        return [
            Keys(value, f"{self.key(key)}[{number}]", place, self.notes)
            for number, (value, place) in enumerate(self.entries(key))
        ]

    def close(self, reasons: Mapping[str, str] = {}, harmless: Iterable[str] = ()) -> None:
        """List the keys that were not read. reasons: why keys are not mapped, by key. harmless: keys without an effect
        on a run. Keys without a value have no effect either."""
        for key in list(self._left):
            if key in harmless or self.value[key] in (None, {}, []):
                self.note("not needed", key, "does not affect a run")
            else:
                self.note("not mapped", key, reasons.get(key, "a scenario has no counterpart of this key"))


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_PART_OF_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs|ns)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def parse_size(keys: Keys, key: str, units: Mapping[str, int]) -> int | None:
    """Return a size in bytes. units: bytes of each unit."""
    text = keys.text(key)
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2] not in units or len(match[1]) > 24:
        keys.refuse(
            key, f"'{text[:40]}' is not a size such as '512{next(each for each in units if 'M' in each.upper())}'"
        )
    return int(Decimal(match[1]) * units[match[2]])


def number(keys: Keys, key: str, *, milli: bool = False) -> float | None:
    """Return a number of at least 0. milli: accept thousandths, such as ``500m``."""
    text = keys.text(key)
    if text is None:
        return None
    thousandths = milli and text.endswith("m")
    try:
        value = Decimal(text[:-1] if thousandths else text) if len(text) <= 40 else Decimal("NaN")
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value < 10**9:
        keys.refuse(key, f"'{text[:40]}' is not a number from 0 on")
    return float(value / 1000 if thousandths else value)


def seconds(keys: Keys, key: str, default: float) -> float:
    """Return a duration such as ``1m30s``."""
    text = keys.text(key)
    if text is None:
        return default
    parts = _PART_OF_DURATION.findall(text)
    if "".join(map("".join, parts)) != text or len(text) > 40:
        keys.refuse(key, f"'{text[:40]}' is not a duration such as '1m30s'")
    return sum(float(value) * _SECONDS[unit] for value, unit in parts)

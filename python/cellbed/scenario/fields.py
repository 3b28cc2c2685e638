"""Field types of the scenario: text in the file, a plain number or small value in the model.

A field keeps its canonical number (nanoseconds, bytes, bit/s, events per second), dumps itself as text again, and
describes itself to the JSON Schema as the text that a user writes.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError, core_schema

from cellbed.archive import ARCHIVE, TraceError, TraceSource, find_file, find_folder, obstacle, open_archive, resolve
from cellbed.laws import law
from cellbed.laws.law import Law
from cellbed.support.flow_files import PUBLISHED
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import BIT_RATE, DURATION, SIZE, Quantity, UnitError, parse_probability


def refusal(text: str) -> PydanticCustomError:
    """Return an error with this text for the user, unchanged."""
    return PydanticCustomError("scenario", "{text}", {"text": text})


def plainly(value: object) -> str:
    """Return a TOML value as text short enough for a message."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'" if len(value) <= 40 and value.isprintable() else ascii(value[:37] + "…")
        case Mapping():
            return "a table"
        case list():
            return "a list"
        case int() if abs(value) >= 10**20:
            return "a very large number"
        case _:
            return str(value)


@dataclass(frozen=True, slots=True, eq=False)
class TextField:
    """Annotates a field that the file gives as text.

    read: converts (text, folder of the scenario file) to the value; raises UnitError or TraceError with the expected
    form. show: converts the value to text that `read` accepts. schema: JSON Schema of the text. hint: what to write
    instead of a value that is not text; its argument is the number, if the value was one. stage: converts (field name,
    value) to keys and values of the path model.
    """

    read: Callable[[str, Path], Any]
    show: Callable[[Any], str]
    schema: Mapping[str, Any]
    hint: Callable[[str | None], str]
    stage: Callable[[str, Any], dict[str, Any]] = lambda name, value: {name: value}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(self.show),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "$comment": self.hint(None).removeprefix("the "), **self.schema}

    def validate(self, value: object, info: ValidationInfo) -> Any:
        """Return the parsed value; raises a `refusal`."""
        if not isinstance(value, str):
            number = plainly(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
            problem = "has no unit" if number else "is not text"
            raise refusal(f"{plainly(value)} {problem}: write {self.hint(number)}")
        try:
            return self.read(value, (info.context or {}).get("folder", Path()))
        except (UnitError, TraceError) as error:
            raise refusal(str(error)) from error


def quantity(kind: Quantity, low: str, high: str, *, above: bool = False) -> TextField:
    """Return a quantity from ``low`` (exclusive with ``above``) to ``high``."""
    bottom, top = kind.parse(low), kind.parse(high)

    def read(text: str, _folder: Path) -> int | float:
        number = kind.parse(text)
        if number < bottom or (above and number == bottom):
            raise UnitError(f"'{text}' is too small: write {'more than' if above else 'at least'} '{low}'")
        if number > top:
            raise UnitError(f"'{text}' is too large: write at most '{high}'")
        return number

    least = "above " if above else ""
    words = f'{kind.name}, {least}"{low}" to "{high}"'
    schema = {"$comment": words, "pattern": kind.pattern(), "examples": list(kind.examples)}
    key = _STAGE_KEYS.get(kind.base, "{}")
    return TextField(read, kind.format, schema, kind.remedy, lambda name, value: {key.format(name): value})


_STAGE_KEYS = {DURATION.base: "{}_ns", SIZE.base: "{}_bytes", BIT_RATE.base: "bit_{}"}
"""Suffixes of the path model's keys for a quantity, by its unit."""


def _percentage(certain: bool) -> BeforeValidator:
    """Return a validator that converts text in per cent, and leaves other values to the field's validation."""

    def read(value: object) -> object:
        if isinstance(value, int | float) and 1 < value <= 100:
            raise refusal(f"{plainly(value)} is no probability: write {value / 100:g}, or '{value:g} %'")
        if not isinstance(value, str):
            return value
        try:
            probability = parse_probability(value, certain=certain)
        except UnitError as error:
            raise refusal(str(error)) from error
        if not value.strip().endswith("%"):
            raise refusal(f"{plainly(value)} is in quotes: write {probability:g}, or '{100 * probability:g} %'")
        return probability

    number = Annotated[float, Field(ge=0, le=1) if certain else Field(ge=0, lt=1)]
    digits = "(100|[0-9]{1,2})" if certain else "[0-9]{1,2}"
    text = Annotated[str, Field(pattern=rf"^\s*{digits}(\.[0-9]{{1,24}})?\s*%\s*$")]
    return BeforeValidator(read, json_schema_input_type=number | text)


Probability = Annotated[float, Field(ge=0, lt=1), _percentage(certain=False)]
"""A probability from 0 to below 1: a number, or text in per cent."""
Chance = Annotated[float, Field(ge=0, le=1), _percentage(certain=True)]
"""A probability from 0 to 1: a number, or text in per cent."""


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """A bottleneck of constant rate, bit/s."""

    bit_rate: int


@dataclass(frozen=True, slots=True)
class Unlimited:
    """No bottleneck: packets pass without delay."""


Capacity = TraceSource | ConstantRate | Unlimited
"""Capacity of one direction of a mobile link over time."""


# A number alone, or with text that can only be a unit of bit rate; "5g" may be a mistyped trace.
_LIKE_A_RATE = re.compile(r"\s*[+-]?[0-9]+([.,][0-9]+)?\s*([km]|[kmg]?b(its?|ps)?(/s|/sec)?)?\s*", re.IGNORECASE)


def _read_capacity(text: str, folder: Path) -> Capacity:
    if text == "unlimited":
        return Unlimited()
    if _LIKE_A_RATE.fullmatch(text) and find_file(text, folder) is None:
        bit_rate = BIT_RATE.parse(text)
        if bit_rate == 0:
            raise UnitError(
                f"'{text}' is out of range: a link begins with '1 kbit/s' to '1000 Gbit/s', or 'unlimited'; "
                "an outage is a change of it to '0 Mbit/s'"
            )
        if not 1000 <= bit_rate <= 10**12:
            raise UnitError(f"'{text}' is out of range: write '1 kbit/s' to '1000 Gbit/s', or 'unlimited'")
        return ConstantRate(int(bit_rate))
    return resolve(text, folder)


_ZERO = re.compile(r"\s*0+(\.0*)?\s*([kmg]?bit/s)?\s*", re.IGNORECASE)


def _read_later_capacity(text: str, folder: Path) -> Capacity:
    return ConstantRate(0) if _ZERO.fullmatch(text) else _read_capacity(text, folder)


def _show_capacity(capacity: Capacity) -> str:
    match capacity:
        case Unlimited():
            return "unlimited"
        case ConstantRate(bit_rate):
            return BIT_RATE.format(bit_rate)
        case TraceSource():
            return capacity.name


CAPACITY = TextField(
    _read_capacity,
    _show_capacity,
    {
        "$comment": "capacity",
        "minLength": 1,
        "examples": [*ARCHIVE, "recordings/train.up", "12 Mbit/s", "unlimited"],
    },
    lambda number: f"'{number} Mbit/s'" if number else f"a trace such as '{ARCHIVE[0]}', or '12 Mbit/s'",
)

LATER_CAPACITY = replace(CAPACITY, read=_read_later_capacity)
"""Capacity in a later change: 0 is an outage."""


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """The limit of a drop-tail queue, in bytes or packets; the other is None."""

    bytes: int | None = None
    packets: int | None = None


_LIMIT = replace(SIZE, examples=("1 MB", "100 packets"))


def _read_limit(text: str, _folder: Path) -> QueueLimit:
    count, _, unit = text.strip().partition(" ")
    if unit.strip() in ("packet", "packets"):
        if not count.isdecimal() or not count.isascii() or not 1 <= len(count) <= 9 or int(count) < 1:
            raise UnitError(f"{plainly(text)} is not a whole number of packets: write '100 packets'")
        return QueueLimit(packets=int(count))
    size = int(_LIMIT.parse(text))
    if size < 1500:
        raise UnitError(f"'{text}' is smaller than one packet: write at least '1500 B'")
    return QueueLimit(bytes=size)


QUEUE_LIMIT = TextField(
    _read_limit,
    lambda limit: SIZE.format(limit.bytes) if limit.bytes is not None else f"{limit.packets} packets",
    {
        "anyOf": [{"pattern": SIZE.pattern()}, {"pattern": r"^\s*[1-9][0-9]{0,8} +packets?\s*$"}],
        "examples": [*_LIMIT.examples],
    },
    _LIMIT.remedy,
    lambda _name, limit: {"packets": limit.packets, "bytes": limit.bytes},
)


def _file(what: str, example: str) -> TextField:
    def read(text: str, folder: Path) -> Path:
        path = find_file(text, folder)
        if path is None:
            raise UnitError(f"{obstacle(text, folder, what)}: write a path relative to the scenario file")
        return path

    return TextField(read, str, {"minLength": 1, "examples": [example]}, lambda _number: "the path of a file")


FILE = _file("model file", "model.onnx")
CODE_FILE = _file("Python file", "processing.py")
BODY_FILE = _file("file", "body.json")
MANIFEST = _file("manifest", "video/manifest.mpd")
DISK_FILE = _file("disk image", "debian.qcow2")
_SIZES_FILE = _file("file of flow sizes", "sizes.txt")
SIZES = replace(
    _SIZES_FILE,
    read=lambda text, folder: text if text in PUBLISHED else _SIZES_FILE.read(text, folder),
    schema={"minLength": 1, "examples": ["sizes.txt", *PUBLISHED]},
    hint=lambda _number: f"the path of a file, or one of {', '.join(PUBLISHED)}",
)
"""Flow sizes: the path of a file, or the name of a published distribution."""
KEY_FILE = _file("private key", "id_ed25519")


def _read_place(text: str, folder: Path) -> Path:
    path = find_file(text, folder) or find_folder(text, folder)
    if path is None:
        raise UnitError(f"there is no file or folder '{text}': write a path relative to the scenario file")
    return path


PLACE = TextField(
    _read_place,
    str,
    {"minLength": 1, "examples": ["data"]},
    lambda _number: "the path of a file or folder",
)


def _folder(what: str, example: str) -> TextField:
    def read(text: str, folder: Path) -> Path:
        path = _read_place(text, folder)
        if not path.is_dir():
            raise UnitError(f"'{text}' is not a folder: write the folder of {what}")
        return path

    schema = {"minLength": 1, "examples": [example]}
    return TextField(read, str, schema, lambda _number: f"the path of the folder of {what}")


TRANSLATOR = _folder("a converted model", "opus-mt-en-de")
SITE = _folder("a page", "site")


def _read_site(text: str, folder: Path) -> Path:
    archive = open_archive()
    path = archive.site(text) if archive.has(text) else find_file(text, folder)
    if path is None:
        hint = did_you_mean(text, archive.names())
        why = obstacle(text, folder, "recorded site")
        raise UnitError(f"{why}: {hint}write the name of a recorded site in the archive, or the path of a WARC file")
    return path


SITE_FILE = TextField(
    _read_site,
    str,
    {"minLength": 1, "examples": ["site.warc.gz"]},
    lambda _number: "the name of a recorded site in the archive, or the path of a WARC file",
)


_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_OF_SHELLS = re.compile(
    r"\|\|?|&&|`|\$[A-Za-z_(]|(?<!\S)(?:&|;|\d?>{1,2}|<(?!\S*>))|;(?!\S)|(?<!\S)[^\s=-][^\s=]*\*|(?<!\S)\*"
)
"""Shell syntax outside of quotes: pipes, lists, substitutions, redirections and file patterns."""


def _split(value: object) -> object:
    """Split text into words like a shell; other values are left to the field's validation."""
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise refusal(f"{plainly(value)}: {str(error).lower()}: close it, or write a list of words") from error
    if found := _OF_SHELLS.search(_QUOTED.sub("x", value)):
        raise refusal(
            f'{plainly(value)} has {plainly(found[0].strip())}, and no shell runs it: write ["sh", "-c", '
            f"{plainly(value)}], or quotes around what is meant as it is"
        )
    return words


_KERNEL_LAW = re.compile("[a-z][a-z0-9_-]{0,14}")


def _read_congestion_control(text: str, folder: Path) -> Law | str:
    if text.endswith(".h"):
        path = find_file(text, folder)
        if path is None:
            raise UnitError(f"{obstacle(text, folder, 'law')}: write the path of a header, such as './my-law.h'")
        try:
            return law.read(path)
        except law.LawError as error:
            raise UnitError(str(error)) from error
    if (found := law.load_shipped().get(text)) is not None:
        return found
    if not _KERNEL_LAW.fullmatch(text):
        raise UnitError(
            f"'{text}' is not a congestion control: write one of the kernel's such as 'cubic', one of `cellbed cc ls`, "
            "or a header such as './my-law.h'"
        )
    return text


CONGESTION_CONTROL = TextField(
    _read_congestion_control,
    lambda control: control if isinstance(control, str) else control.label,
    {"minLength": 1, "examples": ["cubic", "bbr", "vegas", "./my-law.h"]},
    lambda _number: "'cubic', 'bbr', or one of `cellbed cc ls`",
)


Buffer = Annotated[int, quantity(SIZE, "128 KiB", "1 GiB")]
Command = Annotated[
    list[str],
    BeforeValidator(_split),
    Field(min_length=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": "string"}},
            ]
        }
    ),
]
"""A program with its arguments: a list, or text that is split into words as by a shell."""

"""CRIU: its location, version and errors, and the format of its images."""

from __future__ import annotations

import functools
import os
import platform
import re
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cellbed.support.bounded import run_bounded
from cellbed.support.errors import CellbedError
from cellbed_node.processes import find

LEAST = (4, 2)
"""Minimum version: earlier versions cannot dump TCP sockets on current kernels."""
VARIABLE = "CELLBED_CRIU"
UNPACKED = Path("/opt/criu/usr/sbin/criu")
"""Path of the CRIU that ``scripts/criu.sh`` unpacks."""
REMEDY = (
    f"install criu {LEAST[0]}.{LEAST[1]} or newer, or unpack it outside the system with `sudo scripts/criu.sh`, "
    f"or name it with {VARIABLE}=/path/to/criu"
)
_VERSION = re.compile(rb"Version: (\d+)\.(\d+)")
_ERROR = re.compile(r"Error \([^)]*\): (.*)")
_CONSEQUENCES = ("Dumping FAILED", "Restoring FAILED", "Dump files", "rlimit: Can't setup", "tun: Unable")
"""Errors that only follow from a previous error, or that have no effect."""


class CriuError(CellbedError):
    """CRIU is missing, or does not work here. The text contains the remedy."""


@dataclass(frozen=True, slots=True)
class Criu:
    """A CRIU, possibly outside the system's folders, with separate libraries.

    program: path. loader: loader of its libraries; libraries: folders of the libraries.
    """

    program: str
    loader: str
    libraries: tuple[str, ...]

    def command(self, root: str = "") -> list[str]:
        """Return CRIU's command without arguments. root: path under which the caller sees this machine's files."""
        libraries = ":".join(root + each for each in self.libraries)
        return [root + self.loader, "--library-path", libraries, root + self.program]

    @property
    def version(self) -> tuple[int, int]:
        """CRIU's version; (0, 0) if CRIU does not start."""
        try:
            answer = run_bounded([*self.command(), "--version"], timeout_s=10)
        except (OSError, subprocess.TimeoutExpired):
            return 0, 0
        found = _VERSION.search(answer.stdout)
        return (int(found[1]), int(found[2])) if found else (0, 0)


@functools.cache
def find_criu() -> Criu:
    """Return the CRIU of ``CELLBED_CRIU``; else the first recent enough one in the search path or /opt/criu.

    Errors: :class:`CriuError`.
    """
    named = os.environ.get(VARIABLE)
    tried = []
    for path in [named] if named else [find("criu"), str(UNPACKED)]:
        if path is None or not Path(path).is_file():
            continue
        each = _find_in(Path(path).resolve())
        version = each.version
        if version >= LEAST:
            return each
        tried.append(f"{path} is {version[0]}.{version[1]}" if version != (0, 0) else f"{path} does not start")
    why = ", ".join(tried) or (f"there is no file {named}" if named else "there is no program 'criu'")
    raise CriuError(f"{why}: {REMEDY}")


def _find_in(program: Path) -> Criu:
    """Return a CRIU in the system's folders, or unpacked in another folder (``ROOT/usr/sbin/criu``)."""
    root = program.parents[2] if (program.parents[2] / "usr/sbin").is_dir() else Path("/")
    loaders = [*root.glob("lib*/ld-linux*.so.?"), *root.glob("usr/lib*/ld-linux*.so.?")]
    triple = f"{platform.machine()}-linux-gnu"
    folders = [f"/usr/local/lib/{triple}", "/usr/local/lib", f"/usr/lib/{triple}", "/usr/lib64", "/usr/lib"]
    inside = [str(root) + folder if root != Path("/") else folder for folder in folders]
    return Criu(str(program), str(loaders[0]) if loaders else "", tuple(filter(os.path.isdir, inside)))


def refusal(log: str) -> str:
    """Return the first error in a log of CRIU that is not only a consequence."""
    errors = [found[1].strip() for line in log.splitlines() if (found := _ERROR.search(line))]
    causes = [error for error in errors if not error.startswith(_CONSEQUENCES)]
    return next(iter(causes or errors), "it reports no reason")


# --- Images. A file of images begins with two magic numbers; each entry follows its length. Entries are messages of
# protocol buffers; CRIU's images/fdinfo.proto, sk-inet.proto and pagemap.proto define the numbers of fields.
_HEAD, _LENGTH = 8, struct.Struct("<I")
_INET_SOCKET, _FAMILY, _SOURCE_ADDRESS = 4, 3, 11
_ADDRESS, _FEWER_PAGES, _FLAGS, _PAGES, _LAZY = 1, 2, 4, 5, 2


def replace_addresses(files: bytes, addresses: Mapping[str, str]) -> bytes:
    """Return ``files.img`` with new local addresses of its sockets. addresses: old to new, IPv4 and IPv6.

    Errors: ``ValueError`` for a malformed image.
    """
    words = {}
    for old, new in addresses.items():
        words[_words(old)] = _words(new)
        if ip_address(old).version == 4:  # sockets of both versions
            words[_words(f"::ffff:{old}")] = _words(f"::ffff:{new}")
    moved = bytearray(files[:_HEAD])
    for entry in _entries(files):
        changed = _replace_in_file(entry, words)
        moved += _LENGTH.pack(len(changed)) + changed
    return bytes(moved)


def lazy_pages(image: bytes) -> list[tuple[int, int]]:
    """Return the page ranges of a ``pagemap-ID.img`` that are fetched on demand: address, and number of pages.

    Errors: ``ValueError`` for a malformed image.
    """
    found = []
    for entry in list(_entries(image))[1:]:
        fields = {number: int(value) for number, _, value in _fields(entry)}
        if fields.get(_FLAGS, 0) & _LAZY:
            found.append((fields[_ADDRESS], fields.get(_PAGES, fields[_FEWER_PAGES])))
    return found


def _entries(image: bytes) -> Iterator[bytes]:
    place = _HEAD
    while place < len(image):
        (length,) = _LENGTH.unpack_from(image, place)
        yield image[place + 4 : place + 4 + length]
        place += 4 + length


_Words = tuple[int, ...]


def _words(address: str) -> _Words:
    packed = ip_address(address).packed
    return struct.unpack(f"={len(packed) // 4}I", packed)


def _replace_in_file(entry: bytes, words: Mapping[_Words, _Words]) -> bytes:
    moved = bytearray()
    for number, kind, value in _fields(entry):
        if number == _INET_SOCKET and isinstance(value, bytes):
            value = _replace_in_socket(value, words)
        moved += _field(number, kind, value)
    return bytes(moved)


def _replace_in_socket(socket: bytes, words: Mapping[_Words, _Words]) -> bytes:
    fields = list(_fields(socket))
    address = tuple(int(value) for number, _, value in fields if number == _SOURCE_ADDRESS)
    others = iter(words.get(address, address))
    return b"".join(
        _field(number, kind, next(others) if number == _SOURCE_ADDRESS else value) for number, kind, value in fields
    )


def _fields(message: bytes) -> list[tuple[int, int, int | bytes]]:
    """Return the fields of a message: number, wire type, and value (a number or bytes)."""
    found: list[tuple[int, int, int | bytes]] = []
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(message, place)
            found.append((number, kind, value))
            continue
        if kind == 2:
            length, place = _varint(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"malformed image: wire type {kind}")
        found.append((number, kind, message[place : place + length]))
        place += length
    return found


def _field(number: int, kind: int, value: int | bytes) -> bytes:
    key = _encode_varint(number << 3 | kind)
    if isinstance(value, int):
        return key + _encode_varint(value)
    return key + (_encode_varint(len(value)) if kind == 2 else b"") + value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(message):
            raise ValueError("malformed image: it ends within a number")
        byte = message[place]
        value |= (byte & 127) << shift
        shift, place = shift + 7, place + 1
        if not byte & 128:
            return value, place


def _encode_varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)

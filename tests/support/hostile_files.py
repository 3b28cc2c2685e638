"""Files of every kind that others can put in place of an expected one, and the code that opens files."""

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path


def _socket(path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(60 << 30)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "kernel": lambda path: path.symlink_to("/proc/self/mem"),
    "sparse": _sparse,
    "folder": Path.mkdir,
    "socket": _socket,
    "loop": lambda path: path.symlink_to(path.name),
    "nothing": lambda path: path.symlink_to("absent"),
    "empty": Path.touch,
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "deep": lambda path: path.write_bytes(b"[" * 200_000 + b"\n"),
    "keys": lambda path: path.write_text('{"time_ns": 1, "event": "x", "format": 1, "name": ["\\u001b[2J\\u202e"]}\n'),
    "numbers": lambda path: path.write_text(f"{'9' * 5000}\n1e999\n-1\nNaN\n"),
}


OPENERS = {"open", "read_text", "read_bytes"}
READERS = {
    *("read_parquet", "scan_parquet", "read_csv", "scan_csv", "read_ndjson", "scan_ndjson", "loadtxt", "memmap"),
    *("parse_trace", "parse_light_rows", "parse_latency_offsets", "import_series"),
}
"""Functions of libraries and of the core that open files themselves."""
HARMLESS = (
    "/proc/", "/sys/", "'/dev/", "os.devnull", "__file__", "__package__", "PAGE", "HERE", "RESOLV_CONF",
    "_CONGESTION_CONTROLS", "Path(setting)", "NETWORK_USERS", "BytesIO", "inputs.", "fileobj=",
    "webbrowser", "O_PATH", "read_csv(file,",
)  # fmt: skip
"""Parts of calls that read the kernel's files, files of the package or of the system, or memory."""


def opened(*packages: Path) -> dict[str, list[str]]:
    """Calls in the modules of packages that open files of others without :mod:`cellbed_node.inputs`, by module."""
    found: dict[str, list[str]] = {}
    for path in (path for package in packages for path in package.rglob("*.py")):
        name, text = os.path.relpath(path, packages[0]), path.read_text()
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if called not in READERS | OPENERS:
                continue
            source = ast.unparse(call)
            modes = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            writes = any(re.fullmatch(r"[wax]b?\+?b?|r\+b", mode) for mode in modes) or "os.O_WRONLY" in source
            reads = called in READERS or (called in OPENERS and not writes and not re.match(r"read_text\(", source))
            if reads and not any(part in source for part in HARMLESS) and path.name != "inputs.py":
                found.setdefault(name, []).append(f"{name}:{call.lineno}: {source[:80]}")
    return found

"""Load laws into the kernel as eBPF congestion controls (struct_ops), for the lifetime of the process.

libbpf is called directly. It is installed wherever ``ip`` is, since iproute2 depends on it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cellbed.laws.law import FOLDER, Law, LawError, kernel_object, kernel_version
from cellbed_node import inputs

_LIBRARY = "libbpf.so.1"
_PLACEHOLDER = b"@cellbed-law@".ljust(16, b"\0")
"""Placeholder of the name in ``kernel.c``: TCP_CA_NAME_MAX bytes."""
_PROGRAM = FOLDER / "program.c"
_PROGRAM_PLACEHOLDER = b"@cellbed-tcp@".ljust(28, b"\0")
"""Placeholder of ``struct settings`` in ``program.c``."""
_F_LINK = 1 << 13
"""BPF_F_LINK (<linux/bpf.h>, Linux 6.4): the registration ends with its link, even if this process is killed."""
_LINKS_SINCE = (6, 4)
_STRUCT_OPS = 44
"""BPF_STRUCT_OPS, the attachment type."""
_LOG_BYTES = 16 << 20
_SHOWN_LINES = 6


class _OpenOptions(ctypes.Structure):
    """struct bpf_object_open_opts of libbpf 1.0; later members are optional."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("object_name", ctypes.c_char_p),
        ("relaxed_maps", ctypes.c_bool),
        ("pin_root_path", ctypes.c_char_p),
        ("attach_prog_fd", ctypes.c_uint32),
        ("kconfig", ctypes.c_char_p),
        ("btf_custom_path", ctypes.c_char_p),
        ("kernel_log_buf", ctypes.c_void_p),
        ("kernel_log_size", ctypes.c_size_t),
        ("kernel_log_level", ctypes.c_uint32),
    ]


@contextmanager
def load_law(law: Law, flows: int | None = None) -> Iterator[str]:
    """Load a law; the context is its kernel name, unique on this machine. Errors: :class:`LawError`.

    flows: descriptor of the map of a sampler (:mod:`cellbed.testbed.machine.flows`), which receives the variables that
    the law exposes.
    """
    denied = (
        f"loading the congestion control law '{law.name}' into the kernel needs root (CAP_BPF, CAP_NET_ADMIN): run "
        "it with sudo, or use one of the kernel's own, such as cubic, reno or bbr; --virtual needs neither"
    )
    name = _new_name(law)
    content = inputs.content(law.compiled("kernel")).replace(_PLACEHOLDER, name.encode().ljust(16, b"\0"))
    link, own = None, -1
    with open_object(content, law.path, denied) as (program, load):
        library = libbpf()
        operations = library.bpf_object__find_map_by_name(program, b"law")
        by_link = kernel_version() >= _LINKS_SINCE
        if by_link:
            library.bpf_map__set_map_flags(operations, _F_LINK)
        if flows is not None and (shown := library.bpf_object__find_map_by_name(program, b"flows")):
            library.bpf_map__reuse_fd(shown, flows)
        load()
        try:
            link = library.bpf_map__attach_struct_ops(operations)
            if not link:
                raise _refusal(law.path, denied, ctypes.get_errno(), "")
            if by_link and not _makes_links(library):
                own = library.bpf_link_create(library.bpf_map__fd(operations), 0, _STRUCT_OPS, None)
                if own < 0:
                    raise _refusal(law.path, denied, ctypes.get_errno(), "")
            yield name
        finally:
            if own >= 0:
                os.close(own)
            if link:
                library.bpf_link__destroy(link)


@dataclass(frozen=True, slots=True)
class ProgramTcp:
    """TCP settings that programs choose. control: name in the kernel; buffers: bytes; pacing: whether to pace under
    congestion controls without pacing."""

    control: str | None
    receive_buffer: int | None
    send_buffer: int | None
    pacing: bool = False


@cache
def compile_for_programs() -> Path:
    """Return the object that applies TCP settings to programs, from the user's cache. Errors: :class:`LawError`."""
    return kernel_object(_PROGRAM.name, _PROGRAM)


@contextmanager
def apply_tcp(tcp: ProgramTcp, group: Path) -> Iterator[None]:
    """Apply settings to TCP sockets of programs that start in a control group (version 2), while the context and this
    process exist. Errors: :class:`LawError`."""
    halves = [((size or 0) + 1) // 2 for size in (tcp.receive_buffer, tcp.send_buffer)]
    settings = struct.pack("=16s3I", (tcp.control or "").encode(), *halves, tcp.pacing)
    content = inputs.content(compile_for_programs()).replace(_PROGRAM_PLACEHOLDER, settings)
    denied = (
        "settings of TCP for single programs need root (CAP_BPF, CAP_NET_ADMIN): run it with sudo, or write them for "
        "nodes or in [transport]; --virtual needs neither"
    )
    library = libbpf()
    with open_object(content, _PROGRAM, denied) as (program, load):
        load()
        folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
        try:
            function = library.bpf_object__find_program_by_name(program, b"cellbed_choose")
            link = library.bpf_program__attach_cgroup(function, folder)
        finally:
            os.close(folder)
        if not link:
            raise _refusal(_PROGRAM, denied, ctypes.get_errno(), "")
        try:
            yield
        finally:
            library.bpf_link__destroy(link)


@contextmanager
def open_object(content: bytes, blamed: Path, denied: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """Open an object by libbpf; the context is the object, and the function that loads it into the kernel.

    blamed: the file named in errors. denied: error text if this user may not load the object. Errors:
    :class:`LawError`.
    """
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise LawError(f"{blamed}: this kernel cannot load it: it has no BTF (CONFIG_DEBUG_INFO_BTF)")
    library = libbpf()
    log = ctypes.create_string_buffer(_LOG_BYTES)
    options = _OpenOptions(
        sz=ctypes.sizeof(_OpenOptions),
        object_name=b"cellbed",
        kernel_log_buf=ctypes.addressof(log),
        kernel_log_size=_LOG_BYTES,
    )
    program = library.bpf_object__open_mem(content, len(content), ctypes.byref(options))
    if not program:
        reason = os.strerror(ctypes.get_errno())
        raise LawError(f"{blamed}: libbpf cannot read its object ({reason}): does it call a function of another file?")

    def load() -> None:
        if library.bpf_object__load(program) < 0:
            raise _refusal(blamed, denied, ctypes.get_errno(), log.value.decode(errors="replace"))

    try:
        yield program, load
    finally:
        library.bpf_object__close(program)


def is_loaded_law(name: str) -> bool:
    """Return whether the name of a congestion control is of the form that a loaded law has: it ends with the law."""
    return re.fullmatch(r".+_[0-9a-f]{4}", name) is not None


def _new_name(law: Law) -> str:
    """Return a name that is unique among the runs on this machine."""
    taken = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="utf-8").split()
    while True:
        # bpf_obj_name_cpy (kernel/bpf/syscall.c): letters, digits, '_' and '.'.
        name = f"{law.name.replace('-', '_')[:10]}_{secrets.token_hex(2)}"
        if name not in taken:
            return name


def _refusal(blamed: Path, denied: str, number: int, log: str) -> LawError:
    """Return the error for an object that the kernel refuses. log: log of the verifier."""
    if number in (errno.EPERM, errno.EACCES) and not log:
        return LawError(denied)
    lines = [line for line in log.splitlines() if line and not line.startswith(("processed ", "verification time"))]
    shown = "".join(f"\n  {line}" for line in lines[-_SHOWN_LINES:])
    if "program is too large" in shown:
        shown += "\n  (a loop has no constant bound, or the law is too long)"
    reason = "the kernel's verifier refuses it:" if shown else f"the kernel refuses it: {os.strerror(number)}"
    return LawError(f"{blamed}: {reason}{shown}")


@cache
def libbpf() -> ctypes.CDLL:
    """Return libbpf with the types of the functions used here."""
    try:
        library = ctypes.CDLL(_LIBRARY, use_errno=True)
    except OSError:
        raise LawError(f"{_LIBRARY} is missing, which loads congestion controls: sudo apt install libbpf1") from None
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("bpf_object__open_mem", pointer, [ctypes.c_char_p, ctypes.c_size_t, pointer]),
        ("bpf_object__load", ctypes.c_int, [pointer]),
        ("bpf_object__close", None, [pointer]),
        ("bpf_object__find_map_by_name", pointer, [pointer, ctypes.c_char_p]),
        ("bpf_program__attach_cgroup", pointer, [pointer, ctypes.c_int]),
        ("bpf_map__set_map_flags", ctypes.c_int, [pointer, ctypes.c_uint32]),
        ("bpf_map__fd", ctypes.c_int, [pointer]),
        ("bpf_map__reuse_fd", ctypes.c_int, [pointer, ctypes.c_int]),
        ("bpf_map_update_elem", ctypes.c_int, [ctypes.c_int, pointer, pointer, ctypes.c_uint64]),
        ("bpf_object__find_program_by_name", pointer, [pointer, ctypes.c_char_p]),
        ("bpf_program__attach", pointer, [pointer]),
        ("ring_buffer__new", pointer, [ctypes.c_int, pointer, pointer, pointer]),
        ("ring_buffer__consume", ctypes.c_int, [pointer]),
        ("ring_buffer__free", None, [pointer]),
        ("bpf_map__attach_struct_ops", pointer, [pointer]),
        ("bpf_link__destroy", ctypes.c_int, [pointer]),
        ("bpf_link_create", ctypes.c_int, [ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer]),
        ("libbpf_set_print", pointer, [pointer]),
        ("libbpf_major_version", ctypes.c_uint32, []),
        ("libbpf_minor_version", ctypes.c_uint32, []),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.libbpf_set_print(None)
    return library


def _makes_links(library: ctypes.CDLL) -> bool:
    """Return whether libbpf creates the link of a registration (since version 1.2)."""
    return (library.libbpf_major_version(), library.libbpf_minor_version()) >= (1, 2)

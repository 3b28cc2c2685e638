"""Sample the senders of TCP flows in the kernel (``laws/flows.c``) while the process lives."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO

from cellbed.laws.kernel import libbpf, open_object
from cellbed.laws.law import FOLDER, LawError, kernel_object
from cellbed.runformat.flows import MAGIC
from cellbed_node import inputs

_SOURCE = "flows.c"
_PROGRAMS = (b"cellbed_arrival", b"cellbed_repetition")
_DENIED = (
    "sampling flows (series of [transport]) needs root (CAP_BPF, CAP_PERFMON): run it with sudo, or leave it out; "
    "--virtual does not need it"
)
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def compile_sampler() -> Path:
    """Return the sampler's object file, compiled on first use. Errors: :class:`LawError`."""
    return kernel_object(_SOURCE, FOLDER / _SOURCE)


class Sampler:
    """A sampler in the kernel. Samples are written to a file.

    flows: descriptor of the map of sampled flows, for laws that expose variables.
    """

    def __init__(self, program: int, file: BinaryIO) -> None:
        self._library, self._program, self._file = libbpf(), program, file
        self.flows = self._map(b"flows")
        # The library calls it while the ring exists.
        self._write = _Callback(self._take)
        self._ring = self._library.ring_buffer__new(self._map(b"samples"), self._write, None, None)
        if not self._ring:
            raise LawError(f"{FOLDER / _SOURCE}: no buffer for samples: {os.strerror(ctypes.get_errno())}")

    def _map(self, name: bytes) -> int:
        return int(self._library.bpf_map__fd(self._library.bpf_object__find_map_by_name(self._program, name)))

    def _take(self, _: object, sample: int, size: int) -> int:
        self._file.write(ctypes.string_at(sample, size))
        return 0

    def follow(self, nodes: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Begin to sample the flows of nodes. nodes: path of the network namespace and addresses of each node."""
        for number, (namespace, addresses) in enumerate(nodes):
            self._enter(b"nodes", Path(namespace).stat().st_ino.to_bytes(4, "little"), number)
            for address in map(ip_address, addresses):
                mapped = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
                self._enter(b"addresses", mapped, number)

    def _enter(self, name: bytes, key: bytes, number: int) -> None:
        value = ctypes.c_uint32(number)
        if self._library.bpf_map_update_elem(self._map(name), key, ctypes.byref(value), 0) < 0:
            raise LawError(f"{FOLDER / _SOURCE}: too many nodes: {os.strerror(ctypes.get_errno())}")

    def drain(self) -> None:
        """Write the samples since the last call; call this about every 100 ms."""
        self._library.ring_buffer__consume(self._ring)

    def close(self) -> None:
        """Write the last samples."""
        self.drain()
        self._library.ring_buffer__free(self._ring)


@contextlib.contextmanager
def sample_flows(path: Path) -> Iterator[Sampler]:
    """Return a context that writes samples of TCP flows to a file. Errors: :class:`LawError`, ``OSError``."""
    library = libbpf()
    with contextlib.ExitStack() as stack:
        program, load = stack.enter_context(open_object(inputs.content(compile_sampler()), FOLDER / _SOURCE, _DENIED))
        load()
        file = stack.enter_context(path.open("wb"))
        file.write(MAGIC)
        sampler = Sampler(program, file)
        stack.callback(sampler.close)
        for name in _PROGRAMS:
            link = library.bpf_program__attach(library.bpf_object__find_program_by_name(program, name))
            if not link:
                raise LawError(f"{FOLDER / _SOURCE}: cannot be attached: {os.strerror(ctypes.get_errno())}")
            stack.callback(library.bpf_link__destroy, link)
        yield sampler

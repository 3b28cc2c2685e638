"""Find congestion control laws, and compile them at first use."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from cellbed import _core
from cellbed.support.bounded import run_bounded
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.user_folders import cache_folder
from cellbed.support.whole_files import write_whole
from cellbed_node import inputs

CONGESTION_SETTING = "net.ipv4.tcp_congestion_control"
"""Kernel setting of a network namespace."""
FOLDER = Path(__file__).parent
_NO_LAWS = {"law.h", "kernel.h", "shown.h"}
KERNEL_CONTROLS = {"reno" if name == "newreno" else name: name for name in _core.congestion_controls()}
"""Kernel laws that virtual time also has, with their names in virtual time."""
_NAME = re.compile("[a-z][a-z0-9-]{0,31}")
_MOST_BYTES = 1 << 20
_PATIENCE_S = 60
_COMPILER_MEMORY = 2 << 30
_ZEROS = {3: "cwnd", 4: "ssthresh"}
"""Part of the window that a law set to 0, by exit status of the law's trial."""
_TRIAL = """\
import ctypes, sys
from cellbed import _core
from cellbed.link import Link
from cellbed.path import Path, Tcp
_core.load_law("trial", sys.argv[1])
link = Link(rate="10 Mbit/s", delay="20 ms", queue="100 kB", loss="1 %")
Path(link, link).downloads(sizes=[5_000_000], tcp=Tcp(control="trial"), until=60 * 10**9)
if zero := ctypes.c_uint32.in_dll(ctypes.CDLL(sys.argv[1]), "cellbed_law_zero").value:
    sys.exit(2 + zero)
"""
_COMPARED = "Compared: "
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_SHOWN = re.compile(r"^#define LAW_SHOWN\(show\)((?:.*\\\n)*.*)", re.MULTILINE)

_ERROR = re.compile(" error: |undefined reference|undefined symbol")
_HINTS = {
    "__float": "it uses floating point",
    "__fix": "it uses floating point",
    "sdiv": "it divides signed numbers",
    "function 'law_": "the law must have this function",
    "/shown.h:": "see its LAW_SHOWN",
    "undefined ": "define this function in the header",
    "'struct constants'": "write one list CONSTANTS into the header itself, outside of #if",
    "no previous": "a helper function must be static, and a function of the interface have its name and arguments",
}
"""Causes of errors of clang's BPF target, by parts of the error text."""

Target = Literal["kernel", "host"]


class LawError(CellbedError):
    """A congestion control law that is missing, malformed, or refused by the compiler or the kernel."""


@dataclass(frozen=True, slots=True)
class Law:
    """A congestion control law.

    name: letters, digits and hyphens: the header's name without suffix. path: the header. title: one line.
    description: publication, constants and deviations from the publication. shown: variables in the series of its
    flows. compared: the authors' implementation, its location, and the ratio of our figures to theirs, one line.
    """

    name: str
    path: Path
    title: str
    description: str
    shown: tuple[str, ...] = ()
    compared: str = "not compared"

    @property
    def label(self) -> str:
        """The law's name in a scenario: its name if the law is shipped, else the path of its header."""
        return self.name if self.path.parent == FOLDER else str(self.path)

    def compiled(self, target: Target) -> Path:
        """Return the law's object for the kernel (BPF) or its shared object for this machine.

        The package has the objects of shipped laws; others are in the user's cache, compiled if their header or an
        included header has changed. Errors: :class:`LawError`.
        """
        # In Linux 6.10, <linux/tcp.h> gave cong_control two additional arguments before the last one.
        argument = 3 if kernel_version() >= (6, 10) else 1
        object_name = f"{self.name}.{argument}.o" if target == "kernel" else f"{self.name}.so"
        if self.path.parent == FOLDER and (packaged := _packaged(object_name)) is not None:
            return packaged
        if target == "host":
            return compile_header(FOLDER / "host.c", self.path, "struct law")
        options = ["-include", str(self.path), f"-DLAW_CONTROL_ARGUMENT={argument}"]
        return kernel_object("kernel.c", self.path, options, "struct law")

    def load(self) -> str:
        """Load the law into this process; return its name among the congestion controls of virtual time.

        Errors: :class:`LawError`.
        """
        from cellbed import _core

        compiled = self.compiled("host")
        if self.path.parent != FOLDER:
            self._try(compiled)
        try:
            _core.load_law(self.label, compiled)
        except ValueError as error:
            raise LawError(f"{self.path}: {error}") from None
        return self.label

    def _try(self, compiled: Path) -> None:
        """Run the law for a minute of virtual time in a separate process, once per shared object: a law that crashes or
        does not return must not affect this process. Errors: :class:`LawError`."""
        if (tried := compiled.with_suffix(".tried")).exists():
            return
        try:
            done = run_bounded([sys.executable, "-P", "-c", _TRIAL, compiled], timeout_s=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise LawError(f"{self.path}: did not return from a function within {_PATIENCE_S} s: a loop?") from None
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise LawError(f"{self.path}: crashed in virtual time ({name}): a division by zero, or a wrong pointer?")
        if zero := _ZEROS.get(done.returncode):
            raise LawError(f"{self.path}: set {zero} to 0 segments, and TCP sends nothing: keep at least 1")
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise LawError(f"{self.path}: cannot run in virtual time: {_without_folders(reason, self.path)}")
        tried.touch()


def compile_header(source: Path, header: Path, state: str, macros: Sequence[str] = ()) -> Path:
    """Return the shared object of a C header of the user, from the user's cache.

    source: exports the header's functions, in the folder of the interface. state: what holds the header's variables, in
    errors. macros: definitions for `source`, such as ``NAME=VALUE``. Errors: :class:`LawError`, also for variables
    outside of the state.
    """
    options = [*(f"-D{each}" for each in macros), "-include", str(header), "-shared", "-fPIC", "-nostartfiles"]
    if source.parent != FOLDER:
        # Unlike laws, whose numbers are whole: no fused operations, whose results differ between processors.
        options += ["-ffp-contract=off", "-Werror=missing-prototypes", "-Wl,--no-as-needed,-z,defs", "-lm"]
    return _compile(_compiler("cc", "gcc", "clang"), source, header, options, state)


def kernel_object(source: str, blamed: Path, options: Sequence[str] = (), state: str | None = None) -> Path:
    """Return the BPF object of a source in this folder: from the package, or with `options` from the user's cache.

    blamed: the file that errors name. state: as in `compile_header`. Errors: :class:`LawError`.
    """
    if not options and (packaged := _packaged(f"{source.removesuffix('.c')}.o")) is not None:
        return packaged
    return _compile(_compiler("clang"), FOLDER / source, blamed, [*options, "-target", "bpf", "-g", "-c"], state)


def _packaged(name: str) -> Path | None:
    """Return an object that the package contains; None if its sources differ from the package's."""
    path = FOLDER / "objects" / _sources() / name
    return path if path.exists() else None


@cache
def _sources() -> str:
    """Return the hash of the laws' sources, as ``scripts/build.sh`` computes it."""
    content = b"".join(inputs.content(path) for path in sorted(FOLDER.glob("*.[ch]")))
    return hashlib.sha256(content).hexdigest()[:16]


def _compile(compiler: str, source: Path, blamed: Path, options: list[str], state: str | None) -> Path:
    options = [*options, "-I", str(source.parent)]
    text = _run([compiler, *(each for each in options if each != "-c"), "-E", str(source)], blamed)
    options += ["-O2", "-Wall", "-Wno-unused-parameter", "-Werror=implicit-function-declaration"]
    key = hashlib.sha256(repr((compiler, options, state)).encode() + text).hexdigest()
    place = cache_folder() / "laws" / f"{key}.{'o' if '-c' in options else 'so'}"

    def write(path: Path) -> None:
        _run([compiler, *options, "-o", str(path), str(source)], blamed)
        shared = _variables(path) if state is not None else ()
        if name := next((each for each in shared if not each.startswith("cellbed_")), None):
            raise LawError(f"{blamed}: all connections share the variable '{name}': put it into {state}")

    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, write)
    return place


def _run(command: list[str], blamed: Path) -> bytes:
    """Run the compiler and return its output. Errors: :class:`LawError` with the first error."""
    try:
        done = run_bounded(command, timeout_s=_PATIENCE_S, environment={"LC_ALL": "C"}, memory=_COMPILER_MEMORY)
    except subprocess.TimeoutExpired:
        raise LawError(f"{blamed}: not compiled within {_PATIENCE_S} s") from None
    except OSError as error:
        raise LawError(f"{blamed}: not compiled: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        first = next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "no message")
        hint = next((f" ({text})" for word, text in _HINTS.items() if word in first), "")
        raise LawError(f"{blamed}: cannot be compiled: {_without_folders(first, blamed)}{hint}")
    return done.stdout


def _without_folders(text: str, blamed: Path) -> str:
    """Return a tool's message with only file names in place of paths, except the law's path."""
    return re.sub(r"/\S*/", lambda folder: folder[0] if Path(folder[0]) == blamed.parent else "", text[:1000])


def _variables(path: Path) -> Iterator[str]:
    """Yield the names of the variables in the data sections of an object file for this machine or BPF."""
    for line in _run([_compiler("nm"), "--format=sysv", str(path)], path).decode(errors="replace").splitlines():
        name, *fields = [field.strip() for field in line.split("|")]
        if "OBJECT" in fields and re.fullmatch(r"\.t?(data|bss)(\.(?!rel\.ro).*)?", fields[-1]):
            # Compilers name static variables of functions 'name.0' and 'function.name'.
            yield next(part for part in reversed(name.split(".")) if not part.isdigit())


def name_of(control: Law | str) -> str:
    """Return the name of a congestion control of the kernel, or of a law."""
    return control.name if isinstance(control, Law) else control


@cache
def load_shipped() -> dict[str, Law]:
    """Return the shipped laws by name."""
    paths = sorted(path for path in FOLDER.glob("*.h") if path.name not in _NO_LAWS)
    return {path.stem: read(path) for path in paths}


def find(text: str, folder: Path) -> Law:
    """Return a shipped law by name, or a law by its header's path relative to `folder`. Errors: :class:`LawError`."""
    if text.endswith(".h"):
        return read(folder / text)
    try:
        return load_shipped()[text]
    except KeyError:
        raise LawError(f"there is no law '{text}': {did_you_mean(text, load_shipped())}see `cellbed cc ls`") from None


def read(path: Path) -> Law:
    """Read a law from its header. Errors: :class:`LawError`."""
    if path.suffix != ".h" or not _NAME.fullmatch(path.stem):
        raise LawError(
            f"{path}: not the name of a law: at most 32 lower-case letters, digits and hyphens, then .h, such as "
            "./my-law.h"
        )
    taken = {*KERNEL_CONTROLS, *(each.stem for each in FOLDER.glob("*.h"))}
    if path.stem in taken and path.absolute().parent != FOLDER:
        raise LawError(f"{path}: '{path.stem}' is the name of another law: rename the header and its title")
    try:
        text = inputs.text(path, _MOST_BYTES)
    except OSError as error:
        raise LawError(f"{path}: cannot be read: {error.strerror}") from None
    found = _COMMENT.search(text)
    lines = [line.strip().removeprefix("*").strip() for line in found[1].splitlines()] if found else []
    lines = [line for line in lines if not line.startswith("SPDX")]
    compared = [line.removeprefix(_COMPARED).strip() for line in lines if line.startswith(_COMPARED)]
    described = "\n".join(line for line in lines if not line.startswith(_COMPARED)).strip()
    first, _, rest = described.partition("\n")
    name, colon, title = first.partition(":")
    if not colon or not title.strip():
        raise LawError(f"{path}: missing title: the header must begin with a comment '/* {path.stem}: TITLE'")
    if name.strip() != path.stem:
        raise LawError(f"{path}: its comment names the law '{name.strip()}', not '{path.stem}' as its file")
    shows = _SHOWN.search(text)
    shown = tuple(re.findall(r"show\(([\w.]+)\)", shows[1])) if shows else ()
    return Law(path.stem, path.absolute(), title.strip(), rest.strip(), shown, *compared[:1])


def _compiler(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    package = "clang" if names == ("clang",) else "gcc"
    raise LawError(f"C headers and the sampler of flows need a C compiler: sudo apt install {package}")


def kernel_version() -> tuple[int, ...]:
    """Return the first two numbers of the Linux version."""
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])

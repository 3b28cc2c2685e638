"""Keep Ctrl-C working after Polars is imported.

Polars installs a SIGINT handler when it is imported. With this handler, the kernel restarts interrupted waits (a pipe
without a reader would never end). Polars prints traces of its threads, which continue to write in folders that are
being removed. Without the handler, an interruption arrives after the running query. Polars also calls Python from Rust,
where an exception of a handler is a panic with a trace: the interruption is delayed until Polars has returned.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any

from cellbed.support.errors import CellbedError

_LEAST_MIB = 1200
"""Minimum address space for a start of Polars, MiB."""
_RETRY_S = 0.01
"""Delay of an interruption at a place where its exception would be lost, seconds."""
_LOSING = frozenset({"polars", "weakref", "_weakrefset"})
"""Packages that call functions where an exception is a panic or is ignored."""
_came = False


def keep_interruptions() -> None:
    """Record Ctrl-C, and restore its effect after the first import of Polars."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)
    sys.meta_path.insert(0, _AroundPolars())


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed, even if a library raised another error for it."""
    return _came


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delay SIGINT until the end of this context. Processes started in this context never receive SIGINT, even while
    they load."""
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and handler is not None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if ours:  # the kernel may deliver the signal to another thread, and Python then interrupts the main thread
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def wait_with_handlers() -> Iterator[Callable[..., bool]]:
    """Yield a function that waits until one of its files is readable, or, without files, until a signal. Handlers of
    signals run at once.

    Python defers the handler of a signal that comes just before a system call until that call returns. Here the signal
    itself ends the call. Only for the main thread.
    """
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def wait(*files: Any) -> bool:
        while select.select([woken, *files], [], [])[0] == [woken]:
            os.read(woken, 4096)
            if not files:
                return False
        return True

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        os.close(woken)
        os.close(wake)


def is_postponed(number: int, frame: FrameType | None) -> bool:
    """Return whether Python would drop an exception of a handler in this frame; if so, send its signal again soon."""
    if not _loses_exception(frame):
        return False
    retry = threading.Timer(_RETRY_S, signal.pthread_kill, (threading.main_thread().ident, number))
    retry.daemon = True
    retry.start()
    return True


def _note(number: int, frame: FrameType | None) -> None:
    global _came
    _came = True
    if not is_postponed(number, frame):
        raise KeyboardInterrupt


def _loses_exception(frame: FrameType | None) -> bool:
    """Return whether Python would drop an exception: in Polars, in a weak reference's callback, in `__del__`."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _LOSING or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


_ALLOCATOR, _RETURNING = "_RJEM_MALLOC_CONF", "dirty_decay_ms:100,muzzy_decay_ms:0"


class _AroundPolars:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "polars":
            return None
        sys.meta_path.remove(self)
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY and limit < _LEAST_MIB << 20:  # Polars would abort with thousands of lines
            raise CellbedError(
                f"the address space is limited to {limit >> 20} MiB: tables need {_LEAST_MIB} MiB: raise it (ulimit -v)"
            )
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_restore(module: ModuleType) -> None:
            handler = signal.getsignal(signal.SIGINT)
            # Read when Polars is loaded. Else its allocator keeps a tenth of a large run's memory for seconds.
            asked = os.environ.setdefault(_ALLOCATOR, _RETURNING)
            load(module)
            if asked == _RETURNING:  # programs of users do not inherit it
                del os.environ[_ALLOCATOR]
            with contextlib.suppress(ValueError):  # in another thread
                signal.signal(signal.SIGINT, handler)

        spec.loader.exec_module = load_and_restore  # type: ignore[method-assign]
        return spec

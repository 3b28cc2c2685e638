"""A limit of time for what cannot be interrupted otherwise, such as a regular expression."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


@contextlib.contextmanager
def time_limit(limit_s: float, error: BaseException, *, processor: bool = False) -> Iterator[None]:
    """Raise an error in this context after a time, even inside of a regular expression; 0: never.

    processor: the time is that for which the process uses a processor. Has no effect in other threads than the main
    one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_error(number: int, frame: FrameType | None) -> NoReturn:
        raise error

    timer, number = (signal.ITIMER_VIRTUAL, signal.SIGVTALRM) if processor else (signal.ITIMER_REAL, signal.SIGALRM)
    before = signal.signal(number, raise_error)
    signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)

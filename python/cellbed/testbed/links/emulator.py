"""The supervisor's side of the emulator: a process that reads commands and prints events, one JSON line each."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.contention import contention
from cellbed.testbed.machine.events import EventProcess
from cellbed_node.processes import KILLED_S

_log = logging.getLogger(__name__)
_LEVELS = {b"DEBUG": logging.DEBUG, b"INFO": logging.INFO, b"WARN": logging.WARNING, b"ERROR": logging.ERROR}
_DIAGNOSTIC = re.compile(rb"\s*[\d.]+s +(" + b"|".join(_LEVELS) + rb") ")
_MOST_ERRORS = 1 << 20
"""Maximum bytes of standard error that are logged at once."""


class EmulatorError(CellbedError):
    """The emulator could not start, or ended unexpectedly."""

    exit_code = 1


class Emulator:
    """A running emulator. Use :meth:`start`; the process dies with the caller.

    ready: the emulator's first event, with the namespaces of the nodes.
    """

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._channel = EventProcess(process, errors)
        self._infinite: list[str] = []
        self._logged = 0
        self.ready: dict[str, Any] = {}

    @classmethod
    def start(
        cls,
        config: dict[str, Any],
        environment: dict[str, str] | None = None,
        timeout: float | None = None,
        descriptors: Sequence[int] = (),
    ) -> Emulator:
        """Start an emulator for `config` (vertices and directions) and wait until its devices are up.

        timeout: seconds; default: 30, plus 1 per vertex.
        descriptors: file descriptors in `config`, which the emulator inherits.
        Errors: :class:`EmulatorError` with the emulator's own message, for instance that a TUN device is not allowed.
        """
        _check_names(config)
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the emulator
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from cellbed._core import emulate; emulate()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={"CELLBED_LOG": "info", **os.environ, **(environment or {})},
            pass_fds=descriptors,
        )
        emulator = cls(process, errors)
        emulator._infinite = [each["name"] for each in config["directions"] if _has_infinite_queue(each)]
        try:
            emulator._send(config)
            emulator.ready = emulator._receive(timeout or 30.0 + len(config["vertices"]), "ready")
        except BaseException:
            emulator.kill()
            raise
        return emulator

    @property
    def pid(self) -> int:
        """Process id of the emulator."""
        return self._process.pid

    @property
    def user_namespace(self) -> str | None:
        """Path of the user namespace that owns the nodes, or ``None`` without one."""
        path: str | None = self.ready["user_namespace"]
        return path

    def namespace(self, node: str) -> str:
        """Path of a node's network namespace."""
        path: str = self.ready["nodes"][node]["namespace"]
        return path

    def interface(self, node: str) -> str:
        """Return the name of a node's network interface."""
        name: str = self.ready["nodes"][node]["interface"]
        return name

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    @contextlib.contextmanager
    def require(self) -> Iterator[None]:
        """Return a context that requires a running emulator.

        Errors: :class:`EmulatorError` instead of an error caused by the emulator's end, such as a missing namespace.
        """
        try:
            yield
        except EmulatorError:
            raise
        except Exception as error:
            # Its namespaces disappear shortly before its end can be observed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
                raise self.failure() from error
            raise

    def restart_links(self, at_ns: int, offset_ns: int = 0) -> None:
        """Restart all traces and random sequences at monotonic time `at_ns`, with traces at `offset_ns`."""
        self.command({"do": "start", "at_ns": at_ns, "offset_ns": offset_ns}, "started")

    def counters(self) -> dict[str, dict[str, Any]]:
        """Return the counters of each direction since the emulator's start, by name."""
        directions = self.command({"do": "status"}, "status")["directions"]
        return {str(direction["name"]): direction for direction in directions}

    def losses(self, account: dict[str, Any], counters: dict[str, dict[str, Any]]) -> list[str]:
        """Return a line for each loss outside the emulated network: by infinite queues, logs or network devices.

        account: result of :meth:`finish`. counters: result of :meth:`counters`.
        """
        dropped = {name: counters[name]["dropped"].get("queue-full", 0) for name in self._infinite if name in counters}
        lines = [
            f"{name} dropped {count} packets: its infinite queue was larger than its share of this machine's memory"
            for name, count in dropped.items()
            if count
        ]
        if account["records_lost"]:
            problem = account["records_problem"] or "the disk was too slow"
            lines.append(f"the logs of the links lack {account['records_lost']} records: {problem}")
        return lines + [
            f"{counts['dropped']} packets were lost at the network device of {node}, not in a link"
            for node, counts in account["interfaces"].items()
            if counts is not None and counts["dropped"]
        ]

    def probe(self, flows: list[dict[str, Any]], timeout: float) -> list[dict[str, Any]]:
        """Send real datagrams between nodes; return each flow with ``sent_ns`` and ``received_ns``."""
        result: list[dict[str, Any]] = self.command({"do": "probe", "flows": flows}, "probed", timeout)["flows"]
        return result

    def finish(self, timeout: float = 10.0) -> dict[str, Any]:
        """Flush the logs and return the final account. The emulator ends soon afterwards; :meth:`kill` ensures that."""
        return self.command({"do": "stop"}, "stopped", timeout)

    def stop(self, timeout: float = 10.0) -> dict[str, Any]:
        """Flush the logs, end the emulator and return its final account."""
        account = self.finish(timeout)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()
        return account

    def kill(self) -> None:
        """End the emulator at once; unflushed data is lost."""
        if self._process.poll() is None:
            self._process.kill()
        try:
            self._process.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            raise EmulatorError(f"the emulator has not ended {KILLED_S:g} s after SIGKILL") from None
        finally:
            self._close()

    def command(self, command: dict[str, Any], answer: str, timeout: float = 10.0) -> dict[str, Any]:
        """Send a command and wait for the event called `answer`."""
        self._send(command)
        return self._receive(timeout, answer)

    def _send(self, line: dict[str, Any]) -> None:
        try:
            self._channel.send(line)
        except (BrokenPipeError, ValueError) as error:
            raise self.failure() from error

    def _receive(self, timeout: float, answer: str) -> dict[str, Any]:
        try:
            event = self._channel.receive(timeout)
        except EOFError:
            raise self.failure() from None
        self._log_errors()
        if event is None:
            cause = f": {busy}" if (busy := contention()) else ""
            raise EmulatorError(f"the emulator did not answer within {timeout:g} s (expected {answer!r}){cause}")
        if event.get("event") == "error":
            raise EmulatorError(f"the emulator failed: {event.get('message')}")
        if event.get("event") != answer:
            raise EmulatorError(f"the emulator answered {event.get('event')!r} where {answer!r} was expected")
        return event

    def failure(self) -> EmulatorError:
        """Return the error of an emulator that has ended, with its exit status and last line."""
        try:
            status: int | None = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            status = None
        reason = self._channel.last_words()
        if reason and _DIAGNOSTIC.match(reason.encode()):
            reason = None
        detail = f": {reason}" if reason else ""
        return EmulatorError(f"the emulator ended unexpectedly (exit status {status}){detail}")

    def _log_errors(self) -> None:
        """Log new lines of the emulator's standard error: diagnostics, or a panic message."""
        errors = self._channel.errors
        if isinstance(errors, Path) or errors.closed:
            return
        # The emulator writes at the position of the same open file: do not move the position.
        *lines, _ = os.pread(errors.fileno(), _MOST_ERRORS, self._logged).split(b"\n")
        for line in lines:
            self._logged += len(line) + 1
            found = _DIAGNOSTIC.match(line)
            level = _LEVELS[found[1]] if found else logging.ERROR
            _log.log(level, f"emulator: {line.decode(errors='replace')}")

    def _close(self) -> None:
        self._log_errors()
        if self._process.stdin is not None and not self._process.stdin.closed:
            _log.info(f"emulator ended: process {self.pid}, status {self._process.returncode}")
        for stream in (self._process.stdin, self._process.stdout, self._channel.errors):
            if stream is not None and not isinstance(stream, Path):
                with contextlib.suppress(OSError):
                    stream.close()


def _check_names(config: dict[str, Any]) -> None:
    """Refuse paths that JSON cannot hold."""
    text = json.dumps(config, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        path = text[text.rindex('"', 0, error.start) + 1 : text.index('"', error.end)]
        raise EmulatorError(f"{path}: this name is not UTF-8; rename it or choose another place") from None


def _has_infinite_queue(direction: dict[str, Any]) -> bool:
    """Return whether a direction's only queue is infinite, as configured."""
    stages = [*direction["stages"], *(change["to"] for change in direction.get("changes", ()))]
    kinds = {stage["queue"]["kind"] for stage in stages if stage.get("queue")}
    return kinds == {"infinite"}

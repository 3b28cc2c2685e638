"""The recorder itself, over sockets and real links: a server, and a client with two devices."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.experiments.evaluation.network import Network
from cellbed.experiments.evaluation.site import ADDRESSES, FAR, NEAR, configuration
from cellbed.recordings import TrainPlan
from cellbed.recordings.description import Calibration
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.events import EventProcess
from cellbed.testbed.machine.process import end, find, run, spawn
from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.testbed import Testbed

_SECOND = "second"
"""The node whose interface becomes the client's second one."""
_SECOND_ADDRESS = "100.64.0.3"
_HEAVY_INTERFACE = "heavy0"
_PORT = 7700
_START_PATIENCE_S = 30.0
_RATE = "4 Gbit/s"
"""What the server may send: more than any link here carries."""
_OVERLOAD = 2.0
"""Saturation is sent at so many times the calibrated rate, as an adaptive one is over a queue that overflows."""


@dataclass(frozen=True, slots=True)
class SocketRecorder:
    """`cellbed record` between two nodes. mark: the evaluation's identifier in the registry. scratch: for its files."""

    mark: str
    scratch: Path

    def calibrate(self, network: Network, seed: int) -> Calibration:
        """Return the network's parameters, in less than five minutes. Errors: :class:`CellbedError`."""
        found = self.scratch / "calibration.json"
        found.unlink(missing_ok=True)
        with _Sockets(self, network, network) as sockets:
            sockets.emulator.restart_links(time.monotonic_ns())
            for _ in sockets.client("calibrate", "--seed", str(seed), "--out", str(found)):
                pass
        return Calibration.model_validate_json(inputs.text(found))

    def record(
        self, light: Network, heavy: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
    ) -> int:
        """Write a recording as the directory `folder`; returns when its time zero is on the networks' clock, ns.

        Errors: :class:`CellbedError`.
        """
        trains, calibrated = self.scratch / "plan.json", self.scratch / "calibration.json"
        trains.write_text(plan.model_dump_json(exclude_none=True), encoding="utf-8")
        calibrated.write_text(calibration.recorder_json(), encoding="utf-8")
        with _Sockets(self, light, heavy) as sockets:
            sockets.join_devices()
            started = time.monotonic_ns()
            sockets.emulator.restart_links(started)
            # The recorder reports how long it has been recording; its lines are read a little later than written.
            zero: int | None = min(
                (
                    at - round(event["elapsed_s"] * 1e9) - started
                    for at, event in sockets.client(
                        *("--duration", f"{duration_ns / 1000:.3f} us", "--plan", str(trains)),
                        *("--light-interface", sockets.emulator.interface(NEAR)),
                        *("--heavy-interface", _HEAVY_INTERFACE, *_rates(calibration)),
                        *("--calibration", str(calibrated), "--out", str(folder.absolute())),
                    )
                    if event.get("event") == "progress"
                ),
                default=None,
            )
        if zero is None or not folder.is_dir():
            raise CellbedError("the recorder ended without a recording")
        return max(0, zero)


class _Sockets:
    """The emulator and the recorder's server, until the block ends."""

    def __init__(self, recorder: SocketRecorder, light: Network, heavy: Network) -> None:
        self._recorder = recorder
        self._networks = light, heavy
        self._stack = contextlib.ExitStack()
        self._secret = recorder.scratch / "secret"

    def __enter__(self) -> _Sockets:
        self._environment = {**os.environ, RUN_VARIABLE: self._recorder.mark}
        with self._stack:
            bed = self._stack.enter_context(Testbed(_two_devices(*self._networks), self._recorder.mark))
            self.emulator, self._nodes = bed.emulator, bed.nodes
            if not self._secret.exists():
                self._run("secret", str(self._secret))
            listen = ("--listen", f"{ADDRESSES[FAR]}:{_PORT}", "--rate", _RATE, "--total-rate", _RATE)
            server = self._start(FAR, "serve", "--secret", str(self._secret), *listen)
            self._stack.callback(end, server)
            # The client asks again until it is answered.
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join_devices(self) -> None:
        """Give the client's node the second device as another interface."""
        ip = find("ip")
        if ip is None:
            raise CellbedError("a client with two devices needs iproute2: apt-get install iproute2")
        interface = self.emulator.interface(_SECOND)
        move = [ip, "link", "set", interface, "netns", self.emulator.namespace(NEAR), "name", _HEAVY_INTERFACE]
        run(move, place=self._nodes[_SECOND].place)
        for words in (
            ["link", "set", _HEAVY_INTERFACE, "up"],
            ["address", "add", f"{_SECOND_ADDRESS}/32", "dev", _HEAVY_INTERFACE],
            ["route", "add", "default", "dev", _HEAVY_INTERFACE, "src", _SECOND_ADDRESS, "metric", "2048"],
        ):
            run([ip, *words], place=self._nodes[NEAR].place)

    def client(self, *arguments: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Run the client to its end; its lines, and their monotonic times, ns.

        Errors: :class:`CellbedError` with its last words.
        """
        verb, rest = (arguments[:1], arguments[1:]) if arguments[0] == "calibrate" else ((), arguments)
        server = f"{ADDRESSES[FAR]}:{_PORT}"
        process = self._start(NEAR, *verb, server, "--secret", str(self._secret), "--json", *rest)
        self._stack.callback(end, process)
        events = EventProcess(process, self._log(NEAR))
        with contextlib.suppress(EOFError):
            while event := events.receive():
                yield time.monotonic_ns(), event
        if process.wait() != 0:
            raise CellbedError(f"the recorder failed: {events.last_words() or process.returncode}")

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            _command(*arguments), capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        if done.returncode != 0:
            raise CellbedError(f"the recorder failed: {done.stderr.strip()}")

    def _start(self, node: str, *arguments: str) -> subprocess.Popen[bytes]:
        place = self._nodes[node].place
        assert place is not None
        with self._log(node).open("wb") as log:
            return spawn(
                _command(*arguments),
                place,
                environment=self._environment,
                stdout=subprocess.PIPE if node == NEAR else log,
                stderr=log,
                keep_capabilities=True,  # binding to an interface may need one
            )

    def _log(self, node: str) -> Path:
        return self._recorder.scratch / f"recorder-{node}.log"


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "cellbed", "record", *arguments]


def _rates(calibration: Calibration) -> Iterator[str]:
    """Return the rates of the saturation. An adaptive one would keep the light device awake, whose path it asks for
    news."""
    for option, found in (
        ("--uplink-rate", calibration.directions.uplink),
        ("--downlink-rate", calibration.directions.downlink),
    ):
        if found is not None and found.saturated_bps:
            yield from (option, f"{_OVERLOAD * found.saturated_bps / 1000:.0f} kbit/s")


def _two_devices(light: Network, heavy: Network) -> dict[str, Any]:
    """Return the evaluation's nodes behind one network, and a second device behind the other."""
    config = configuration(light)
    near = config["vertices"][0]
    config["vertices"].append({**near, "name": _SECOND, "addresses": [f"{_SECOND_ADDRESS}/32"]})
    for direction in configuration(heavy)["directions"]:
        ends = {key: _SECOND if direction[key] == NEAR else direction[key] for key in ("from", "to")}
        config["directions"].append({**direction, **ends, "name": f"{_SECOND} {direction['name']}"})
    return config

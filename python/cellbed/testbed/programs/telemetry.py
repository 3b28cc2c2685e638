"""OpenTelemetry in a run: the receivers of its nodes, and the variables that make programs export to them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cellbed.support.errors import printable
from cellbed.testbed.machine.process import Place, Process, ProgramError
from cellbed.testbed.machine.process import listener as listening
from cellbed_node import inputs
from cellbed_node.exports import APPLICATION, SUFFIX
from cellbed_node.processes import kill
from cellbed_node.receiver import ADDRESS, FILES, MOST_CONNECTIONS, MOST_REASONS

FLUSH_MS = 500
"""Interval of exports. Spans that a program has not exported before its end are lost."""
PATIENCE_S = 10.0
"""Maximum time to store the last exports at the end, seconds."""


class Telemetry:
    """The receiver of a run, started with the first node. raw: folder for stored exports."""

    def __init__(self, raw: Path, environment: Mapping[str, str]) -> None:
        """environment: variables of the receiver, added to this process's."""
        self._raw, self._environment = raw, environment
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._nodes: set[str] = set()

    @property
    def pids(self) -> list[int]:
        """The receiver's process on this machine, if any."""
        return [self._process.pid] if self._process is not None else []

    @property
    def has_receivers(self) -> bool:
        """Return whether there is a receiver."""
        return bool(self._nodes)

    def receiver_on(self, node: str) -> Process | None:
        """Return the receiver for a node on another machine; ``None`` if there is one already."""
        if node in self._nodes:
            return None
        self._nodes.add(node)
        files = {name: str((self._raw / f"{node}{suffix}").absolute()) for name, suffix in FILES.items()}
        config = self._raw / f"{node}.otlp-receiver.json"
        config.write_text(json.dumps({"node": node, **files}), encoding="utf-8")
        return Process(f"otlp.{node}.receiver", node, "cellbed_node.receiver", config.absolute(), stage=-1)

    def listen(self, node: str, place: Place) -> None:
        """Receive exports of a node's programs. place: the node's namespaces. Errors: :class:`ProgramError`."""
        if node in self._nodes:
            return
        self._nodes.add(node)
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "cellbed_node.receiver"],
                    stdin=theirs.fileno(),
                    env={**os.environ, **self._environment},
                    start_new_session=True,
                )
        try:
            listener = listening(place, ADDRESS, MOST_CONNECTIONS)
        except OSError as error:
            raise ProgramError(f"cannot receive OpenTelemetry at port {ADDRESS[1]} of {node}: {error}") from error
        with listener:
            message = json.dumps({"node": node, "file": str(self._raw / f"{node}{SUFFIX}")}).encode()
            try:
                socket.send_fds(self._control, [message], [listener.fileno()])
            except OSError as error:
                raise ProgramError(f"the receiver of OpenTelemetry has ended: {error.strerror}") from error

    def close(self) -> list[str]:
        """End the receiver after it has stored all received exports; return sentences about losses."""
        control, self._control = self._control, None
        refused: dict[str, dict[str, int]] = {}
        failed = []
        for path in self._raw.glob(f"*{FILES['lost']}"):
            # The file may be from another machine.
            with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
                for counts in inputs.json_value(path).values():
                    first = list(counts.items())[:MOST_REASONS]
                    its = {printable(str(reason), kept="")[:100]: int(count) for reason, count in first}
                    refused[path.name.removesuffix(FILES["lost"])] = its
        if control is not None and self._process is not None:
            with control:
                control.settimeout(PATIENCE_S)
                try:
                    control.shutdown(socket.SHUT_WR)
                    refused |= json.loads(control.recv(1 << 20))
                except (OSError, ValueError):
                    failed.append("the receiver of OpenTelemetry failed: its last spans may be missing")
                finally:
                    kill(self._process)
        return failed + [
            f"{node}: {count} exports of OpenTelemetry were lost: {reason}"
            for node, counts in sorted(refused.items())
            for reason, count in sorted(counts.items())
        ]


_URL = f"http://{ADDRESS[0]}:{ADDRESS[1]}"
_VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": _URL,
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{_URL}/v1/traces",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_SDK_DISABLED": "false",
}
"""Variables that make a program export its spans to the receiver."""


def environment(app: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program of an application whose own variables are `given`."""
    own = given.get("OTEL_RESOURCE_ATTRIBUTES", "")
    service = {} if "service.name=" in own else {"OTEL_SERVICE_NAME": app}
    attributes = ",".join(filter(None, [f"{APPLICATION}={app}", own]))
    return {
        # The variable for traces overrides a program's variable for all signals.
        **{name: value for name, value in _VARIABLES.items() if name.replace("TRACES_", "") not in given},
        "OTEL_BSP_SCHEDULE_DELAY": str(FLUSH_MS),
        **service,
        **given,
        "OTEL_RESOURCE_ATTRIBUTES": attributes,
    }


def overrides(program: str, given: Mapping[str, str]) -> list[str]:
    """Return sentences about a program's own variables that keep its spans from the receiver."""
    found = []
    for name, value in _VARIABLES.items():
        own = given.get(name, "").rstrip("/")
        precedes = name.replace("OTLP_", "OTLP_TRACES_")
        if own.replace("localhost", ADDRESS[0]) not in ("", value) and (precedes == name or not given.get(precedes)):
            found.append(
                f"{program}: its own {name} ({printable(own, kept='')[:100]}) replaces {value}: cellbed may get no "
                "spans of it; remove the variable"
            )
    return found

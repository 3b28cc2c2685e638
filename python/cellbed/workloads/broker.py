"""Mosquitto on a remote node: writes its configuration, starts it, waits until it serves, and ends with it.

Run as ``python -m cellbed.workloads.broker --config FILE.json``; :class:`Settings` describes the file.
"""

import os
import pwd
import select
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed import prctl
from cellbed.workloads import lifecycle
from cellbed.workloads.lifecycle import WorkloadError, announce

_START_PATIENCE = 10.0  # seconds

# Debian keeps daemons where the search path of an ordinary user does not look.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")

_CONFIGURATION = """\
# Written by cellbed for one run.
{listeners}
allow_anonymous true
persistence false

# Nagle's algorithm against delayed acknowledgements would add 40 ms to each message, and to nothing else.
set_tcp_nodelay true

# A full queue drops QoS 0 messages without a word. These limits are out of reach; 0, "no limit", loses all messages
# in some versions.
max_inflight_messages 65535
max_queued_messages 1000000

# No messages of the broker's own.
sys_interval 0

log_dest stderr
log_timestamp_format %Y-%m-%dT%H:%M:%S
{user}"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the launcher is told. addresses: where to listen; folder: for configuration and log."""

    node: str
    addresses: list[str]
    port: int
    folder: str


def configuration(addresses: list[str], port: int, user: str | None) -> str:
    """Mosquitto's configuration file. user: as whom to run when started as root."""
    return _CONFIGURATION.format(
        listeners="\n".join(f"listener {port} {address}" for address in addresses),
        # Started as root Mosquitto becomes the user 'mosquitto', who may not read a run's folder.
        user=f"user {user}\n" if user else "",
    )


def find_mosquitto() -> str | None:
    """Path of the broker's program, also where an ordinary user's search path does not lead."""
    return shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS]))


def main(config: dict[str, Any]) -> None:
    """Run the broker with the configuration of :class:`Settings` until standard input ends. Raises WorkloadError."""
    settings = Settings(**config)
    program = find_mosquitto()
    if program is None:
        raise WorkloadError("the MQTT broker Mosquitto is not installed: sudo apt install mosquitto")
    for address in settings.addresses:
        _check_free(address, settings.port)
    file = Path(settings.folder) / f"{settings.node}.mosquitto.conf"
    log = Path(settings.folder) / f"{settings.node}.mosquitto.log"
    user = pwd.getpwuid(0).pw_name if os.geteuid() == 0 else None
    try:
        file.write_text(configuration(settings.addresses, settings.port, user), encoding="utf-8")
        with log.open("ab") as output:
            broker = subprocess.Popen(
                [program, "-c", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=prctl.die_with_parent,
            )
    except OSError as error:
        raise WorkloadError(f"cannot start Mosquitto: {error}") from error
    try:
        _await_service(broker, settings, log)
        announce("ready")
        _supervise(broker, log)
    finally:
        _stop(broker)


def _check_free(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise WorkloadError(f"the MQTT broker cannot listen on {address} port {port}: {error.strerror}") from error


def _await_service(broker: "subprocess.Popen[bytes]", settings: Settings, log: Path) -> None:
    deadline = time.monotonic() + _START_PATIENCE
    for address in settings.addresses:
        while True:
            if broker.poll() is not None:
                raise _ended(broker, log)
            try:
                socket.create_connection((address, settings.port), timeout=1.0).close()
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise WorkloadError(
                        f"Mosquitto does not answer on {address} port {settings.port}: {error}"
                    ) from error
            time.sleep(0.002)


def _supervise(broker: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait for the end of standard input, or of the broker, which is an error."""
    commands = lifecycle.Commands()
    ended = os.pidfd_open(broker.pid)
    watched: list[Any] = [commands, ended]
    try:
        while not commands.closed:
            readable, _, _ = select.select(watched, [], [])
            if ended in readable:
                broker.wait()
                raise _ended(broker, log)
            commands.read()
    finally:
        os.close(ended)


def _ended(broker: "subprocess.Popen[bytes]", log: Path) -> WorkloadError:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    reason = lines[-1] if lines else "it left no word"
    return WorkloadError(f"Mosquitto ended by itself with status {broker.returncode}: {reason} (see {log})")


def _stop(broker: "subprocess.Popen[bytes]") -> None:
    # It keeps nothing, so there is nothing to wait for.
    broker.kill()
    broker.wait()


if __name__ == "__main__":
    lifecycle.run(main)

"""Mosquitto on a remote node: writes its configuration, starts it, waits until it serves, and ends with it.

Run as ``python -m cellbed.workloads.broker --config FILE.json``; :class:`Settings` describes the file.
"""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.testbed.process import find
from cellbed.workloads import lifecycle
from cellbed.workloads.lifecycle import WorkloadError
from cellbed.workloads.unmodified import run_until_stopped

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
    """The launcher's configuration. name: begins those of its files; addresses: where to listen; folder: for
    configuration and log."""

    name: str
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
    return find("mosquitto")


def main(config: dict[str, Any]) -> None:
    """Run the broker with the configuration of :class:`Settings` until standard input ends. Raises WorkloadError."""
    settings = Settings(**config)
    program = find_mosquitto()
    if program is None:
        raise WorkloadError("the MQTT broker Mosquitto is not installed: sudo apt install mosquitto")
    file = Path(settings.folder) / f"{settings.name}.mosquitto.conf"
    log = Path(settings.folder) / f"{settings.name}.mosquitto.log"
    user = pwd.getpwuid(0).pw_name if os.geteuid() == 0 else None
    try:
        file.write_text(configuration(settings.addresses, settings.port, user), encoding="utf-8")
    except OSError as error:
        raise WorkloadError(f"{file}: cannot be written: {error.strerror or error}") from error
    ports = [(address, settings.port) for address in settings.addresses]
    run_until_stopped("Mosquitto", [program, "-c", str(file)], ports, log)


if __name__ == "__main__":
    lifecycle.run(main)

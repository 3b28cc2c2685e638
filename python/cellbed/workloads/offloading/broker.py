"""The MQTT broker Mosquitto on a remote node."""

import os
import pwd
from pathlib import Path

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import find
from cellbed.testbed.programs.unmodified import Command, Ready

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


def command(name: str, node: str, addresses: list[str], port: int, raw: Path) -> Command:
    """Return the broker as a program of a run; its configuration is written into `raw`.

    name: begins the names of its files. addresses: where it listens. Errors: :class:`CellbedError` where Mosquitto is
    not installed.
    """
    program = find_mosquitto()
    if program is None:
        raise CellbedError("the MQTT broker Mosquitto is not installed: sudo apt install mosquitto")
    file = (raw / f"{name}.conf").absolute()
    user = pwd.getpwuid(0).pw_name if os.geteuid() == 0 else None
    file.write_text(configuration(addresses, port, user), encoding="utf-8")
    return Command(name, node, (program, "-c", str(file)), ready=Ready(port=port), vital=True)

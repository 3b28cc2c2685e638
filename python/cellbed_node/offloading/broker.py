"""The MQTT broker on a remote node: Mosquitto, or a small one where Mosquitto is not installed.

Run as ``python -m cellbed_node.offloading.broker --config FILE.json``; :func:`main` describes the file.
"""

import os
import pwd
import socket
import time
from pathlib import Path
from typing import Any

from cellbed_node import lifecycle
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.processes import die_with_parent, find

_SMALL = "Mosquitto is not installed (sudo apt install mosquitto): a small broker of cellbed passes the messages"
_CHECK_S = 0.01
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
    """Return Mosquitto's configuration. user: run as this user when started as root."""
    return _CONFIGURATION.format(
        listeners="\n".join(f"listener {port} {address}" for address in addresses),
        # Mosquitto started as root changes to the user 'mosquitto', who may not read a run's folder.
        user=f"user {user}\n" if user else "",
    )


def find_mosquitto() -> str | None:
    """Return the path of the broker's program, even outside an ordinary user's search path."""
    return find("mosquitto")


def main(config: dict[str, Any]) -> None:
    """Become the broker, and announce when it listens. config: ``addresses``, ``port``, and ``configuration``: path for
    the configuration file.

    A shell remains, which ends Mosquitto at the end of standard input, and ends with it. Errors: :class:`WorkloadError`
    if the small broker cannot listen.
    """
    program = find_mosquitto()
    if program is None:
        import asyncio

        from cellbed_node.offloading.small_broker import serve

        lifecycle.announce("note", text=_SMALL)
        try:
            asyncio.run(serve(config["addresses"], config["port"]))
        except OSError as error:
            raise WorkloadError(f"the broker cannot listen: {error.strerror or error}") from error
        return
    user = pwd.getpwuid(0).pw_name if os.geteuid() == 0 else None
    Path(config["configuration"]).write_text(configuration(config["addresses"], config["port"], user), encoding="utf-8")
    broker = os.getpid()
    if os.fork():
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.execv(program, [program, "-c", config["configuration"]])
    die_with_parent()
    while os.getppid() == broker:
        try:
            socket.create_connection((config["addresses"][0], config["port"])).close()
        except OSError:
            time.sleep(_CHECK_S)
            continue
        lifecycle.announce("ready")
        os.execv("/bin/sh", ["sh", "-c", 'while read -r _; do :; done; kill "$0"', str(broker)])


if __name__ == "__main__":
    lifecycle.run(main)

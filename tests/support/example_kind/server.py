"""The server of the kind."""

import socket
import threading
from typing import Any

from cellbed_node import lifecycle
from cellbed_node.lifecycle import announce


def main(config: dict[str, Any]) -> None:
    """Send every datagram back until standard input ends."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((config["address"], config["port"]))

    def serve() -> None:
        while True:
            server.sendto(*server.recvfrom(1 << 16))

    threading.Thread(target=serve, daemon=True).start()
    announce("ready")
    commands = lifecycle.Commands()
    while not commands.closed:
        commands.wait()


if __name__ == "__main__":
    lifecycle.run(main)

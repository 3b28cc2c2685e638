"""Put back what a shell changed in the network namespace that it was started from.

A program of its own, ``python -m cellbed.shell.restore NAME NAMESPACE``, because the registry of live runs keeps
commands: after a kill `cellbed clean` runs it.
"""

from __future__ import annotations

import sys

from cellbed.errors import CellbedError
from cellbed.shell import ip_forwarding, nat


def command(name: str) -> list[str]:
    """The command that undoes the shell called `name`, started from the current network namespace."""
    return [sys.executable, "-P", "-m", "cellbed.shell.restore", name, str(ip_forwarding.network_namespace())]


def restore(name: str, namespace: int) -> None:
    """Remove the shell's rules and release forwarding. Harmless when repeated or when nothing was changed.

    namespace: inode number of the network namespace; in any other nothing is done, since that one is gone with all its
    settings.
    """
    if namespace == ip_forwarding.network_namespace():
        nat.remove(name)
        ip_forwarding.release(name)
    else:
        ip_forwarding.forget(namespace)


if __name__ == "__main__":
    try:
        restore(sys.argv[1], int(sys.argv[2]))
    except (CellbedError, OSError) as error:
        sys.exit(f"error: cannot put the network settings back: {error}")

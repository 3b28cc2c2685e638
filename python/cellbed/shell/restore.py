"""Restore what a shell changed in the network namespace that it was started from.

Also a program, ``python -m cellbed.shell.restore NAME NAMESPACE``: `cellbed clean` runs it after a kill.
"""

from __future__ import annotations

import sys

from cellbed.errors import CellbedError
from cellbed.shell import ip_forwarding, nat


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
        sys.exit(f"error: cannot restore the network settings: {error}")

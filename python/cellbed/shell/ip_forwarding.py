"""Packet forwarding of the current network namespace, switched on while a shell needs it and put back after the last.

Several shells may need it at once, so the values from before the first one are kept in a file with the list of those
who hold it: whoever leaves last restores them. The file names the network namespace, because settings belong to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cellbed.testbed.state import boot_identifier, process_start, read_own

_SETTINGS = Path("/proc/sys/net")
_NAME = re.compile(r"ipv4/ip_forward|ipv6/conf/all/forwarding|ipv6/conf/(?!\.{1,2}/)[^/\0]+/accept_ra")
"""Settings that :func:`_wanted` names: a lease that names another one is not ours."""


def hold(holder: str, *, ipv6: bool) -> None:
    """Switch forwarding on for `holder`. A second call for the same holder changes nothing.

    Errors: ``OSError`` when a setting cannot be written.
    """
    with _lease() as lease:
        wanted = _wanted(ipv6)
        for name in wanted:
            before = (_SETTINGS / name).read_text(encoding="utf-8").strip()
            # Noted before it is done: a kill between the two costs nothing.
            lease["before"].setdefault(name, before)
        lease["holders"][holder] = {"process": os.getpid(), "start": process_start(os.getpid())}
        _save(lease)
        for name, value in wanted.items():
            _set(name, value)


def release(holder: str) -> None:
    """End what `holder` held; restore the settings when nobody alive holds them. Harmless when repeated."""
    with _lease() as lease:
        lease["holders"].pop(holder, None)
        for other, process in list(lease["holders"].items()):
            if process_start(process["process"]) != process["start"]:
                del lease["holders"][other]
        if lease["holders"]:
            _save(lease)
            return
        # Last set, first restored: a device takes router advertisements only once forwarding is off again.
        for name, value in reversed(list(lease["before"].items())):
            _set(name, value)
        _file().unlink(missing_ok=True)


def forget(namespace: int) -> None:
    """Drop what is kept for a network namespace that is gone, with everything that was set in it."""
    _file(namespace).unlink(missing_ok=True)


def network_namespace() -> int:
    """The inode number that identifies the current network namespace."""
    return Path("/proc/self/ns/net").stat().st_ino


def lease_folder() -> Path:
    """Where leases are kept: gone after a reboot, like the settings themselves, where the user may write there."""
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/cellbed")
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "cellbed" / "forwarding"


def _wanted(ipv6: bool) -> dict[str, str]:
    wanted = {"ipv4/ip_forward": "1"}
    if ipv6:
        # A device whose kernel forwards ignores router advertisements, and the routes learnt from them are dropped when
        # forwarding begins, unless accept_ra is 2 by then (ip-sysctl.rst): it comes before forwarding.
        for device in sorted((_SETTINGS / "ipv6" / "conf").iterdir()):
            accept = device / "accept_ra"
            if (
                device.name not in ("all", "default", "lo")
                and accept.exists()
                and accept.read_text(encoding="utf-8").strip() == "1"
            ):
                wanted[f"ipv6/conf/{device.name}/accept_ra"] = "2"
        wanted["ipv6/conf/all/forwarding"] = "1"
    return wanted


def _set(name: str, value: str) -> None:
    path = _SETTINGS / name
    # A device may have gone in the meantime.
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="utf-8").strip() != value:
            path.write_text(value, encoding="utf-8")


def _file(namespace: int | None = None) -> Path:
    return lease_folder() / f"forwarding-{namespace or network_namespace()}.json"


@contextlib.contextmanager
def _lease() -> Iterator[dict[str, Any]]:
    folder = lease_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "forwarding.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh: dict[str, Any] = {"boot": boot_identifier(), "before": {}, "holders": {}}
        try:
            lease = json.loads(read_own(_file())[0])
        except (FileNotFoundError, ValueError, RecursionError):
            lease = fresh
        yield lease if is_lease(lease) and lease["boot"] == fresh["boot"] else fresh


def is_lease(lease: Any) -> bool:
    """Whether what a file contains has the form of a lease, and no other settings than ours."""
    match lease:
        case {"boot": str(), "before": dict(before), "holders": dict(holders)}:
            settings = all(_NAME.fullmatch(name) and value in ("0", "1", "2") for name, value in before.items())
            return settings and all(
                isinstance(each, dict) and isinstance(each.get("process"), int) and "start" in each
                for each in holders.values()
            )
    return False


def _save(lease: dict[str, Any]) -> None:
    path = _file()
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(lease), encoding="utf-8")
    temporary.rename(path)

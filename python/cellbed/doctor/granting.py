"""`cellbed grant`: from its arguments to changes of the machine, reported line by line."""

from __future__ import annotations

import os
import pwd

from cellbed.doctor import changes
from cellbed.doctor.machine import Machine, executable

_NOBODY = 2**32 - 1
"""No user has this identifier or a larger one (credentials(7))."""


def grant_to(name: str | None, *, network: bool = False, dry_run: bool = False, take_back: bool = False) -> list[str]:
    """Grant a user the requirements of cellbed, or revert it; returns a line for each change.

    name: login name or numeric identifier; ``None`` for the user who called sudo. network: the network helper, too.
    Errors: :class:`cellbed.doctor.changes.GrantError`.
    """
    machine = Machine(user=_user(name, dry_run))
    if os.geteuid() != 0 and not dry_run:
        raise changes.GrantError(f"this needs root:\n  {_sudo(machine.user_name, take_back)}")
    if take_back:
        if dry_run:
            return ["--dry-run has nothing to show with --undo"]
        undone = [f"undone: {command}" for command in changes.undo(machine)]
        return undone or [f"nothing was granted to {machine.user_name}"]
    planned = changes.plan(machine, caller=changes.shell_of(machine.user, os.getppid()), network=network)
    if not planned:
        return [f"nothing to do: {machine.user_name} may do everything already"]
    if not dry_run:
        changes.do(planned, machine)
    lines = [f"{'would do' if dry_run else 'done'}: {change}" for change in planned]
    if changes.lifts_limits(planned, machine):
        lines.append(
            f"note: with control groups of version 1, processes of {machine.user_name} can leave CPU and memory limits "
            "that an administrator has set for them (not limits of processes)"
        )
    if any("systemctl" in change.do for change in planned):
        lines.append(f"should `cellbed doctor` still find no limits, {machine.user_name} has to log out and in again")
    if not dry_run:
        lines.append(f"to take it back: {_sudo(machine.user_name, True)}")
    return lines


def _user(name: str | None, dry_run: bool) -> int:
    """Return the numeric identifier of the user. In a container a user may have no login name."""
    if name is None:
        name = os.environ.get("SUDO_UID") if os.geteuid() == 0 else str(os.geteuid())
    if name is None:
        raise changes.GrantError(f"say to whom: {executable()} grant USER")
    try:
        user = pwd.getpwnam(name).pw_uid
    except KeyError:
        if not (name.isascii() and name.isdecimal() and int(name) < _NOBODY):
            raise changes.GrantError(f"this machine has no user called '{name}'") from None
        user = int(name)
    if user == 0 and not dry_run:
        raise changes.GrantError("root needs no grant; name an ordinary user")
    return user


def _sudo(name: str, take_back: bool) -> str:
    return f"sudo {executable()} grant {name}{' --undo' if take_back else ''}"

"""Who is granted what: from the command line's words to changes of the machine, told line by line."""

from __future__ import annotations

import os
import pwd

from cellbed.doctor import changes
from cellbed.doctor.machine import Machine, executable


def grant_to(name: str | None, *, dry_run: bool = False, take_back: bool = False) -> list[str]:
    """Grant a user what cellbed needs, or take it back, and say what was done.

    name: login name; ``None`` for the user who called sudo. Errors: :class:`cellbed.doctor.changes.GrantError`.
    """
    user = _user(name, dry_run)
    machine = Machine(user=user.pw_uid)
    if os.geteuid() != 0 and not dry_run:
        raise changes.GrantError(f"this needs root:\n  {_sudo(user.pw_name, take_back)}")
    if take_back:
        if dry_run:
            return ["--dry-run has nothing to show with --undo"]
        undone = [f"undone: {change}" for change in changes.undo(machine)]
        return undone or [f"nothing was granted to {user.pw_name}"]
    planned = changes.plan(machine, caller=changes.shell_of(user.pw_uid, os.getppid()))
    if not planned:
        return [f"nothing to do: {user.pw_name} may do everything already"]
    if not dry_run:
        changes.do(planned, machine)
    lines = [f"{'would do' if dry_run else 'done'}: {change}" for change in planned]
    if any(isinstance(change, changes.Command) for change in planned):
        lines.append(f"should `cellbed doctor` still find no limits, {user.pw_name} has to log out and in again")
    if not dry_run:
        lines.append(f"to take it back: {_sudo(user.pw_name, True)}")
    return lines


def _user(name: str | None, dry_run: bool) -> pwd.struct_passwd:
    if name is None:
        name = os.environ.get("SUDO_USER") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if name is None:
        raise changes.GrantError(f"say to whom: {executable()} grant USER")
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise changes.GrantError(f"this machine has no user called '{name}'") from None
    if found.pw_uid == 0 and not dry_run:
        raise changes.GrantError("root needs no grant; name an ordinary user")
    return found


def _sudo(name: str, take_back: bool) -> str:
    return f"sudo {executable()} grant {name}{' --undo' if take_back else ''}"

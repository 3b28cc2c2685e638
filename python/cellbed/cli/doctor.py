"""``cellbed doctor``: check whether this machine can run cellbed."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the checks as a JSON list.")] = False) -> None:
    """Check whether this machine can run cellbed, and print a remedy for each missing feature.

    The exit status is 0 if `cellbed run` works here, else 1.

    \b
    Example:
      cellbed doctor
    """
    import json
    import sys
    from dataclasses import asdict

    from cellbed.doctor import can_run, examine
    from cellbed.doctor.examine import show

    checks = examine()
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=2, ensure_ascii=False))
    else:
        show(checks, sys.stdout)
    raise typer.Exit(0 if can_run(checks) else 1)

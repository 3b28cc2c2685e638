"""A run in a separate process, so that the calling program is not changed: :func:`cellbed.run`.

A run forks its programs, so its process has one thread; it handles signals, and it can move to another control group. A
notebook allows none of that. Standard input contains a JSON object with the scenario and the options, standard output
JSON lines with the progress, the last of which is the outcome.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.support.errors import CellbedError, OperatingSystemError
from cellbed.support.interruption import keep_interruptions
from cellbed.support.prctl import die_with_parent
from cellbed.testbed.machine.cgroups import Enforcement, enforcement, enter_delegated_scope

if TYPE_CHECKING:
    from cellbed.measure.meter import Reading


class _Printer:
    """The listener that writes JSON lines."""

    def phase(self, text: str) -> None:
        _print({"phase": text})

    def note(self, text: str) -> None:
        _print({"note": text})

    def progress(self, elapsed_s: float, total_s: float, counts: dict[str, int]) -> None:
        pass

    def links(self, readings: Sequence[Reading]) -> None:
        pass


def main() -> None:
    """Run the scenario of standard input. Argument: ``--no-limits`` or ``--overcommit``."""
    keep_interruptions()
    limits = enforcement("--no-limits" in sys.argv, "--overcommit" in sys.argv)
    try:
        if limits:
            enter_delegated_scope()  # begins anew, so nothing was read before
        die_with_parent(signal.SIGTERM)
        sys.argv[0] = str(Path(sys.executable).with_name("cellbed"))  # in advice
        _print(_outcome(json.loads(sys.stdin.buffer.read()), limits))
    except KeyboardInterrupt:
        _print({"folder": None, "status": "interrupted", "disturbed": False, "error": None, "exit_code": 130})
    except (CellbedError, OSError) as error:
        problem = error if isinstance(error, CellbedError) else OperatingSystemError(error)
        _print(
            {
                "folder": None,
                "status": "failed",
                "disturbed": False,
                "error": _text(problem),
                "exit_code": problem.exit_code,
            }
        )


def _outcome(asked: dict[str, str], limits: Enforcement) -> dict[str, Any]:
    from cellbed.experiments.run import Options, exit_code, finish, run
    from cellbed.scenario import load_text
    from cellbed.testbed.plan import make_plan
    from cellbed.testbed.testbed import check

    path = Path(asked["folder"], "scenario.toml")
    scenario = load_text(asked["text"], path)
    plan = make_plan(scenario)
    if (profile := asked.get("virtual")) is not None:
        from cellbed.experiments.virtual import run as virtual

        options = virtual.Options(Path(asked["out"]), path.parent, bool(limits), Path(profile) if profile else None)
        outcome = virtual.run(asked["text"], scenario, plan, options, _Printer())
    else:
        check(scenario, asked["text"], str(path), running=True, limits=limits)
        outcome = run(asked["text"], scenario, plan, Options(Path(asked["out"]), bool(limits)), _Printer())
    finish(outcome, _Printer())
    found = {"folder": None, "status": outcome.status, "disturbed": outcome.disturbed, "exit_code": exit_code(outcome)}
    if outcome.folder is not None:
        found["folder"] = str(outcome.folder.absolute())
    return {**found, "error": None if outcome.error is None else _text(outcome.error)}


def _text(error: CellbedError) -> str:
    return str(error).replace("--no-limits", "limits=False").replace("--overcommit", "limits='overcommit'")


def _print(line: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the program that reads has ended
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

"""A run in a separate process, so that the calling program is not changed: :func:`cellbed.run`.

A run forks its programs, so its process must have one thread. The process handles signals and can move to another
control group. A notebook allows none of this. Standard input contains a JSON object with the scenario and the options.
Standard output contains JSON lines with the progress; the last line is the outcome.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.experiments.listener import Listener
from cellbed.support.errors import CellbedError, OperatingSystemError
from cellbed.support.interruption import keep_interruptions
from cellbed.testbed.machine.cgroups import Enforcement, enforcement, enter_delegated_scope
from cellbed_node.processes import die_with_parent

if TYPE_CHECKING:
    from cellbed.experiments.run import Outcome
    from cellbed.library import Run, RunError, Scenario


def run(
    scenario: Scenario | Mapping[str, Any] | Path | str,
    *,
    out: Path | str = "runs",
    limits: Enforcement = True,
    strict: bool = False,
    virtual: bool = False,
    profile: Path | str | None = None,
    progress: bool | Callable[[str], object] = False,
) -> Run:
    """Run a scenario in a separate process, as ``cellbed run``. Works from any thread, and in a notebook.

    Args:
        scenario: Scenario, its tables, or the path of its file.
        out: Parent of the run's folder.
        limits: Enforce CPU and memory limits; ``"overcommit"`` accepts nodes that exceed this machine.
        strict: Raise :class:`RunError` for a disturbed run.
        virtual: Predict the run in virtual time.
        profile: Profile of a prediction, or an earlier run; default: the measured one.
        progress: Print each phase, or call a function with it.

    Returns:
        The finished run.

    Raises:
        CellbedError: The run cannot start.
        RunError: The run failed after its start, or had no good reply.
        KeyboardInterrupt: Ctrl-C ended the run in order; a note has its folder.
    """
    from cellbed.library import load

    report = progress if callable(progress) else print if progress else None
    asked = describe(to_scenario(scenario), out)
    if virtual:
        asked["virtual"] = str(Path(profile).absolute()) if profile is not None else ""
    outcome, interrupted = _run_in_child(asked, limits, report)
    found = load(outcome["folder"]) if outcome["folder"] and (Path(outcome["folder"]) / "run.json").exists() else None
    if interrupted or outcome["status"] == "interrupted":
        stopped = KeyboardInterrupt()
        if found is not None:
            stopped.add_note(f"what was measured is in {found.path}")
        raise stopped
    if outcome["error"] is None and strict and outcome["disturbed"] and found is not None:
        outcome["error"] = "the machine disturbed the run: " + "; ".join(found.summary.disturbances)
    if outcome["error"] is not None or found is None:
        error = to_error(outcome)
        error.run = found
        raise error
    return found


def to_error(outcome: dict[str, Any]) -> RunError:
    """Return the error of a run that failed."""
    from cellbed.library import RunError

    error = RunError(outcome["error"] or f"the run is {outcome['status']}")
    error.lacking = outcome.get("lacking", False)
    return error


def to_scenario(given: Scenario | Mapping[str, Any] | Path | str) -> Scenario:
    """Return the scenario, the scenario of tables, or of a file. Errors: :class:`CellbedError`."""
    from cellbed.library import Scenario

    if isinstance(given, Scenario):
        return given
    return Scenario(given) if isinstance(given, Mapping) else Scenario.load(given)


def describe(scenario: Scenario, out: Path | str) -> dict[str, Any]:
    """Return the description of a run for the separate process. out: parent of the run's folder."""
    return {"text": scenario.text, "folder": str(scenario.folder.absolute()), "out": str(Path(out).absolute())}


def _run_in_child(
    asked: dict[str, Any], limits: Enforcement, report: Callable[[str], object] | None
) -> tuple[dict[str, Any], bool]:
    """Return the outcome of a run in a child process, and whether this process interrupted it."""
    interrupted = False
    child = ChildRun(asked, limits)
    try:
        while not child.ended:
            try:
                # At most 0.2 s: a library that handles signals may resume waits after a signal.
                for text in child.read(0.2):
                    if report is not None:
                        report(text)
            except KeyboardInterrupt:
                interrupted = True
                child.interrupt()
    finally:
        if not child.ended:
            child.interrupt()
        outcome = child.close()
    return outcome, interrupted


class ChildRun:
    """A run in a separate process (:func:`main`), which starts at once.

    asked: ``text`` of the scenario, ``folder`` of paths in it, and ``out``, the parent of the run's folder; ``virtual``
    for a prediction: the path of its profile, or empty; ``standing`` for a testbed: fields of its options. held: an
    open file that the process keeps open. up: folder of a testbed that is up. The process ends in order if this
    process, or the thread that started it, ends.
    """

    up: Path | None = None

    def __init__(self, asked: dict[str, Any], limits: Enforcement = True, held: int | None = None) -> None:
        options = {True: [], False: ["--no-limits"], "overcommit": ["--overcommit"]}[limits]
        command = [sys.executable, "-P", "-m", "cellbed.experiments.child", *options]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        with tempfile.TemporaryFile() as given:
            given.write(json.dumps(asked).encode())
            given.seek(0)
            # A separate process group: Ctrl-C reaches the process once, from here, in a terminal and in a notebook.
            self._child = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                process_group=0,
                pass_fds=[] if held is None else [held],
            )
        self._rest = b""
        self._outcome: dict[str, Any] = {}
        self.ended = False

    def fileno(self) -> int:
        """Return the descriptor that becomes readable at progress."""
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def read(self, timeout_s: float) -> list[str]:
        """Return the phases and notes of the next `timeout_s` seconds, as soon as there are any."""
        if not select.select([self], [], [], timeout_s)[0]:
            return []
        received = os.read(self.fileno(), 1 << 16)
        self.ended = not received
        *lines, self._rest = (self._rest + received).split(b"\n")
        found = []
        for line in map(json.loads, lines):
            if "status" in line:
                self._outcome = line
            if "up" in line:
                self.up = Path(line["up"])
            found += [line[key] for key in ("phase", "note") if key in line]
        return found

    def interrupt(self) -> None:
        """Ask the run to end in order."""
        self._child.send_signal(signal.SIGINT)

    def close(self) -> dict[str, Any]:
        """Wait for the process, and return the outcome. Errors: :class:`RunError` if there is no outcome."""
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._child.wait()
        with self._errors as errors:
            errors.seek(0)
            words = errors.read()[-2000:].decode(errors="replace").strip()
        if not self._outcome:
            from cellbed.library import RunError

            raise RunError(f"the process of the run ended with status {self._child.returncode}: {words}")
        return self._outcome


# In the child process.


class _Printer(Listener):
    """A listener that writes JSON lines."""

    def phase(self, text: str) -> None:
        _print({"phase": text})

    def note(self, text: str) -> None:
        _print({"note": text})


def main() -> None:
    """Run the scenario of standard input. Argument: ``--no-limits`` or ``--overcommit``."""
    keep_interruptions()
    limits = enforcement("--no-limits" in sys.argv, "--overcommit" in sys.argv)
    try:
        if limits:
            enter_delegated_scope()  # restarts the process: nothing has been read yet
        die_with_parent(signal.SIGTERM)
        sys.argv[0] = str(Path(sys.executable).with_name("cellbed"))  # the name in advice
        _print(_outcome(json.loads(sys.stdin.buffer.read()), limits))
    except KeyboardInterrupt:
        _print({"folder": None, "status": "interrupted", "disturbed": False, "error": None, "exit_code": 130})
    except (CellbedError, OSError) as error:
        problem = error if isinstance(error, CellbedError) else OperatingSystemError(error)
        _print(failure(_text(problem), problem.exit_code))


def failure(error: str, exit_code: int) -> dict[str, Any]:
    """Return the outcome of a run without a folder."""
    return {"folder": None, "status": "failed", "disturbed": False, "error": error, "exit_code": exit_code}


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome of a run as the last output line of a process."""
    from cellbed.experiments.run import exit_code

    return {
        "folder": str(outcome.folder.absolute()) if outcome.folder is not None else None,
        "status": outcome.status,
        "disturbed": outcome.disturbed,
        "error": _text(outcome.error) if outcome.error is not None else None,
        "exit_code": exit_code(outcome),
    }


def _outcome(asked: dict[str, Any], limits: Enforcement) -> dict[str, Any]:
    from cellbed.experiments.real_run import Options, run
    from cellbed.experiments.run import finish
    from cellbed.scenario import load_text
    from cellbed.testbed.plan import make_plan
    from cellbed.testbed.testbed import check

    path = Path(asked["folder"], "scenario.toml")
    scenario = load_text(asked["text"], path)
    plan = make_plan(scenario)
    if (profile := asked.get("virtual")) is not None:
        from cellbed.experiments.virtual import run as virtual

        ideal = virtual.Options(Path(asked["out"]), path.parent, bool(limits), Path(profile) if profile else None)
        outcome = virtual.run(asked["text"], plan, ideal, _Printer())
    else:
        try:
            check(scenario, asked["text"], str(path), running=True, limits=limits)
        except CellbedError as error:
            return failure(_text(error), error.exit_code) | {"lacking": True}
        standing = asked.get("standing", {})
        options = Options(
            Path(asked["out"]), bool(limits), on_up=lambda folder: _print({"up": str(folder)}), **standing
        )
        outcome = run(asked["text"], plan, options, _Printer())
        if standing:
            return as_json(outcome)
    finish(outcome, _Printer())
    return as_json(outcome)


def _text(error: CellbedError) -> str:
    return str(error).replace("--no-limits", "limits=False").replace("--overcommit", "limits='overcommit'")


def _print(line: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the reading program has ended
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

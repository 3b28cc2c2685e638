"""The command ``cellbed``: registers the verbs and turns errors into sentences."""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys

import typer

from cellbed.cli.verbs import group
from cellbed.support.interruption import keep_interruptions, was_interrupted
from cellbed.support.standard_streams import open_standard_streams

VERBS = {
    "run": "Run a scenario and report where the time of each request went.",
    "init": "Write a scenario from five questions.",
    "examples": "List the scenarios that come with cellbed, or print or copy one.",
    "report": "Rebuild the tables and the report of a run.",
    "compare": "Compare runs, with intervals of the differences.",
    "simulate": "Simulate flows in data centres and radio cells.",
    "sweep": "Run a scenario or simulation with many settings.",
    "reproduce": "Run a publication's experiments and compare its claims.",
    "import": "Convert a Compose file or manifests to a scenario.",
    "log": "Show or convert the packet log of a run.",
    "up": "Bring up a testbed that runs until `cellbed down`.",
    "down": "End a testbed brought up by `cellbed up`.",
    "status": "Show live testbeds and runs.",
    "ui": "Show live testbeds and finished runs in a browser.",
    "top": "Show live testbeds in the terminal.",
    "exec": "Run a command on a node.",
    "migrate": "Move a running service to another node.",
    "logs": "Print the output of an application's programs.",
    "tap": "Capture the packets of a link, for Wireshark.",
    "shell": "Run any program behind an emulated link.",
    "cc": "List, describe and check congestion control laws.",
    "mahimahi": "Install drop-in replacements for Mahimahi's commands.",
    "link": "Show and change the links of live runs, testbeds and shells.",
    "evaluate": "Compare replays with the recorded network.",
    "meter": "Show rate, queue, delay and drops of live links.",
    "record": "Record a live network, or run the recording server.",
    "recordings": "Check how closely recordings can be replayed.",
    "calibrate": "Measure how a network treats packet trains and saturation.",
    "web": "Record, import and show sites that scenarios replay.",
    "traces": "Manage the archive of traces and recordings.",
    "schema": "Print the JSON Schema of a kind of file.",
    "vm": "Build the disk image of VM nodes.",
    "doctor": "Check whether this machine can run cellbed.",
    "grant": "Allow an ordinary user to run with limits (as root).",
    "clean": "Clean up after killed runs.",
}
"""The verbs and their first lines of help."""
MODULES = {
    **dict.fromkeys(("report", "compare"), "results"),
    **dict.fromkeys(("up", "status", "meter", "exec", "logs", "tap", "migrate", "down"), "live"),
    "top": "ui",
    **dict.fromkeys(("doctor", "grant", "vm", "clean"), "machine"),
}
"""Modules of verbs whose module has another name."""
_LIBRARY = re.compile(r"(lib\S+\.so[.\d]*): cannot open shared object file")
_LIBRARIES = {"libstdc++.so.6": "libstdc++6", "libgomp.so.1": "libgomp1", "libgcc_s.so.1": "libgcc-s1"}
"""Debian packages of libraries that wheels take from the system."""

app = typer.Typer(
    cls=group("cellbed.cli", VERBS, MODULES),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import cellbed

        print(f"cellbed {cellbed.__version__}")
        raise typer.Exit


@app.callback()
def cellbed_(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Print the version."),
) -> None:
    """A software testbed for applications on cellular networks.

    \b
    Start here:
      cellbed doctor                      is this machine ready?
      cellbed run --example offload-lte   run a scenario, see its report
      cellbed init my.toml                write your own
      cellbed shell --up lte-suburban.up --down lte-suburban.down -- curl -sI https://example.org
    """


def main() -> None:
    """Run the command line. Convert errors of cellbed and of the operating system to a message and an exit status."""
    from cellbed.support.errors import CellbedError, OperatingSystemError

    # Imports make many permanent objects: collecting cycles after every 700 takes a tenth of a short command's time.
    gc.set_threshold(100_000)
    # No final collection of cycles: it takes as long as a short command's work.
    atexit.register(gc.freeze)
    keep_interruptions()
    open_standard_streams()
    try:
        try:
            app(prog_name="cellbed")
        except SystemExit as end:
            if _is_interruption(end):
                print("interrupted", file=sys.stderr)
            sys.stdout.flush()
            raise
    except CellbedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The program that reads our output has ended, as in `cellbed … | head`.
        _give_up_output()
        sys.exit(0)
    except OSError as error:
        if error.filename is None and _is_output_broken():
            print(f"error: standard output cannot be written: {error.strerror}", file=sys.stderr)
            _give_up_output()
        else:
            print(f"error: {OperatingSystemError(error)}", file=sys.stderr)
        sys.exit(OperatingSystemError.exit_code)
    except MemoryError:
        print("error: not enough memory: use smaller files, or raise the limit (ulimit -v)", file=sys.stderr)
        sys.exit(OperatingSystemError.exit_code)
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        if was_interrupted():
            print("interrupted", file=sys.stderr)
            sys.exit(130)
        if isinstance(error, ImportError) and (found := _LIBRARY.search(str(error))) is not None:
            package = _LIBRARIES.get(found[1], f"the package that contains {found[1]}")
            print(
                f"error: a Python package needs {found[1]}, which is missing: sudo apt install {package}",
                file=sys.stderr,
            )
            sys.exit(OperatingSystemError.exit_code)
        if not _is_of_polars(error):
            raise
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(OperatingSystemError.exit_code)


def _is_of_polars(error: BaseException) -> bool:
    """Return whether Polars raised an error: it reports a full disk as a failed computation, not as an OSError."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(error, polars.exceptions.PolarsError)


def _is_interruption(end: SystemExit) -> bool:
    """Return whether Ctrl-C ended a verb. The framework converts the interruption to an exit."""
    return end.__context__ is not None and isinstance(end.__context__.__cause__, KeyboardInterrupt)


def _is_output_broken() -> bool:
    """Return whether writing an empty line fails, too. If not, the empty line before the error message does no harm."""
    try:
        sys.stdout.flush()
        os.write(1, b"\n")
    except OSError:
        return True
    return False


def _give_up_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

"""The command line in this process: what it prints, and its exit status, are those that its users have.

A process of its own costs half a second. It is for what only a process has: signals, pipes, terminals, imports.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from cellbed.cli.main import main


def cellbed(
    *words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, status: int | None = None
) -> CompletedProcess[str]:
    """Run `cellbed` with these words, in this folder, with additional variables. status: the expected exit status."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["cellbed", *map(str, words)])
        # The command looks out for its first import of Polars, each time anew.
        patch.setattr(sys, "meta_path", [*sys.meta_path])
        patch.chdir(cwd or Path())
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
    code = ended.value.code or 0
    assert isinstance(code, int)
    assert status in (None, code), _text(out) + _text(err)
    return CompletedProcess(sys.argv, code, _text(out), _text(err))


def run_scenario(folder: Path, text: str, *options: object, status: int = 0) -> Path:
    """Run a scenario and return the folder of the run. folder: of the scenario and its runs."""
    (folder / "x.toml").write_text(text)
    cellbed("run", folder / "x.toml", *options, "--out", folder / "runs", status=status)
    (run,) = (folder / "runs").iterdir()
    return run


def run_apart(folder: Path, text: str, **programs: str) -> Path:
    """The folder of a real run without limits, in a separate process. programs: sources by name; the name in capitals
    stands for the file in the scenario."""
    for name, source in programs.items():
        (folder / f"{name}.py").write_text(source)
        text = text.replace(name.upper(), str(folder / f"{name}.py"))
    (folder / "x.toml").write_text(text)
    command = [sys.executable, "-P", "-m", "cellbed", "run", folder / "x.toml", "--out", folder / "runs", "--no-limits"]
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (folder / "output").write_text(done.stdout)
    (found,) = (folder / "runs").iterdir()
    return found


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def completions(line: str, cwd: Path) -> set[str]:
    """What a shell in this folder offers for the last word of `line`."""
    asked = {"_CELLBED_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return set(cellbed(cwd=cwd, env=asked).stdout.split())


def each_in_one_process(folder: Path, commands: Sequence[Sequence[object]], patience_s: float = 300) -> list[str]:
    """What each command printed, after its exit status, from one separate process with 4 GiB of addresses.

    Fails for tracebacks, raw control characters, and endless output, and where the commands take longer than 3 s each.
    patience_s: for all of them, besides.
    """
    words = json.dumps([[str(word) for word in command] for command in commands])
    driver = [sys.executable, "-P", "-c", _DRIVER, str(Path(__file__).parent), str(folder), words]
    try:
        done = subprocess.run(driver, stdout=subprocess.PIPE, timeout=patience_s + 3 * len(commands), check=False)
        printed, end = done.stdout, "died"
    except subprocess.TimeoutExpired as late:
        printed, end = late.stdout or b"", "hangs"
    found = [json.loads(line) for line in printed.splitlines() if line.endswith(b'"')]
    found += [end] * (len(found) < len(commands))
    faults = [(shown[-1200:], *command) for shown, command in zip(found, commands, strict=False) if _is_fault(shown)]
    assert not faults, f"{len(faults)} of {len(found)}: {faults[:20]}"
    return found


def _is_fault(shown: str) -> bool:
    raw = any((each < " " and each not in "\n\t") or "\x7f" <= each < "\xa0" or each == "\u202e" for each in shown)
    return raw or len(shown) > 60_000 or shown in ("hangs", "died") or "Traceback" in shown


_DRIVER = """
import json, resource, sys, traceback
from pathlib import Path
sys.path.insert(0, sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from in_process import cellbed
from cellbed_node import inputs
inputs.PATIENCE = 0.5
for words in json.loads(sys.argv[3]):
    try:
        done = cellbed(*words, cwd=Path(sys.argv[2]))
        shown = f"{done.returncode}\\n{done.stdout}{done.stderr}"
    except BaseException:
        shown = traceback.format_exc()
    print(json.dumps(shown), flush=True)
"""

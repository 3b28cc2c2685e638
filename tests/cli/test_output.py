"""What commands write, and where: files, terminals, and what is neither."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cellbed.archive import Archive
from cellbed.support.whole_files import write_whole
from in_process import cellbed
from predicted_runs import make_run
from run_commands import command, run_process


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    came: list[str] = []
    reader = threading.Thread(target=lambda: came.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(pipe, lambda file: file.write_text("through"))
    reader.join()
    assert came == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")

    def fail(file: Path) -> None:
        file.write_text("half")
        raise OSError(5, "broke")

    with pytest.raises(OSError, match="broke"):
        write_whole(tmp_path / "kept", fail)
    assert (tmp_path / "kept").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("words", [["ls", "--json"], ["show", "lte-suburban"]])
def test_a_full_disk_behind_standard_output_is_a_line(archive: Archive, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_process("traces", *words, stdout=full)
    assert done.returncode == 1
    assert done.stderr.strip() == "error: standard output cannot be written: No space left on device"


def test_an_interrupted_export_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    cellbed("traces", "generate", "5g-netherlands", "--duration", "300 s", "--name", "long", status=0)
    out = tmp_path / "out"
    words = command("traces", "export", "long", "--format", "mahimahi", "-o", out / "long")
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (out.is_dir() and any(out.iterdir())) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate()
    # At the end of the process, the signal has its default effect again.
    assert (process.returncode, reported) == (130, "interrupted\n") or process.returncode in (0, -signal.SIGINT)
    # Quicker than the signal, or than the end of the process, it is whole.
    left = [path.name for path in out.iterdir()]
    assert left == ["long"] * (out / "long" / "README").exists()
    assert left or process.returncode != 0


INTERRUPTED = """
import signal
import time
import weakref
from cellbed.support.interruption import keep_interruptions
keep_interruptions()
import polars as pl
{handler}

def interrupt(column):
    signal.raise_signal(signal.SIGINT)
    print("continued")
    return column

class Thing:
    def __del__(self):
        if {place!r} == "__del__":
            interrupt(None)

try:
    if {place!r} == "polars":
        pl.select(pl.lit(1).map_batches(interrupt, return_dtype=pl.Int32))
    thing = Thing()
    if {place!r} == "weakref":
        weakref.finalize(thing, interrupt, None)
    del thing
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("place", ["polars", "weakref", "__del__"])
@pytest.mark.parametrize(
    "handler", ["", "from cellbed.testbed.machine.process import Interruption; Interruption().__enter__()"]
)
def test_an_interrupt_where_python_drops_exceptions_arrives_afterwards(place: str, handler: str) -> None:
    program = INTERRUPTED.format(place=place, handler=handler)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "continued\ninterrupted\n", "")


WAITING = """
import os, signal
from cellbed.support.interruption import wait_with_handlers
reader, writer = os.pipe()
signal.signal(signal.SIGALRM, lambda *_: os.write(writer, b"x"))
with wait_with_handlers() as wait:
    for number in range(5000):
        signal.setitimer(signal.ITIMER_REAL, (1 + number % 100) * 1e-6)
        wait(reader)
        os.read(reader, 1)
"""


def test_the_handler_of_a_signal_runs_during_a_wait_even_if_the_signal_comes_just_before_it() -> None:
    subprocess.run([sys.executable, "-c", WAITING], check=True)


_A_FILE, _A_NEW_FOLDER = {"file", "link", "new"}, {"empty", "link", "new"}
# Verbs with an output, and the targets that they can write to; none where a run or a network would be needed.
OUTPUTS: dict[str, tuple[list[str], set[str]]] = {
    "csv": (["log", "convert", "RUN", "--to", "csv"], _A_FILE),
    "export": (["traces", "export", "lte-suburban", "--format", "mahimahi"], _A_NEW_FOLDER),
    "record": (["record", "127.0.0.1:9", "--secret", "SECRET"], set()),
    "run": (["run", "scenario.toml"], set()),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the verbs read."""
    folder = tmp_path_factory.mktemp("inputs")
    make_run(folder / "RUN", duration=1, rate=3)
    (folder / "SECRET").write_text("x" * 64)
    (folder / "SECRET").chmod(0o600)
    text = (Path(__file__).parents[2] / "scenarios" / "smoke.toml").read_text()
    (folder / "scenario.toml").write_text(text)
    return folder


@pytest.mark.parametrize("verb", OUTPUTS)
def test_any_target_is_written_or_refused_with_a_line(
    verb: str, archive: Archive, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellbed.support.whole_files.PATIENCE", 0)
    words, works = OUTPUTS[verb]
    (folder := tmp_path / "targets").mkdir()
    at = {name: folder / name for name in ("pipe", "folder", "empty", "file", "link", "full", "new")}
    os.mkfifo(at["pipe"])
    (at["folder"] / "kept").mkdir(parents=True)
    at["empty"].mkdir()
    at["file"].write_text("old")
    at["link"].symlink_to(folder / "far")
    at["full"].symlink_to("/dev/full")
    at |= {"below": at["file"] / "x", "unwritable": Path("/proc/x")}
    # The recorder finds the last two only after it has asked the server.
    for name in at if works else ("pipe", "file", "link", "full"):
        before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
        arguments = [*words, "--out", str(at[name])]
        # The recorder prints past Python's streams.
        done = run_process(*arguments, cwd=inputs) if verb == "record" else cellbed(*arguments, cwd=inputs)
        after = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
        if name in works:
            assert done.returncode == 0, done.stderr
            assert at[name].exists()
            assert at["link"].is_symlink()
            assert not [path for path in after if path.name.startswith(".")], name
        else:
            problem = done.stderr[done.stderr.index("error: ") :]
            assert done.returncode in (1, 2)
            assert problem.count("\n") == 1
            assert str(at[name]) in problem
            assert after == before, name

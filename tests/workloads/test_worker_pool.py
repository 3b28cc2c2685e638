"""Worker processes: what becomes of them when they are left, interrupted or killed, and that they outlive nobody."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cellbed.support.errors import CellbedError
from cellbed.support.worker_pool import WorkerPool

KILLED = CellbedError("a process that slept was killed")


def sleep(began: str) -> None:
    """Say which process it is, as soon as the file can be seen whole, and stay."""
    Path(began).with_suffix(".new").write_text(str(os.getpid()))
    Path(began).with_suffix(".new").rename(began)
    time.sleep(600)


def number_in(path: Path) -> int:
    for _ in range(20_000):
        if path.exists():
            return int(path.read_text())
        time.sleep(0.01)
    raise TimeoutError(path)


def is_gone(pid: int) -> bool:
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=200)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def test_an_error_ends_the_processes_of_the_pool_and_no_others(tmp_path: Path) -> None:
    others = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    others.start()
    pids, calls = [], []

    def fail_while_they_sleep() -> None:
        with WorkerPool(1, KILLED) as pool:
            calls.extend(pool.submit(sleep, str(tmp_path / name)) for name in ("began", *["never"] * 5))
            pids.append(number_in(tmp_path / "began"))
            raise KeyError

    try:
        with pytest.raises(KeyError):
            fail_while_they_sleep()
        assert is_gone(pids[0])
        assert all(call.done() for call in calls)
        assert not (tmp_path / "never").exists()
        assert others.is_alive()
    finally:
        others.kill()
        others.join()


def test_the_death_of_a_process_is_told_in_the_words_of_who_uses_it(tmp_path: Path) -> None:
    pids = []

    def lose_one_of_two() -> None:
        with WorkerPool(2, KILLED) as pool:
            both = [pool.submit(sleep, str(tmp_path / name)) for name in ("one", "two")]
            pids.extend(number_in(tmp_path / name) for name in ("one", "two"))
            os.kill(pids[0], signal.SIGKILL)
            both[1].result()

    with pytest.raises(CellbedError, match="a process that slept was killed"):
        lose_one_of_two()
    assert all(is_gone(pid) for pid in pids)


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from cellbed.support.worker_pool import WorkerPool
from tests.workloads.test_worker_pool import KILLED, sleep
if __name__ == "__main__":
    with WorkerPool(1, KILLED) as pool:
        pool.submit(sleep, {began!r}).result()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_they_see_no_ctrl_c_and_outlive_nobody(tmp_path: Path, how: signal.Signals) -> None:
    began, program = tmp_path / "began", tmp_path / "program.py"
    program.write_text(PROGRAM.format(folder=str(Path(__file__).parents[2]), began=str(began)))
    # However these tests were started: a shell's background jobs ignore SIGINT.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", f"{heed}import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    worker = number_in(began)
    os.kill(worker, signal.SIGINT)
    assert psutil.pid_exists(worker)
    assert process.poll() is None
    # As a terminal does, to all of them.
    os.killpg(process.pid, how) if how == signal.SIGINT else os.kill(process.pid, how)
    _, said = process.communicate(timeout=200)
    assert is_gone(worker)
    assert said.count("Traceback") == (how == signal.SIGINT)
    assert ("KeyboardInterrupt" in said) == (how == signal.SIGINT)

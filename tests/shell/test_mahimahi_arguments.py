"""What Mahimahi's commands say before anything is set up: usage, traces, queues, rates; and their installation."""

import os
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cellbed.cli.mahimahi import app
from cellbed.shell.mahimahi.__main__ import COMMANDS, main
from cellbed.shell.mahimahi.arguments import UsageError, constant_trace, parse_queue, read

LINK = ["mm-link", "6mbit", "6mbit"]


def test_help_is_shown_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        said = capsys.readouterr()
        assert "usage: " in said.out.lower()
        assert said.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["mm-delay"],
        ["mm-delay", "soon", "true"],
        ["mm-delay", "--", "-5", "true"],
        ["mm-delay", "inf", "true"],
        ["mm-loss", "uplink"],
        ["mm-loss", "up", "0.1", "true"],
        ["mm-loss", "uplink", "1.1", "true"],
        ["mm-onoff", "uplink", "1"],
        ["mm-onoff", "uplink", "0", "0", "true"],
        ["mm-intermittent", "sideways", "1", "1", "true"],
        ["mm-link", "6mbit"],
        ["mm-link", "--nonsense", "6mbit", "6mbit"],
        # The beginning of two options.
        ["mm-link", "--uplink-q=infinite", "6mbit", "6mbit"],
        ["mm-meter", "--once"],
    ],
)
def test_a_command_line_that_cannot_be_read_is_answered_with_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"Usage: {arguments[0]} " in said.err


@pytest.mark.parametrize("posix", [None, "1"])
def test_the_options_of_mm_link_stand_anywhere_before_two_dashes(
    posix: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if posix:
        monkeypatch.setenv("POSIXLY_CORRECT", posix)
    options = {"long": ("uplink-log=", "once"), "short": {"u": "uplink-log"}, "anywhere": True}
    line = read(["up", "--onc", "down", "-u", "x.log", "--", "cmd", "--once"], "usage", 2, **options)  # type: ignore[arg-type]
    assert line.words == ("up", "down")
    assert line.options == {"once": "", "uplink-log": "x.log"}
    assert line.command == ("cmd", "--once")
    assert os.environ.get("POSIXLY_CORRECT") == posix


def test_the_others_leave_what_follows_the_first_word_to_the_command() -> None:
    line = read(["--seed", "3", "5", "cmd", "--seed=4", "--", "--help"], "usage", 1)
    assert line.options == {"seed": "3"}
    assert line.command == ("cmd", "--seed=4", "--", "--help")
    assert read(["5", "--", "cmd"], "usage", 1).command == ("cmd",)
    with pytest.raises(UsageError):
        read([], "usage", 1)


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n0\n", b"5\n3\n", b"1.5\n", b"-1\n", b"one\n", b"9" * 30, b"\0\xff\n", b"# a comment\n\n"],
)
def test_a_malformed_trace_is_one_line_and_leaves_nothing(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "bad.up"
    trace.write_bytes(content)
    log = tmp_path / "up.log"
    assert main(["mm-link", str(trace), "6mbit", f"--uplink-log={log}", "--", "echo", "started"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"mm-link: {trace}")
    assert said.err.count("\n") == 1
    assert not log.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--uplink-queue=fifo"], "--uplink-queue: unknown queue type 'fifo'"),
        (["--uplink-queue=droptail"], 'needs a limit: "packets=NUMBER"'),
        (["--downlink-queue=drophead", "--downlink-queue-args=target=5"], "--downlink-queue-args"),
        (["--uplink-queue=codel", "--uplink-queue-args=packets=5"], '"target=MS" and "interval=MS"'),
        (["--uplink-queue=pie", "--uplink-queue-args=packets=5"], '"qdelay_ref=MS" and "max_burst=MS"'),
        (["--uplink-queue=infinite", "--uplink-queue-args=packets=5"], "takes no arguments"),
        (["--uplink-queue=droptail", "--uplink-queue-args=packets=many"], "cannot parse 'packets=many'"),
        (["--uplink-queue=droptail", "--uplink-queue-args=packets=5,log_file=bytes.log"], "number after 'bytes'"),
        (["--uplink-queue=droptail", f"--uplink-queue-args=bytes={'9' * 5000}"], "cannot parse 'bytes=999"),
        (["--uplink-queue=droptail", "--uplink-queue-args=bytes=4294967296"], "needs a limit"),
        (["--uplink-log=/no/such/folder/up.log"], "/no/such/folder/up.log: cannot write the log"),
        (["--seed=x"], "--seed"),
    ],
)
def test_what_mm_link_cannot_do_is_one_line(
    options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LINK, *options, "--", "echo", "started"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert reason in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "read", "remark"),
    [
        ("bytes=100KB", {"bytes": 100}, "'bytes=100KB' read as bytes=100"),
        ("bytes=5000000000", {"bytes": 705032704}, "'bytes=5000000000' read as bytes=705032704"),
        ("packets=5,packets=7", {"packets": 5}, "'packets=7' read as packets=5"),
        ("max_packets=5", {"packets": 5}, "'max_packets=5' read as packets=5"),
        ("packets=250,foo=3", {"packets": 250}, "'foo=3' ignored"),
        ("packets=1500,log_file=/tmp/queue.log", {"packets": 1500}, "'log_file=/tmp/queue.log' ignored"),
        ('"packets=9,target=abc,log_file=q.log,"', {"packets": 9}, "'log_file=q.log' ignored"),
    ],
)
def test_queue_arguments_are_read_as_the_original_reads_them(text: str, read: dict[str, int], remark: str) -> None:
    queue = parse_queue("droptail", text, "--uplink-queue", 1)
    assert queue.config == {"kind": "droptail", **read}
    assert len(queue.remarks) == 1
    assert remark in queue.remarks[0]


@pytest.mark.parametrize("text", ["0.5kbit", "200gbit"])
def test_a_rate_out_of_range_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mm-link", text, "6mbit", "--", "echo", "started"]) == 1
    assert capsys.readouterr().err == f"mm-link: '{text}' is out of range: write 1kbit to 100gbit\n"


@settings(max_examples=50, deadline=None)
@given(st.integers(10_000, 10**9))
def test_a_constant_rate_is_met(rate: int) -> None:
    stamps = [int(line) for line in constant_trace(Fraction(rate)).splitlines()]
    assert stamps == sorted(stamps)
    assert len(stamps) * 12_000_000 / stamps[-1] == pytest.approx(rate, rel=1e-5)


def test_launchers_are_installed_and_taken_away(tmp_path: Path) -> None:
    folder = tmp_path / "bin"

    def call(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*arguments, "--prefix", str(tmp_path)])
        return done.exit_code, f"{done.output}{done.exception or ''}"

    assert "not on your PATH" in call("install")[1]
    assert sorted(path.name for path in folder.iterdir()) == sorted(COMMANDS)
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())
    said = subprocess.run([folder / "mm-delay"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr.splitlines()[0]) == (1, "Usage: mm-delay MILLISECONDS|FILE [COMMAND...]")
    # A program of somebody else's is neither replaced nor removed.
    (folder / "mm-link").write_text("#!/bin/sh\n")
    status, text = call("install")
    assert status != 0
    assert f"{folder / 'mm-link'} exists and was not installed by cellbed" in text
    assert call("uninstall")[0] == 0
    assert [path.name for path in folder.iterdir()] == ["mm-link"]
    assert call("install", "--force")[0] == 0
    assert call("uninstall")[0] == 0
    assert list(folder.iterdir()) == []


def test_launchers_that_cannot_be_put_there_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "bin").write_text("")
    done = CliRunner().invoke(app, ["install", "--prefix", str(tmp_path)])
    assert "cannot write" in str(done.exception)

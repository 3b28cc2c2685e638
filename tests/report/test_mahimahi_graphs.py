"""mm-throughput-graph and mm-delay-graph: statistics worked by hand, and by the rules for any log; pictures; errors."""

import io
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.shell.mahimahi import graphs
from cellbed.shell.mahimahi.graphs import read_log

HEADER = """\
# mahimahi mm-link (Uplink) [a.up] > up.log
# command line: 'mm-link' 'a.up' 'a.down'
# queue: droptail [packets=2]
# init timestamp: 1700000000000
# base timestamp: 10
"""
LOG = HEADER + """\
10 # 1504
12 + 1504
12 + 504
12 + 104
12 d 1 104
20 # 1504
20 - 1504 8
25 + 1504
30 # 1504
30 - 504 18
1010 # 1504
1010 - 1504 985
"""  # fmt: skip


def run(name: str, arguments: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    code = f"import sys; from cellbed.shell.mahimahi import graphs; sys.exit(graphs.{name}())"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], input=stdin, capture_output=True, check=False, timeout=300
    )


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def test_statistics_worked_by_hand() -> None:
    # 0 to 1000 ms: four opportunities, four arrivals, three departures. Delays 8, 18, 985; ⌊0.95 · 3⌋ = 2 is the last.
    # Sent at 2 (8 and 18 ms: 8 is the signal's) and at 15 ms; from 3 to 14 the signal waits for the latter: 997 … 986,
    # and 985. Of 14 values number ⌊0.95 · 14⌋ = 13 is 997.
    log = read_log(io.BytesIO(LOG.encode()), "x")
    reported = log.figures()
    assert (reported.median_delay, reported.delay_95, reported.signal_delay_95) == (18, 985, 997)
    bins = log.bins(500)
    assert bins.first == 0
    assert bins.capacity.tolist() == pytest.approx([3 * 1504 * 8 / 0.5 / 1e6, 0, 1504 * 8 / 0.5 / 1e6])
    assert bins.egress.tolist() == pytest.approx([2008 * 8 / 0.5 / 1e6, 0, 1504 * 8 / 0.5 / 1e6])


def test_words_are_the_originals_and_pictures_have_axes_units_and_a_legend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "up.log"
    path.write_text(LOG)
    delays = "95th percentile per-packet queueing delay: 985 ms\n95th percentile signal delay: 997 ms\n"
    rates = "Average capacity: 0.05 Mbits/s\nAverage throughput: 0.03 Mbits/s (58.4% utilization)\n"
    throughput = {"time (s)", "throughput (Mbit/s, bins of 500 ms)", "Capacity (mean 0.05 Mbit/s)", "0.2", "0.4"}
    throughput |= {"Traffic ingress (mean 0.03 Mbit/s)", "Traffic egress (mean 0.03 Mbit/s)"}
    delay = {"time (s)", "delay (ms)", "Signal delay", "Per-packet delay", "100", "1000"}
    delay |= {"95th percentile signal delay (997 ms)", "95th percentile per-packet delay (985 ms)"}
    for name, arguments, said, labels in (
        ("throughput_graph", ["500"], rates + delays, throughput),
        ("delay_graph", [], delays, delay),
    ):
        from_pipe = run(name, arguments, LOG.encode())
        assert (from_pipe.returncode, from_pipe.stderr.decode()) == (0, said)
        assert getattr(graphs, name)([*arguments, str(path)]) == 0
        from_file = capsys.readouterr()
        assert (from_file.out, from_file.err) == (from_pipe.stdout.decode(), said)
        assert from_file.out.startswith("<svg ")
        assert labels <= set(texts(from_file.out))


def by_the_rules(lines: list[str]) -> tuple[float, float, float, int, int]:
    """Capacity, ingress, throughput (Mbit/s) and both percentiles (ms), as their definitions read."""
    rows = [(int(line.split()[0]), *line.split()[1:]) for line in lines]
    seconds = (max(row[0] for row in rows) - rows[0][0]) / 1000
    rates = [sum(int(row[2]) for row in rows if row[1] == kind) * 8 / seconds / 1e6 for kind in "#+-"]
    sent = [(row[0] - int(row[3]), int(row[3])) for row in rows if row[1] == "-"]
    delays = sorted(delay for _, delay in sent)
    first, last = min(sent)[0], max(sent)[0]
    signal = sorted(
        min((s - at + d for s, d in sent if s == min(x for x, _ in sent if x >= at)), default=0)
        for at in range(first, last + 1)
    )
    return (*rates, delays[int(0.95 * len(delays))], signal[int(0.95 * len(signal))])  # type: ignore[return-value]


@settings(max_examples=100, deadline=None)
@given(
    made=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from("+#-d"), st.integers(1, 1504), st.integers(0, 120)),
        min_size=2,
        max_size=80,
    ).filter(lambda rows: any(row[1] == "-" for row in rows) and any(row[0] for row in rows[1:])),
    base=st.integers(0, 50),
    spaces=st.booleans(),
)
def test_statistics_of_any_log_are_those_of_the_rules(
    made: list[tuple[int, str, int, int]], base: int, spaces: bool
) -> None:
    lines, now = [], base + 120
    for step, kind, size, delay in made:
        now += step
        last = {"-": f" {delay}", "d": " 700"}.get(kind, "")
        lines.append(f"{now} {kind} {size}{last}")
    expected = by_the_rules(lines)
    separator = "  " if spaces else " "  # the original takes any white space
    text = f"# base timestamp: {base}\n" + "".join(line.replace(" ", separator) + "\n" for line in lines)
    log = read_log(io.BytesIO(text.encode()), "x")
    reported = log.figures()
    found = (reported.capacity, reported.ingress, reported.throughput, reported.delay_95, reported.signal_delay_95)
    assert found == pytest.approx(expected)
    used = {(int(line.split()[0]) - base) // 10 for line in lines if line.split()[1] != "d"}
    if len(used) > 1:  # else all is in one bin
        bins = log.bins(10)
        assert sum(bins.egress) * 10 * 1000 == pytest.approx(
            reported.throughput * (reported.end - reported.begin) * 1e6
        )


def test_a_log_without_capacity_has_no_utilisation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "up.log").write_text("".join(line + "\n" for line in LOG.splitlines() if " # " not in line))
    graphs.throughput_graph(["100", str(tmp_path / "up.log")])
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["Average capacity: 0.00 Mbits/s", "Average throughput: 0.03 Mbits/s"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOG.replace("20 # 1504", "20 # x"), "line 11: malformed event; expected TIME KIND BYTES, as in '17 + 1504'"),
        (LOG.replace("12 d 1 104", "12 x 1 104"), "line 10: unknown kind of event; expected +, #, - or d"),
        (LOG.replace("20 - 1504 8", "20 - 1504"), "log, line 12: missing field, the delay in ms: '20 - 1504'"),
        (LOG.replace("20 - 1504 8", "20 - 1504 21"), "log, line 12: delay longer than the time of the departure"),
        (LOG.replace("# base timestamp: 10\n", ""), "log: not a log of mm-link: no line '# base timestamp: MS'"),
        (LOG + HEADER, "log, line 22: second base timestamp; write one log at a time"),
        (HEADER + "12 + 1504\n12 - 1504 0\n", "log: all events in one millisecond, no rates to draw"),
        (LOG + "999999999999 # 1504\n", "log: the log spans 277,778 hours, too long to draw; check its times"),
        ("\x89PNG\r\n\x1a\n\x00\xff\n", "log, line 1: malformed event"),
        ("", "log: no departures, nothing to draw"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log").write_text(text, encoding="latin-1")
    for command, arguments in ((graphs.throughput_graph, ["10", "log"]), (graphs.delay_graph, ["log"])):
        assert command(arguments) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""


def test_a_wrong_call_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["x"], ["0"], ["-5"], ["1.5"], ["500", "a", "b"]):
        assert graphs.throughput_graph(arguments) == 2
        assert capsys.readouterr().err.startswith("Usage: mm-throughput-graph MS_PER_BIN [FILENAME]")
    assert graphs.delay_graph(["a", "b"]) == 2
    assert graphs.delay_graph([str(tmp_path / "none")]) == 2
    assert "none: cannot read the log: No such file or directory" in capsys.readouterr().err
    (tmp_path / "up.log").write_text(LOG)
    assert graphs.throughput_graph(["5000", str(tmp_path / "up.log")]) == 2
    assert "bins of 5000 ms are too wide for the length of this log" in capsys.readouterr().err

"""What is drawn while a run goes on, on a terminal and in a pipe."""

import re
from pathlib import Path

import pytest

from cellbed.cli.progress import Live, Plain
from cellbed.measure.meter import Reading
from run_commands import run_on_a_terminal

READINGS = [
    Reading("mobile-0.uplink", 7_950_000.0, 123_400, 83, 81.25, 130.0, {"queue-full": 12, "loss": 1}),
    Reading("mobile-0.downlink", 0.0, 0, 0, None, None, {}),
]


class Screen:
    """As much of a terminal as the drawing uses: text, carriage return, line feed, cursor up, erase."""

    def __init__(self) -> None:
        self.rows = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for match in re.finditer(r"\x1b\[(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)", text):
            count, code, control, plain = match.groups()
            if code == "A":
                self.row -= int(count or 1)
            elif code == "J":
                self.rows = [*self.rows[: self.row], self.rows[self.row][: self.column]]
            elif code == "K":
                self.rows[self.row] = self.rows[self.row][: self.column]
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self.row, self.column = self.row + 1, 0
                self.rows += [""] * (self.row + 1 - len(self.rows))
            elif plain:
                line = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = line[: self.column] + plain + line[self.column + len(plain) :]
                self.column += len(plain)


def test_links_are_drawn_below_the_bar_and_leave_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellbed.cli.progress.time.monotonic", iter(range(100)).__next__)
    monkeypatch.setenv("COLUMNS", "100")
    live, screen = Live(), Screen()
    live.phase("running for 5 s")
    for second in range(1, 4):
        live.progress(second, 5.0, {"sent": second, "completed": 0})
        live.links(READINGS)
    live.progress(4.0, 5.0, {"sent": 4, "completed": 0})
    screen.feed(capsys.readouterr().err)
    assert len(screen.rows) == 5
    assert "4 requests sent" in screen.rows[1]
    assert "Mbit/s" in screen.rows[2]
    for part in ("mobile-0.uplink", "7.95", "123.4", "81.2", "130.0", "12 queue-full, 1 loss"):
        assert part in screen.rows[3]
    assert "mobile-0.downlink" in screen.rows[4]
    live.phase("writing the report")
    screen.feed(capsys.readouterr().err)
    assert [row[:30].strip() for row in screen.rows[2:]] == ["writing the report", ""]
    assert "4 requests sent" in screen.rows[1]


def test_in_a_pipe_the_links_are_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    plain = Plain()
    for tenth in range(31):
        plain.progress(tenth / 10, 5.0, {})
        plain.links(READINGS)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["1 s", "2 s", "3 s"]
    assert "mobile-0.uplink 7.95 Mbit/s, queue 123.4 kB" in lines[0]
    assert "dropped 12 queue-full, 1 loss" in lines[0]
    assert "mobile-0.downlink 0.00 Mbit/s" in lines[0]


@pytest.mark.slow
@pytest.mark.needs_tun
def test_a_real_run_with_a_meter(tmp_path: Path) -> None:
    scenario = (Path(__file__).parents[2] / "scenarios" / "smoke.toml").read_text().replace('"5 s"', '"3 s"')
    (tmp_path / "smoke.toml").write_text(scenario)
    words = ("run", tmp_path / "smoke.toml", "--no-limits", "--meter", "-o", tmp_path / "runs")
    rates = [float(rate) for rate in re.findall(r"mobile-0.uplink +([0-9.]+)", run_on_a_terminal(*words))]
    assert len(rates) >= 10
    assert max(rates) > 0

"""The examples of a link that the documentation has, and the recordings that they name."""

import re
from pathlib import Path

from cellbed.scenario import Scenario, parse
from scenario_text import GOOD

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "scenario" / "links-mobile.md").read_text()
REPLACED = {
    "up": 'up = "12 Mbit/s"',
    "base_delay": 'base_delay = "10 ms"',
    "queue": 'queue = { kind = "droptail", limit = "1 MB" }',
    "loss": 'start = "0 s"',
    "outage": 'start = "0 s"',
    "fallback": 'start = "0 s"',
    "proxy": 'start = "0 s"',
}
_KEYS = "up|base_delay|queue|loss|outage|fallback|proxy"
EXAMPLES = re.findall(rf"^(?:{_KEYS}) = .*$", PAGE.partition("Both ways")[2], re.MULTILINE)


def write_recordings(path: Path) -> None:
    """Write the recordings into a folder."""
    (path / "recordings").mkdir()
    (path / "recordings" / "train.up").write_text("1\n2\n5\n")
    (path / "up-delay-light-pdo").write_text("0 20 0 1 3 6\n50 30 0 2 4\n")
    (path / "up-heavy-pdo").write_text("2\n4\n6\n")
    (path / "rates.csv").write_text("# measured\ntime_s,rate_mbit_s,note\n0,12.5,a\n\n0.25,3,b\n")
    (path / "delays.csv").write_text("time_ms,delay_ms\n0,10\n500,12.25\n")
    (path / "observed.csv").write_text("delay_us\n9000\n11000\n")
    (path / "rate.csv").write_text("time_s,rate_mbit_s\n0,12.5\n")
    (path / "delay.csv").write_text("delay_ms\n9\n11\n")
    (path / "losses.csv").write_text("time_s,loss\n0,0\n30,0.05\n")


def read(line: str, folder: Path = Path()) -> Scenario:
    """The good scenario with another line in the place of the one for the same key."""
    key = line.split("=")[0].split(".")[0].strip()
    was = REPLACED.get(key, 'start = "0 s"')
    assert was in GOOD
    text = GOOD.replace(was, line)
    if key == "fallback":
        text = text.replace('down = "unlimited"', 'down = "lte-suburban.down"')
    if key == "proxy":  # It may need a rate.
        text = text.replace('"unlimited"', '"20 Mbit/s"')
    return parse(text, source="x.toml", folder=folder)

"""Entries of the archive are used by name wherever a trace is, and the documentation can be followed to the letter."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from archive_examples import add, write_rates, write_round_trips
from cellbed import Link
from cellbed.archive import Archive
from cellbed.archive.entry import About
from cellbed.cli.main import app
from cellbed.recordings.recording import write_recording
from cellbed.scenario import load
from cellbed.shell.mahimahi.arguments import MahimahiError, find_trace
from cellbed.shell.options import OptionError, Recorded, parse_link
from recording_examples import calibrated, walk
from scenario_text import GOOD
from shell_world import missing

REPOSITORY = Path(__file__).parents[2]


def _run(*words: str) -> str:
    done = CliRunner().invoke(app, [*words], env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_a_scenario_replays_an_entry(archive: Archive, tmp_path: Path) -> None:
    add(archive, "walk", every_ms=2, parts=("uplink", "downlink"))
    path = tmp_path / "scenario.toml"
    path.write_text(GOOD.replace('up = "12 Mbit/s"', 'up = "walk.up"').replace('"unlimited"', '"walk.down"'))
    up = load(path).links.mobile.up
    assert (up.name, up.trace.mean_bit_rate, up.synthetic) == ("walk.up", 6e6, False)
    assert "walk.up" in _run("run", "--dry-run", str(path))


def test_an_entry_with_a_recording_is_replayed_as_one(archive: Archive, tmp_path: Path) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        write_recording(calibrated(walk()), draft.folder / "recording")
        draft.recording = "recording"
        archive.keep(draft, "walk")
    path = tmp_path / "scenario.toml"
    mobile = re.sub(r"(?s)\[links\.mobile\].*?\n\n", '[links.mobile]\nkind = "recording"\npath = "walk"\n\n', GOOD)
    path.write_text(mobile)
    link = load(path).links.mobile
    assert link.path.path == archive.recording("walk")
    assert link.up.heavy.trace.opportunities > 0
    shell = parse_link(recorded=Recorded("walk"), folder=tmp_path)
    assert "walk" in shell.uplink.description
    add(archive, "plain")
    with pytest.raises(OptionError, match="'plain' contains no recording of two workloads: it has uplink"):
        parse_link(recorded=Recorded("plain"), folder=tmp_path)


def test_a_link_in_virtual_time_takes_a_name(archive: Archive) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        write_rates(draft, "downlink", [(0, 12e6), (500_000_000, 0.0), (700_000_000, 12e6)], 10**9)
        archive.keep(draft, "tram")
    outcomes = Link(rate="tram.down", queue="infinite").run(np.zeros(800, dtype=np.int64), 1500)
    assert outcomes.departed[499] == 500_000_000
    assert outcomes.departed[500] == 701_000_000
    with pytest.raises(ValueError, match="'tram' has no uplink"):
        Link(rate="tram.up")


def test_mm_link_takes_a_name_where_there_is_no_such_file(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(archive, "walk", seconds=2)
    monkeypatch.chdir(tmp_path)
    assert find_trace("walk.up").duration_s == 2
    (tmp_path / "walk.up").write_text("7\n")
    assert find_trace("walk.up").duration_s == 0.007
    with pytest.raises(MahimahiError, match="'walk' has no downlink"):
        find_trace("walk.down")
    with pytest.raises(MahimahiError, match=r"walk2\.up: cannot read the trace: No such file"):
        find_trace("walk2.up")


@pytest.mark.slow  # a dozen commands, each of which another test runs in its process
def test_the_documentation_can_be_followed_to_the_letter(bare_archive: Archive, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "archive.md").read_text()
    section = page.split("\n## Add your own recording\n")[1].split("\n## ")[0]
    steps = re.findall(r"(?s)```sh\n(.*?)```", section)
    assert len(steps) >= 6
    script = "".join(steps)
    # The machine's own network is left alone, and where there are no namespaces this line is left out.
    script = script.replace("cellbed shell ", ": " if missing() else "cellbed shell --offline ")
    command = f'cellbed() {{ "{sys.executable}" -P -m cellbed "$@"; }}\nset -eu\n'
    done = subprocess.run(["bash", "-c", command + script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "my-walk: recorded, 5g, mid, My operator, Delft, 2025-03-14, walking" in done.stdout
    assert "my-walk.up" in done.stdout
    assert "removed my-tram" in done.stdout
    assert bare_archive.names() == ["5g-midband", "lte-suburban"]


def test_an_entry_is_written_in_the_files_of_other_programs(archive: Archive, tmp_path: Path) -> None:
    add(archive, "walk", every_ms=4, parts=("uplink", "downlink"))
    _run("traces", "export", "walk", "--format", "mahimahi", "-o", str(tmp_path / "mm"))
    assert (tmp_path / "mm" / "walk.up").read_text().split() == [str(ms) for ms in range(4, 1001, 4)]
    _run("traces", "export", "walk", "--format", "rate", "--bin", "500 ms", "-o", str(tmp_path / "rates"))
    rates = (tmp_path / "rates" / "rate-downlink.csv").read_text().splitlines()
    assert rates == ["time_s,rate_bit_s", "0.0,3000000.0", "0.5,3000000.0"]
    with archive.draft(About(origin="recorded")) as draft:
        write_rates(draft, "downlink", [(0, 1e6), (600_000_000, 3e6), (900_000_000, 0.0)], 1_200_000_000)
        archive.keep(draft, "steps", replace=False)
    for width, stored in (((), ["0.0,1000000.0", "0.6,3000000.0", "0.9,0.0"]),
                          (("--bin", "500 ms"), ["0.0,1000000.0", "0.5,2000000.0", "1.0,0.0"])):  # fmt: skip
        folder = tmp_path / f"steps{len(width)}"
        _run("traces", "export", "steps", "--format", "rate", *width, "-o", str(folder))
        assert (folder / "rate-downlink.csv").read_text().splitlines()[1:] == stored
    done = CliRunner().invoke(app, ["traces", "export", "walk", "--format", "rtt", "-o", str(tmp_path / "rtt")])
    assert "'walk' has no round-trip times" in str(done.exception)
    assert not (tmp_path / "rtt").exists()
    assert "mm-link walk.up walk.down -- COMMAND" in (tmp_path / "mm" / "README").read_text()
    line = 'down = { kind = "series", file = "rate-downlink.csv" }'
    assert line in (tmp_path / "rates" / "README").read_text().splitlines()
    add(archive, "one-way", every_ms=4, parts=("uplink",))
    _run("traces", "export", "one-way", "--format", "mahimahi", "-o", str(tmp_path / "one"))
    reported = (tmp_path / "one" / "README").read_text()
    assert "cellbed shell --up one-way.up -- COMMAND" in reported
    assert "no trace of the downlink" in reported


def test_exported_round_trip_times_are_those_that_were_recorded(archive: Archive, tmp_path: Path) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        write_round_trips(draft, [(0, 22_161_764), (200_000_001, 97_100), (300_000_000, 56_300)], 1_000_000_000)
        archive.keep(draft, "ping")
    _run("traces", "export", "ping", "--format", "rtt", "-o", str(tmp_path / "rtt"))
    rows = (tmp_path / "rtt" / "rtt.csv").read_text().splitlines()
    assert rows == ["time_s,round_trip_ms", "0.0,22.161764", "0.200000001,0.0971", "0.3,0.0563"]
    assert 'cloud = { kind = "round-trips", record = "rtt.csv" }' in (tmp_path / "rtt" / "README").read_text()


def test_pairs_of_files_are_entries_of_their_own(archive: Archive, tmp_path: Path) -> None:
    for name in ("Walk 1.up", "Walk 1.down", "bus.up", "tram.down"):
        (tmp_path / name).write_text("1\n2\n5\n")
    (tmp_path / "car.up").write_text("5\n2\n")
    files = sorted(map(str, tmp_path.glob("*.up"))) + sorted(map(str, tmp_path.glob("*.down")))
    done = CliRunner().invoke(app, ["traces", "add", *files, "--tech", "4g", "--json"])
    assert done.exit_code == 2
    assert f"{tmp_path / 'car.up'}: line 1: " in done.stderr
    assert "1 of 4 recordings were not added" in done.stderr
    parts = {entry["name"]: list(entry["parts"]) for entry in json.loads(done.stdout)}
    assert parts == {"walk-1": ["uplink", "downlink"], "bus": ["uplink"], "tram": ["downlink"]}
    assert set(archive.names()) == {*parts, "5g-midband", "lte-suburban"}
    refused = CliRunner().invoke(app, ["traces", "add", *files, "--name", "all"])
    assert refused.exit_code == 2
    assert "not allowed with 4 recordings" in refused.output

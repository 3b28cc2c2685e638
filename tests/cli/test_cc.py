"""``cellbed cc``."""

import json
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cellbed.archive import Archive
from cellbed.cli.cc import _show
from cellbed.recordings.recording import write_recording
from in_process import cellbed
from law_examples import fixed
from recording_examples import calibrated, walk


def test_ls_lists_shipped_laws_that_run_in_virtual_time() -> None:
    done = cellbed("cc", "ls", "--json")
    laws = {each["name"]: each for each in json.loads(done.stdout)}
    compared = laws["copa"]["compared"]
    assert laws["copa"] == {"name": "copa", "origin": "cellbed", "virtual": True, "title": "Copa", "compared": compared}
    assert "genericCC" in compared
    assert compared in cellbed("cc", "describe", "copa").stdout
    assert all(each["compared"] for each in laws.values() if each["origin"] == "cellbed")
    assert any(line.startswith("vegas") and "tcp_vegas.c" in line for line in cellbed("cc", "ls").stdout.splitlines())


def test_describe_prints_publication_comparison_and_path(tmp_path: Path) -> None:
    shown = cellbed("cc", "describe", "vegas").stdout
    assert "Brakmo" in shown
    assert "vegas.h" in shown
    fixed(tmp_path / "mine.h")
    own = cellbed("cc", "describe", "./mine.h", cwd=tmp_path).stdout
    assert "A law of tests." in own
    assert "implementation: not compared" in own
    done = cellbed("cc", "describe", "no-such-law", status=2)
    assert "no-such-law" in done.stderr


def test_compare_has_throughput_and_round_trip_of_each_law(tmp_path: Path) -> None:
    fixed(tmp_path / "mine.h", window=2)
    words = ["cc", "compare", "--laws", "cubic,./mine.h", "--links", "10 Mbit/s", "--seconds", "5", "--virtual"]
    done = cellbed(*words, "--repetitions", "1", "--json", cwd=tmp_path, status=0)
    cubic, mine = json.loads(done.stdout)
    assert (cubic["law"], cubic["link"], cubic["flows"]) == ("cubic", "10 Mbit/s", "1")
    assert 8 < cubic["throughput_mbit_s"] <= 10
    assert mine["throughput_mbit_s"] < 1  # two segments in 40 ms
    assert cubic["round_trip_s"] > mine["round_trip_s"] > 0.04
    assert (tmp_path / "laws" / "laws.toml").is_file()

    # The report begins with the figures of the transfers, and only with those of the loaded direction.
    done = cellbed("sweep", "report", tmp_path / "laws" / "laws-virtual", "--json", "--open", "no")
    measures = {each["measure"]: each["points"] for each in json.loads(done.stdout)["applications"][0]["measures"]}
    assert list(measures) == ["throughput_down_mbit_s", "round_trip_p50_s"]
    assert measures["round_trip_p50_s"][0]["value"] == pytest.approx(cubic["round_trip_s"], rel=0.3)


def test_intervals_of_a_comparison_are_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row: dict[str, Any] = {"link": "lte-suburban", "flows": "4", "against": "cubic", "law": "illinois"}
    for name in ("throughput_mbit_s", "rivals_mbit_s", "round_trip_s", "retransmitted"):
        row |= {name: 1.234, f"{name}_low": 0.834, f"{name}_high": 3.06}
    row |= {"retransmitted": 1234.0, "retransmitted_low": 1111.5, "retransmitted_high": 1321.0, "fairness": 0.95}
    _show(pl.DataFrame([row]), as_json=False)
    shown = capsys.readouterr().out
    words = shown.split()
    assert (words.count("(0.834"), words.count("3.06)"), words.count("3,060)")) == (2, 2, 1)
    assert "1,234" in words
    assert "e+0" not in shown


def test_compare_has_the_fairness_among_rivals(tmp_path: Path) -> None:
    fixed(tmp_path / "mine.h", window=2)
    words = ["cc", "compare", "--laws", "cubic,./mine.h", "--against", "cubic", "--links", "10Mbit/s"]
    done = cellbed(*words, "--seconds", "10", "--virtual", "--repetitions", "1", "--json", cwd=tmp_path, status=0)
    cubic, mine = json.loads(done.stdout)
    assert (cubic["against"], mine["against"]) == ("cubic", "cubic")
    assert 8 < mine["throughput_mbit_s"] + mine["rivals_mbit_s"] <= 10
    # Two segments in a round trip beside all the rest of the link: Jain's index is near 1/2.
    assert 0.5 <= mine["fairness"] < 0.65 < cubic["fairness"] <= 1
    folder = tmp_path / "laws" / "laws-virtual"
    done = cellbed("sweep", "report", folder, "--figures", tmp_path / "figures", status=0)
    assert {"bulk-flows.svg", "rival-flows.svg", "bulk-fairness.svg"} <= {it.name for it in tmp_path.glob("figures/*")}
    assert "Share of the bytes that each law gets beside a rival" in (folder / "report.html").read_text()


def test_compare_takes_recorded_networks(bare_archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "street.csv").write_text("time_s,downlink_mbit_s\n0,8\n1,4\n2,6\n3,6\n")
    (tmp_path / "walk.up").write_text("4\n8\n")
    (tmp_path / "walk.down").write_text("1\n2\n")
    cellbed("traces", "add", "street.csv", "--name", "tram", cwd=tmp_path, status=0)
    write_recording(calibrated(walk()), tmp_path / "both")
    links = "street.csv,tram,walk,both,10 Mbit/s"
    words = ["cc", "compare", "--laws", "cubic", "--links", links, "--seconds", "3", "--virtual", "--repetitions", "1"]
    done = cellbed(*words, "--json", cwd=tmp_path, status=0)
    found = {each["link"]: each["throughput_mbit_s"] for each in json.loads(done.stdout)}
    assert set(found) == set(links.split(","))
    assert found["street.csv"] == found["tram"]
    assert 3 < found["tram"] < 7
    assert 8 < found["walk"] < found["both"] < 17, "downlinks of 12 and 16 Mbit/s"
    stamps = [int(line) for line in (tmp_path / "laws" / "traces" / "street.csv.down").read_text().split()]
    assert sum(stamp <= 1000 for stamp in stamps) == 666
    tables = tomllib.loads((tmp_path / "laws" / "laws.toml").read_text())["factors"]["link"]["levels"]
    assert (tables["tram"]["up"], tables["tram"]["down"]) == ("unlimited", "tram.down")
    assert tables["both"]["kind"] == "recording"


def test_compare_refuses_what_is_no_law_link_or_number(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, content in (
        *(("one.up", "1\n"), ("a/one.down", "1\n"), ("odd.txt", "hello\n"), ("numbers", "1\n2\n")),
        ("column.csv", "when,downlink_mbit_s\n0,8\n1,4\n"),
    ):
        (tmp_path / name).write_text(content)
    for laws, links, flows, problem in (
        ("cubic,/no such", "10 Mbit/s", "1", "/no such"),
        ("cubic,vegass", "10 Mbit/s", "1", "there is no law 'vegass': did you mean 'vegas'"),
        ("cubic,./no.h", "10 Mbit/s", "1", "no.h"),
        ("cubic", "no-such-link", "1", "no-such-link"),
        ("cubic", "20mbit", "1", "'20mbit' has an unknown unit: write '20 Mbit/s'"),
        ("cubic", "20", "1", "'20' has no unit: write '20 Mbit/s'"),
        ("cubic", "20 Mbps", "1", "write '20 Mbit/s'"),
        ("cubic", "10 Mbit/s", "0", "--flows"),
        ("cubic", "one.up", "1", "one.up: not recorded: downlink"),
        ("cubic", "one", "1", "one: not recorded: downlink"),
        ("cubic", "odd.txt", "1", "odd.txt: unknown format"),
        ("cubic", "column.csv", "1", "write --column time=COLUMN:UNIT to `cellbed traces add "),
        ("cubic", "numbers", "1", "numbers: a trace without its direction: end its name in .up or .down"),
        ("cubic", "./a/one,a/one", "1", "two links have the same name"),
    ):
        words = ["cc", "compare", "--laws", laws, "--links", links, "--flows", flows, "--virtual"]
        done = cellbed(*words, cwd=tmp_path, status=2)
        assert problem in done.stderr


def test_compare_names_all_laws_that_this_kernel_lacks_in_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellbed.experiments.laws.available_congestion_controls", lambda: ("reno",))
    done = cellbed("cc", "compare", "--laws", "cubic,reno,bbr", "--links", "20 Mbit/s", cwd=tmp_path, status=2)
    assert len(done.stderr.splitlines()) == 1
    assert "'cubic' is not available" in done.stderr
    assert "'bbr' is not available" in done.stderr


def test_compare_needs_the_compiler_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laws = ("one.h", "two.h")
    for name in laws:
        fixed(tmp_path / name, window=len(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["cc", "compare", "--laws", ",".join(f"./{name}" for name in laws), "--links", "20 Mbit/s", "--virtual"]
    done = cellbed(*words, cwd=tmp_path, status=2)
    assert done.stderr.count("apt install") == 1

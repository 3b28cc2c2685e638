"""``cellbed traces`` on the archive: what a user sees of it, and what a script reads."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from archive_examples import add, copied
from cellbed.archive import Archive, TraceError, resolve
from cellbed.archive.adding import check_metadata
from cellbed.cli.main import app
from cellbed.testbed.clean import clean
from in_process import cellbed, completions


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["traces", *words], env={"COLUMNS": "200"})


def names(*words: str) -> list[str]:
    done = run("ls", "--json", *words)
    assert done.exit_code == 0, done.output
    return [row["name"] for row in json.loads(done.stdout)]


def stock(archive: Archive) -> Archive:
    add(archive, "bus-1", every_ms=1, seconds=2, technology="5g", mobility="bus", place="Delft", date="2021-04-30")
    add(archive, "car-1", every_ms=4, parts=("uplink", "downlink"), technology="4g", mobility="Driving", operator="KPN")
    add(archive, "car-2", every_ms=2, parts=("downlink",), technology="5g", mobility="driving")
    return archive


@pytest.fixture
def stocked(archive: Archive) -> Archive:
    return stock(archive)


@pytest.fixture(scope="module")
def shared(archive_of_examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """An archive for tests that only read it."""
    with copied(archive_of_examples, tmp_path_factory.mktemp("shared")) as archive:
        yield stock(archive)


def test_ls_prints_every_entry_with_its_known_values(shared: Archive) -> None:
    done = run("ls")
    assert done.exit_code == 0, done.output
    heading, *lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["5g-midband", "bus-1", "car-1", "car-2", "lte-suburban"]
    assert "uplink Mbit/s" in heading
    assert "obstacle" not in heading  # nothing is known of it in any
    [bus] = [line for line in lines if line.startswith("bus-1")]
    assert bus.split() == ["bus-1", "5g", "Delft", "2021-04-30", "bus", "2", "12.00", "recorded"]
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--tech", "lte"], ["car-1", "lte-suburban"]),
        (["--mobility", "driving", "--min-mean", "6 Mbit/s"], ["car-2"]),
        (["car"], ["car-1", "car-2"]),
        (["--where", "uplink_burst_max = 1", "--where", "uplink_rows > 1000"], ["bus-1"]),
        (["--sort", "uplink_mean_bit_s", "--reverse", "--where", "origin = recorded"], ["bus-1", "car-1", "car-2"]),
    ],
)
def test_ls_filters_and_sorts(shared: Archive, words: list[str], found: list[str]) -> None:
    assert names(*words) == found


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--sort", "weather"], "unknown column 'weather': write one of name"),
        (["--min-mean", "20 zbit/s"], "20 zbit/s"),
    ],
)
def test_invalid_filters_are_refused_in_one_line(shared: Archive, words: list[str], reason: str) -> None:
    done = cellbed("traces", "ls", *words, status=2)
    assert done.stdout == ""
    assert reason in " ".join(done.stderr.split())


def test_a_damaged_entry_is_named_by_the_list_and_can_be_removed(stocked: Archive) -> None:
    path = stocked.folder / "car-1" / "entry.toml"
    path.write_text("half an ent")
    done = cellbed("traces", "ls", status=0)
    assert "car-2" in done.stdout
    assert "car-1" not in done.stdout
    assert f"{path}: not TOML" in done.stderr
    assert "`cellbed traces rm car-1`" in done.stderr
    assert run("rm", "car-1").stdout == "removed car-1\n"
    assert cellbed("traces", "ls").stderr == ""


def test_removing_is_all_or_nothing(stocked: Archive) -> None:
    done = cellbed("traces", "rm", "car-1", "cra-2", status=2)
    assert "did you mean 'car-2'?" in done.stderr
    assert stocked.has("car-1")
    done = cellbed("traces", "rm", "lte-suburban")
    assert "built-in example" in done.stderr
    assert json.loads(run("rm", "car-1", "car-2", "--json").stdout) == ["car-1", "car-2"]
    assert not stocked.has("car-1")


def test_verify_names_the_damaged_file(stocked: Archive) -> None:
    assert run("verify").exit_code == 0
    path = stocked.folder / "bus-1" / "uplink.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = run("verify")
    assert done.exit_code == 1
    assert f"{path}: not the file that was added" in done.stdout
    assert "5 checked, 1 damaged" in done.stdout
    reported = json.loads(run("verify", "bus-1", "car-1", "--json").stdout)
    assert (reported["verified"], list(reported["damaged"])) == (2, ["bus-1"])


def test_show_an_entry(shared: Archive) -> None:
    shown = run("show", "car-1")
    assert shown.exit_code == 0, shown.output
    for part in ("car-1: recorded, 4g, KPN, Driving", "mean", "3 Mbit/s", "250 opportunities", "longest silence"):
        assert part in shown.output
    assert 'up = "car-1.up", down = "car-1.down"' in shown.output
    reported = json.loads(run("show", "car-1", "--json").stdout)
    assert reported["parts"]["uplink"]["statistics"]["mean_bit_s"] == 3e6
    assert reported["folder"] == str(shared.folder / "car-1")
    shown = run("show", "car-1.up").output
    assert "recorded, 1 s, mean" in shown
    assert f"SHA-256 {reported['parts']['uplink']['sha256']}" in shown
    for wrong, reported in (("CAR-1", "did you mean 'car-1'?"), ("/nowhere/car", "/nowhere/car")):
        assert reported in str(run("show", wrong).exception)
    assert "synthetic: made by a model" in run("show", "lte-suburban").output


def test_a_trace_file_is_shown_and_another_format_answered_with_the_add_command(
    shared: Archive, tmp_path: Path
) -> None:
    table = tmp_path / "g2.csv"
    table.write_text("time_s,dl_mbps\n0,1\n1,2\n")
    for verb in ("show", "stats", "plot", "compare"):
        assert f"`cellbed traces add {table}`" in str(run(verb, str(table)).exception)
    trace = tmp_path / "mine.up"
    trace.write_text("1\nx\n")
    assert f"{trace}:2: `x` is not a timestamp" in str(run("show", str(trace)).exception)
    trace.write_text("".join(f"{stamp}\n" for stamp in range(1, 1001)))
    shown = "recorded, 1 s, mean 12 Mbit/s, longest gap 1 ms, 1,000 opportunities"
    assert shown in run("show", str(trace)).output


def test_suggested_names_exist(shared: Archive) -> None:
    assert "did you mean 'car-1' or 'car-2'?" in str(run("show", "car").exception)
    for text, reported in (
        ("car-1", "did you mean 'car-1.up' or 'car-1.down'?"),
        ("Car-2", "the entry 'car-2' has only downlink: did you mean 'car-2.down'?"),
        ("bus-2.up", "did you mean 'bus-1.up'?"),
    ):
        with pytest.raises(TraceError, match=re.escape(reported)):
            resolve(text, Path("/nowhere"))


def test_clean_removes_unfinished_folders(archive: Archive) -> None:
    (archive.folder / ".unfinished-0123456789abcdef" / "deep").mkdir(parents=True)
    (archive.folder / ".unfinished-index-00").write_text("x")
    assert any(".unfinished-0123456789abcdef" in line for line in clean())
    assert [path for path in archive.folder.iterdir() if path.name.startswith(".unfinished")] == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("cellbed traces show ca", {"car-1", "car-2"}),
        ("cellbed traces rm bu", {"bus-1"}),
        ("cellbed shell --up car-", {"car-1.up", "car-1.down", "car-2.up", "car-2.down"}),
        ("cellbed shell --recording car-1", {"car-1"}),
        ("cellbed traces ver", {"verify"}),
        ("cellbed traces ls --mob", {"--mobility"}),
        ("cellbed traces plot ca", {"car-1", "car-2"}),
        ("cellbed traces plot car-1", {"car-1", "car-1.up", "car-1.down"}),
        ("cellbed traces stats car-1.d", {"car-1.down"}),
        ("cellbed traces show b", {"bus-1", "bus-walk/", "bus.up"}),  # and not its picture
        ("cellbed traces add --as mahi", {"mahimahi"}),
        ("cellbed traces generate lte-n", {"lte-netherlands"}),
        ("cellbed traces generate radio --profile midband-g", {"midband-good"}),
    ],
)
def test_a_shell_completes_names(shared: Archive, tmp_path: Path, line: str, offered: set[str]) -> None:
    (tmp_path / "bus-walk").mkdir()
    for name in ("bus.png", "bus.up"):
        (tmp_path / name).touch()
    assert completions(line, tmp_path) == offered


def test_invalid_dates_are_refused() -> None:
    for date in ("31-12-2024", "2024-13", "2024-02-30", "24", "yesterday", "2024-04-30T25:00", "2024-4"):
        with pytest.raises(TraceError, match="is not a date: write 2021"):
            check_metadata(origin="recorded", date=date)

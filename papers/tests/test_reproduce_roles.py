"""Recordings that play the networks of a publication: given in any format, in the archive, or stand-ins."""

import json
import tomllib
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recorded_files as made
from cellbed.archive import Archive
from cellbed.experiments.sweep.library import Execution
from cellbed.extension.trials import DATASET
from cellbed.recordings.recording import write_recording
from cellbed.support.errors import CellbedError
from cellbed_papers.publication import CAPACITY, Data, Input, SweptPublication
from cellbed_papers.publications.cosmic import PUBLICATION as COSMIC
from cellbed_papers.publications.fiveg_study import NETWORKS
from cellbed_papers.publications.fiveg_study import PUBLICATION as STUDY
from cellbed_papers.publications.thesis import PUBLICATION as THESIS
from cellbed_papers.reproduce.page import Result, page
from cellbed_papers.reproduce.roles import traces
from cellbed_papers.reproduce.swept import Sweeps, collect
from in_process import cellbed
from recording_examples import calibrated, walk

LUMOS = (
    "run_num,seq_num,latitude,nrStatus,Throughput\n"
    "7,1,44.97,CONNECTED,120\n7,2,44.97,CONNECTED,1200\n7,3,44.97,NONE,0\n7,4,44.97,CONNECTED,12\n"
)
"""An invented run in the layout of Lumos5G, 4 s."""


def plan(publication: SweptPublication, experiment: str, out: Path, *recordings: str) -> Sweeps:
    return Sweeps(publication, [experiment], out, Execution(virtual=True), short=False, given=recordings)


def stamps(path: str | Path) -> list[int]:
    return [int(line) for line in Path(path).read_text().split()]


@pytest.fixture
def folder(bare_archive: Archive, tmp_path: Path) -> Path:
    """A folder of recordings, and an empty archive."""
    (folder := tmp_path / "given").mkdir()
    return folder


def test_a_given_run_is_played_up_to_the_published_maximum(folder: Path, tmp_path: Path) -> None:
    (folder / "Lumos5G.csv").write_text(LUMOS)
    (folder / "read\x1b[2Jme.txt").write_text("hello")
    sweeps = plan(COSMIC, "mmwave", tmp_path, str(folder))
    ((_, trials),) = sweeps.plans
    down = {trial.tables["links"]["mobile"]["down"] for trial in trials.trials}
    assert len(down) == 1
    played = stamps(down.pop())
    rates = [sum(1000 * second < at <= 1000 * second + 1000 for at in played) * 0.012 for second in range(4)]
    assert rates == pytest.approx([120, 500, 0, 12], abs=0.6)
    assert (len(trials.trials), played[-1]) == (12, 4000), "three repetitions; the loop is the run"
    assert [(each.name, each.note, each.stand_in) for each in sweeps.played] == [
        ("mmwave.down", "Lumos5G.csv (given)", False)
    ]
    assert sweeps.notes == [f"{folder}: no role has these names, which are not played: read\\u001b[2Jme.txt."]
    assert "mmwave.down: Lumos5G.csv (given)" in sweeps.forecast()
    assert sweeps.forecast()[-1:] == sweeps.notes


def test_the_page_marks_stand_ins_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "driving.csv").write_text(LUMOS)
    empty: Data = {}
    cautions = []
    for recordings in ((), (str(folder),)):
        played, notes = traces(STUDY, STUDY.select_experiments(["driving"], ""), tmp_path / "traces", recordings)
        result = Result(STUDY, empty, list(played), False, "", "", notes)
        cautions.append(" ".join(result.cautions()))
    assert "<td>driving.down</td><td>driving.csv (given)</td>" in page(result)
    assert "driving.down (stand-in: a tenth of the capacity" in cautions[0]
    assert "driving.down" not in cautions[1]
    assert "driving.up (stand-in: a tenth of the capacity" in cautions[1]


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("KPN_5G.up", "1\n2\n9\n", 3),
        ("5g.json", made.iperf3_report([(12e6, 24e6), (24e6, 24e6)]).decode(), 3000),
        ("kpn-5g.up.csv", "time_s,rate_mbit_s\n0,12\n1,24\n", 3000),
    ],
)
def test_files_of_any_format_are_played_by_their_names(
    folder: Path, tmp_path: Path, name: str, content: str, count: int
) -> None:
    (folder / name).write_text(content)
    played, notes = traces(THESIS, THESIS.select_experiments(["E2"], ""), tmp_path / "traces", [str(folder)])
    (up, path) = next((each, path) for each, path in played.items() if each.name == "5g.up")
    assert (up.note, up.stand_in, len(stamps(path)), notes) == (f"{name} (given)", False, count, [])


def test_a_recording_directory_plays_its_saturated_directions(folder: Path, tmp_path: Path) -> None:
    write_recording(calibrated(walk()), folder / "5g")
    played, _ = traces(THESIS, THESIS.select_experiments(["E2"], ""), tmp_path / "traces", [str(folder)])
    assert {each.name: each.stand_in for each in played} == {"5g.up": False, "5g.down": False}


def test_an_entry_plays_a_role_by_default_or_by_its_name(folder: Path, tmp_path: Path) -> None:
    (folder / "run.csv").write_text(LUMOS)
    for name in (COSMIC.roles[0].entry, "own"):
        cellbed("traces", "add", folder / "run.csv", "--name", name, status=0)
    entry = COSMIC.roles[0].entry
    chosen = COSMIC.select_experiments(["mmwave"], "")
    for recordings, note in (((), f"{entry}.down (archive)"), (("mmwave=own",), "own (given)")):
        played, _ = traces(COSMIC, chosen, tmp_path / "traces", recordings)
        assert [(each.note, each.stand_in) for each in played] == [(note, False)]
        assert stamps(next(iter(played.values())))[-1] == 4000
    words = [
        "reproduce",
        "cosmic",
        "-e",
        "mmwave",
        "--virtual",
        "--dry-run",
        "--traces",
        f"mmwave={folder / 'run.csv'}",
    ]
    assert f"mmwave.down: {folder / 'run.csv'} (given)" in cellbed(*words, cwd=tmp_path, status=0).stdout


def test_a_recorded_drive_has_its_own_handovers_and_the_full_rate(folder: Path, tmp_path: Path) -> None:
    (folder / "driving.csv").write_text(LUMOS)
    (folder / "5g_cloud.csv").write_text(LUMOS)
    ((_, ours),) = plan(STUDY, "driving", tmp_path / "ours").plans
    ((_, trials),) = plan(STUDY, "driving", tmp_path / "theirs", str(folder)).plans
    mobile, transport = (trials.trials[0].tables[name] for name in ("links", "transport"))
    assert stamps(mobile["mobile"]["down"])[-1] == 4000
    assert "fallback" in ours.trials[0].tables["links"]["mobile"]
    assert "fallback" not in mobile["mobile"]
    assert (mobile["mobile"]["queue"]["limit"], transport["receive_buffer"]) == ("16 MB", "8 MB")
    assert len(plan(STUDY, "buffer", tmp_path / "ours").plans[0][1].trials) == 6
    assert len(plan(STUDY, "buffer", tmp_path / "theirs", str(folder)).plans[0][1].trials) == 18, "at three offsets"


def test_without_recordings_the_links_of_the_study_are_constant(bare_archive: Archive, tmp_path: Path) -> None:
    sweeps = plan(STUDY, "laws", tmp_path)
    sweep = tomllib.loads((sweeps.folder / "laws.toml").read_text())
    levels = sweep["factors"]["network"]["levels"]
    assert {name: level[:2] for name, level in levels.items()} == {
        name: [f"{down} Mbit/s", f"{up} Mbit/s"] for name, (down, up, *_) in NETWORKS.items()
    }
    assert len(sweeps.plans[0][1].trials) == 36
    assert all(each.stand_in for each in sweeps.played)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("mmwave.csv", "", "mmwave.csv: it is empty"),
        ("mmwave.csv", LUMOS + LUMOS.partition("\n")[2], "write each run into a separate file"),
        ("mmwave.csv", "when,what\n1,2\n2,3\n", "to `cellbed traces add "),
        ("mmwave.txt", "1\n2\n", "end its name in .up or .down"),
        ("mmwave.down", "1\ntwo\n", "mmwave.down:2"),
        ("mmwave.bin", "\x00\x01", "mmwave.bin: unknown format"),
        ("mmwave.ping", made.PING.decode(), "contains no rate of the uplink or downlink"),
    ],
)
def test_a_file_that_is_no_recording_is_one_error(
    folder: Path, tmp_path: Path, name: str, content: str, problem: str
) -> None:
    (folder / name).write_text(content)
    words = ["reproduce", "cosmic", "-e", "mmwave", "--virtual", "--dry-run", "--traces", folder]
    done = cellbed(*words, cwd=tmp_path, status=2)
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_options_that_name_no_recording_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "mmwave.down").write_text("1\n2\n")
    (folder / "Lumos5G.csv").write_text(LUMOS)
    for text, problem in (
        ("none", "--traces none: not a folder: "),
        ("mmwav=x", "--traces mmwav=x: 'mmwav' is no role of cosmic: write one of mmwave"),
        ("mmwave=x", "--traces mmwave=x: neither an entry of `cellbed traces ls` nor a file"),
        (str(folder), "--traces: mmwave.down is both Lumos5G.csv (given) and mmwave.down"),
    ):
        words = ["reproduce", "cosmic", "-e", "mmwave", "--virtual", "--dry-run", "--traces", text]
        assert problem in cellbed(*words, cwd=tmp_path, status=2).stderr
    (folder / "mmwave.up").write_text("1\n2\n")
    _, notes = traces(
        COSMIC, COSMIC.select_experiments(["mmwave"], ""), tmp_path / "traces", [f"mmwave={folder / 'mmwave.up'}"]
    )
    assert notes == [f"{folder / 'mmwave.up'} is not played: mmwave needs down."]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | st.text(alphabet="0123456789,.\n-eE", max_size=200).map(str.encode))
def test_any_bytes_are_played_or_refused_in_one_line(folder: Path, tmp_path: Path, content: bytes) -> None:
    (folder / "mmwave.down").write_bytes(content)
    chosen = COSMIC.select_experiments(["mmwave"], "")
    refused = ""
    played: dict[Input, str] = {}
    try:
        played, _ = traces(COSMIC, chosen, tmp_path / "traces", [str(folder)])
    except CellbedError as error:
        refused = str(error)
    assert "\n" not in refused
    assert ("mmwave.down" in refused) == (not played)
    assert all(stamps(path) for path in played.values())


def test_findings_as_json_name_the_recordings(folder: Path, tmp_path: Path) -> None:
    (folder / "mmwave.csv").write_text(LUMOS)
    played, notes = traces(COSMIC, COSMIC.select_experiments(["mmwave"], ""), tmp_path / "traces", [str(folder)])
    content = json.loads(json.dumps(Result(COSMIC, {}, list(played), False, "", "", notes).json()))
    assert content["inputs"] == [
        {"name": "mmwave.down", "note": "mmwave.csv (given)", "stand_in": False, "virtual": False, "kinds": []}
    ]


def test_the_capacity_is_that_of_the_downlink_while_it_is_used(tmp_path: Path) -> None:
    rows = [(-0.5, 9.0, 1.0), (0.0, 8.0, 0.0), (0.5, 4.0, 1.0), (1.0, 2.0, 0.0), (1.5, 3.0, 1.0), (2.0, 8.0, 0.0)]
    table = pl.DataFrame(rows, ["time_s", "capacity_mbit_s", "used_mbit_s"], orient="row")
    named = [table.with_columns(direction=pl.lit(f"mobile-{number}.downlink")) for number in (0, 1)]
    pl.concat([named[0], named[1].with_columns(capacity_mbit_s=7.0)]).write_parquet(tmp_path / "links.parquet")
    pl.DataFrame({"folder": ["."], "app": ["transfer"]}).write_parquet(tmp_path / DATASET)
    assert collect(tmp_path).frame[CAPACITY].to_list() == [3.0]


def test_a_users_networks_replace_the_seeded_ones(tmp_path: Path) -> None:
    """E2 has both applications: the page marks the compute as a stand-in until both have networks of the user."""
    mine, theirs = tmp_path / "mine.keras", tmp_path / "translator"
    mine.write_bytes(b"")
    mine.with_suffix(".py").write_text("def preprocess(image): ...\ndef postprocess(outputs): ...\n")
    theirs.mkdir()
    one, both = (
        Sweeps(THESIS, ["E2"], tmp_path / name, Execution(virtual=True), short=False, models=models)
        for name, models in (
            ("one", [f"image-classification={mine}"]),
            ("both", [f"image-classification={mine}", f"translation={theirs}"]),
        )
    )
    found = {}
    for sweeps, note, stand_in in (
        (one, "image-classification: mine.keras (given); else seeded weights", True),
        (both, "image-classification: mine.keras (given); translation: translator (given)", False),
    ):
        (compute,) = (each for each in sweeps.result("").inputs if each.name == "compute")
        assert (compute.note.startswith(note), compute.stand_in) == (True, stand_in)
        ((_, trials),) = sweeps.plans
        found[stand_in] = {
            load["kind"]: (load.get("model"), load.get("code"), load.get("runtime"))
            for load in (trial.tables["workload"] for trial in trials.trials)
        }
    images = str(mine), str(mine.with_suffix(".py")), None
    assert found[True] == {"image-classification": images, "translation": (None, None, "ctranslate2")}
    assert found[False] == {"image-classification": images, "translation": (str(theirs), None, None)}


@pytest.mark.parametrize(
    ("publication", "text", "reason"),
    [
        (COSMIC, "plates=x.onnx", "--model: cosmic has no networks"),
        (THESIS, "x.onnx", "--model x.onnx: write KIND=PATH, KIND one of image-classification, translation"),
        (THESIS, "translation=nowhere", "--model translation=nowhere: no such file or folder"),
        (THESIS, "translation=", "--model translation=: no such file or folder"),
    ],
)
def test_a_wrong_network_is_refused(publication: SweptPublication, text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(CellbedError, match=f"^{reason}$"):
        Sweeps(publication, [], tmp_path, Execution(), short=False, models=[text])

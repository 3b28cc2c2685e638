"""Videos that Chromium plays from nginx: renditions, errors, measures, real runs, and what is left after them."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from cellbed.measure.disturbance import overload_reasons
from cellbed.measure.own import SCHEMA
from cellbed.support.errors import CellbedError
from cellbed.workloads.cache import silent
from cellbed.workloads.video import kind, renditions
from cellbed.workloads.video.player import Player
from cellbed.workloads.video.renditions import LADDER
from cellbed_node.video.playback import Loaded, Playback, Wanted, qoe
from descendants import descendants, words
from in_process import cellbed, run_scenario
from packet_logs import lateness_s
from run_commands import apply_marks
from scenario_text import NODES
from workload_needs import needs_browser, needs_caddy, needs_ffmpeg, needs_nginx, needs_openssl, needs_players

HEAD = 'name = "video"\nduration = "11 s"\nseed = 3\n'
APP = '[apps.video]\nkind = "video"\nserver = "edge"\nlength = "8 s"\nrenditions = ["720p"]\n'
BOTH = APP.replace('["720p"]', '["720p", "1080p"]')
SECOND = 1_000_000_000


real = apply_marks(pytest.mark.needs_tun, needs_browser, needs_nginx, needs_openssl, needs_ffmpeg, needs_players)
"""A test with a browser on a node."""


def _measures(run: Path) -> tuple[dict[str, float], pl.DataFrame]:
    """Return the single numbers that the player of a run wrote, and its series."""
    table = pl.read_parquet(run / "measures.parquet")
    single = table.filter(pl.col("index").is_null())
    return dict(single.select("measure", "value").iter_rows()), table.drop_nulls("index")


def _made(folder: Path, *names: str, length_s: float = 8) -> Path:
    renditions.build(folder, names, length_s, "dash", silent)
    return renditions.folder(folder, length_s)


def test_playlists_list_the_chosen_renditions_and_every_chunk() -> None:
    chosen = [(LADDER["720p"], "avc1.42c01f"), (LADDER["2160p"], "avc1.42c033")]
    main = renditions.playlist(chosen, 10).splitlines()
    assert main[-1] == "2160p/chunks.m3u8"
    assert main[-2].startswith("#EXT-X-STREAM-INF:BANDWIDTH=12000000,RESOLUTION=3840x2160")
    chunks = renditions.chunks(10).splitlines()
    assert chunks[-7:] == ["#EXTINF:4,", "1.m4s", "#EXTINF:4,", "2.m4s", "#EXTINF:2,", "3.m4s", "#EXT-X-ENDLIST"]


@needs_ffmpeg
def test_chunks_have_the_bytes_of_their_bit_rate_and_an_own_codec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renditions, "_SCENE_S", 8)
    place = _made(tmp_path, "720p", length_s=20)  # longer than a scene
    sizes = [(place / "720p" / f"{number}.m4s").stat().st_size for number in range(1, 6)]
    assert all(abs(size / 2_000_000 - 1) < 0.05 for size in sizes)
    assert sorted(file.name for file in place.iterdir()) == ["720p", "720p.mpd"]
    assert 'codecs="avc1.' in (place / "720p.mpd").read_text()
    whole = tmp_path / "whole.mp4"
    parts = [place / "720p" / "init.mp4", *(place / "720p" / f"{number}.m4s" for number in range(1, 6))]
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    probe = "ffprobe -v error -count_packets -select_streams v -show_entries stream=nb_read_packets -of csv=p=0"
    done = subprocess.run([*probe.split(), whole], capture_output=True, text=True, check=True)
    assert int(done.stdout.strip().rstrip(",")) == 20 * renditions.FRAMES_PER_S


def test_a_build_that_fails_leaves_nothing_and_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "ffmpeg"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho half > init.mp4\necho no room >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=os.pathsep)
    with pytest.raises(CellbedError, match="cannot make the video: no room"):
        _made(tmp_path, "720p")
    assert list((tmp_path / "videos" / "8-1").iterdir()) == []


@needs_ffmpeg
def test_a_build_that_is_killed_leaves_no_rendition_and_no_ffmpeg(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from cellbed.workloads.video.renditions import build\n"
    script += "build(Path(sys.argv[1]), ['2160p'], 120, 'dash', print)"
    building = subprocess.Popen([sys.executable, "-P", "-c", script, tmp_path], stdout=subprocess.DEVNULL)
    try:
        while not list(tmp_path.glob("videos/120-1/.2160p.*/scene.mp4")):
            assert building.poll() is None
            time.sleep(0.05)
        ours = descendants(building.pid)
        assert any(b"libx264" in line for line in ours.values())
    finally:
        building.kill()
        building.wait()
    while any(words(pid) == line for pid, line in ours.items()):  # the test has a time limit
        time.sleep(0.05)
    assert not (tmp_path / "videos" / "120-1" / "2160p").exists()


def test_measures_of_a_playback() -> None:
    """A start-up of 1 s, a switch from 4 to 8 Mbit/s, a stall of 2 s, and one for which the decoder is to blame."""
    playback = Playback(begin_ns=10 * SECOND)
    events: list[tuple[float, dict[str, object]]] = [
        (10.1, {"chunk": "a", "rate": 4e6, "height": 720, "at": 0.0, "length": 4.0}),
        (10.8, {"chunk": "b", "rate": 4e6, "height": 720, "at": 4.0, "length": 4.0}),
        (10.9, {"event": "waiting", "buffer": 0.0}),  # before it plays
        (11.0, {"event": "playing", "buffer": 4.0}),
        (12.0, {"buffer": 3.0, "frames": 30, "dropped": 0}),
        (13.0, {"chunk": "B", "rate": 8e6, "height": 1080, "at": 4.0, "length": 4.0}),
        (15.0, {"event": "waiting", "buffer": 0.1}),
        (17.0, {"event": "playing", "buffer": 4.0}),
        (18.0, {"event": "waiting", "buffer": 3.0}),
        (18.5, {"event": "playing", "buffer": 2.5}),
        (19.0, {"buffer": 2.0, "frames": 200, "dropped": 20}),
        (30.0, {"event": "waiting", "buffer": 0.0}),
    ]
    for at_s, message in events:
        playback.on_message(message, round(at_s * SECOND))
    for url, asked_s, there_s in (("a", 10.1, 10.6), ("b", 10.8, 11.8), ("B", 13.0, 15.0)):
        size = playback.wanted[url].rate // 2
        playback.loaded.append(Loaded(playback.wanted[url], round(asked_s * SECOND), round(there_s * SECOND), size))
    found = playback.measures(20 * SECOND, 5 * SECOND)
    single = {"start_up_s": 1.0, "stalls": 1, "stalled_s": 2.0, "switches": 1, "decoder_stalled_s": 0.5}
    assert {name: found[name] for name in single} == single
    assert found["dropped_frames_percent"] == 10
    assert found["stall_s"] == {"values": [2.0], "times_s": [10.0]}
    assert found["buffer_s"] == {"values": [3.0, 2.0], "times_s": [7.0, 14.0]}
    assert found["throughput_mbit_s"]["values"] == [32.0, 16.0, 16.0]
    # The second chunk was loaded again in another rendition: 4 and 8 Mbit/s count.
    assert found["mean_bitrate_mbit_s"] == 6
    assert found["qoe_mbit_s"] == (4 + 8 - 4 - 3 * 2 - 3 * 1) / 2 == qoe([4, 8], 2, 1)


def test_a_playback_that_never_began_has_no_start_up_and_the_whole_time_as_penalty() -> None:
    playback = Playback(begin_ns=0)
    wanted = Wanted(4_000_000, 720, 0.0, 4.0)
    playback.loaded.append(Loaded(wanted, SECOND, 2 * SECOND, 2_000_000))
    found = playback.measures(10 * SECOND, 0)
    assert "start_up_s" not in found
    assert found["qoe_mbit_s"] == 4 - 3 * 10


def test_frames_that_were_not_decoded_in_time_disturb_a_run() -> None:
    application = kind.describe({"version": "2", "protocol": "dash", "renditions": ["2160p"]})
    row = ("workload", "endpoint-0", "workload.endpoint-0.client", "dropped_frames_percent", "%", None, None)
    for dropped, expected in ((4.9, []), (12.0, ["endpoint-0: frames that came too late to be shown: 12 %"])):
        found = list(overload_reasons([application], pl.DataFrame([(*row, dropped)], schema=SCHEMA, orient="row")))
        assert len(found) == len(expected)
        assert all(text in each for text, each in zip(expected, found, strict=True))


@real
def test_a_dash_video_is_played_and_every_chunk_is_found_in_the_packet_log(tmp_path: Path) -> None:
    run = run_scenario(tmp_path, f"{HEAD}{NODES}\n{BOTH}", "--no-limits")
    chunks = pl.read_parquet(run / "requests.parquet").filter(app="video")
    assert set(chunks["status"]) == {"ok"}
    assert set(chunks["chunk"]) == {0, 1}
    assert set(chunks["protocol"]) == {"h2"}
    for row in chunks.iter_rows(named=True):
        assert row["step"] == {4_000_000: "720p", 8_000_000: "1080p"}[row["rate"]]
        assert abs(row["bytes_down"] / (row["rate"] / 2) - 1) < 0.05
        assert row["latency_s"] > row["bytes_down"] * 8 / 20e6
    assert chunks["residual_s"].null_count() == 0
    assert chunks["residual_s"].median() < 2e-3 + lateness_s(run)  # type: ignore[operator]
    assert (chunks["part_downlink_delay"] > 0.0129).all()  # 10 and 3 ms
    single, series = _measures(run)
    assert single["start_up_s"] > 0.5
    assert single["mean_bitrate_mbit_s"] in (4, 6, 8)
    assert set(series["measure"]) >= {"buffer_s", "bitrate_mbit_s", "throughput_mbit_s"}
    assert series.filter(measure="buffer_s")["value"].max() > 3  # type: ignore[operator]
    page = (run / "report.html").read_text()
    assert "throughput of a chunk" in page
    assert "(synthetic)" in page


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "protocol"),
    [
        ('protocol = "hls"\nversion = "1.1"\n', "http/1.1"),
        pytest.param('version = "3"\nsoftware = "caddy"\n', "h3", marks=needs_caddy),
    ],
)
def test_hls_and_other_versions_of_http_are_decomposed_likewise(tmp_path: Path, keys: str, protocol: str) -> None:
    run = run_scenario(tmp_path, f"{HEAD}{NODES}\n{APP}{keys}", "--no-limits")
    chunks = pl.read_parquet(run / "requests.parquet").filter(app="video")
    assert chunks["chunk"].to_list() == [0, 1]
    assert set(chunks["status"]) == {"ok"}
    assert set(chunks["protocol"]) == {protocol}
    assert chunks["residual_s"].null_count() == 0
    single, _ = _measures(run)
    assert single["start_up_s"] < 8


RULE = "function rule({ rates, index, buffer_s, throughputs }) { return rates.length - 1 }\n"


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        pytest.param(
            "\nfunction rule( { return 0 }\n",
            "rule.js, line 2: SyntaxError",
            marks=pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
        ),
        ("function choose() { return 0 }\n", "rule.js has no function rule: write function rule("),
    ],
)
def test_a_file_that_is_no_rule_is_an_error_of_a_dry_run(tmp_path: Path, rule: str, problem: str) -> None:
    (tmp_path / "rule.js").write_text(rule)
    (tmp_path / "x.toml").write_text(f'{HEAD}{NODES}\n{APP}abr = "rule.js"\n')
    done = cellbed("run", tmp_path / "x.toml", "--dry-run", status=2)
    assert problem in done.stderr


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "abr"),
    [("dash", "rule.js"), ("hls", "rule.js"), *(("dash", abr) for abr in ("throughput", "bola", "l2a", "lol+"))],
)
def test_an_own_rule_and_those_of_dash_js_choose_the_renditions(tmp_path: Path, protocol: str, abr: str) -> None:
    (tmp_path / "rule.js").write_text(RULE)
    keys = f'protocol = "{protocol}"\nabr = "{abr}"\n'
    run = run_scenario(tmp_path, f"{HEAD}{NODES}\n{BOTH}{keys}", "--no-limits")
    chunks = pl.read_parquet(run / "requests.parquet").filter(app="video")
    assert set(chunks["chunk"]) == {0, 1}
    if abr == "rule.js":
        assert set(chunks.filter(pl.col("chunk") > 0)["step"]) == {"1080p"}
    else:
        assert _measures(run)[0]["start_up_s"] < 8


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:900_000])


@real
@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "error"), [(_cut, "the video: PipelineStatus"), (Path.unlink, "is not available")])
def test_a_video_file_that_is_cut_short_or_missing_is_reported(
    tmp_path: Path, spoil: Callable[[Path], None], error: str
) -> None:
    """A manifest of the user's own."""
    shutil.copytree(_made(tmp_path, "720p"), tmp_path / "own")
    spoil(tmp_path / "own" / "720p" / "1.m4s")
    app = APP.replace('length = "8 s"\nrenditions = ["720p"]', 'manifest = "own/720p.mpd"')
    (tmp_path / "x.toml").write_text(f"{HEAD}{NODES}\n{app}")
    cellbed("run", tmp_path / "x.toml", "--no-limits", "--out", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()
    reasons = json.loads((run / "summary.json").read_text())["applications"][0]["reasons"]
    assert any(error in reason for reason in reasons), reasons


def test_a_video_is_predicted_without_browser_and_encoder(tmp_path: Path) -> None:
    app = BOTH.replace('"8 s"', '"24 s"') + 'abr = "throughput"\n'
    text = HEAD.replace('"11 s"', '"40 s"') + NODES + app
    run = run_scenario(tmp_path, text, "--virtual")
    measures, _ = _measures(run)
    chunks = pl.read_parquet(run / "requests.parquet").sort("chunk")
    assert chunks["chunk"].to_list() == list(range(6))
    # 20 Mbit/s carry the higher rendition, with which the player begins as soon as it knows.
    assert chunks["rate"].to_list() == [4_000_000, *[8_000_000] * 5]
    assert (measures["stalls"], measures["switches"]) == (0, 1)
    assert all(4 * 8e6 / 20e6 < latency_s < 2.2 for latency_s in chunks["latency_s"].tail(5))
    (tmp_path / "y.toml").write_text(text.replace("20 Mbit/s", "3 Mbit/s"))
    cellbed("run", tmp_path / "y.toml", "--virtual", "--out", tmp_path / "slow", status=0)
    (run,) = (tmp_path / "slow").iterdir()
    assert _measures(run)[0]["stalled_s"] > 5


def test_a_player_keeps_its_buffer_and_bola_chooses_by_it() -> None:
    player = Player([1_000_000, 4_000_000, 20_000_000], 4.0, 20, "bola")
    now_ns, chosen = 0, []
    while (asked_ns := player.next_ns(now_ns)) is not None:
        chosen.append(player.choose(asked_ns))
        size = player.rates[chosen[-1]] * 4 // 8
        now_ns = asked_ns + size * 8 * 100  # 10 Mbit/s
        player.arrived(size, asked_ns, now_ns)
        assert player.buffered_s(now_ns) <= 30.0
    assert chosen[:2] == [0, 1]
    assert set(chosen[1:]) <= {1, 2}
    assert not player.stalls


def test_a_video_that_cannot_be_predicted_is_an_error_of_its_keys(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(HEAD + NODES + APP + 'abr = "l2a"\nversion = "3"\nsoftware = "caddy"\n')
    done = cellbed("run", tmp_path / "x.toml", "--virtual")
    assert done.returncode != 0
    assert "abr = 'l2a'" in done.stderr
    assert 'version = "3"' in done.stderr

"""Traces: the archive is generated as published figures say, any file can be used, a malformed one is refused."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from cellbed.archive import ARCHIVE, Archive, TraceError, resolve
from cellbed.archive.examples import MODELS
from cellbed.archive.series import ENDINGS, OPPORTUNITY_BYTES

DIGESTS = {
    "lte-suburban.up": "934d75e05742087cd6f06cf1bbc31a8d8f8e896db710abca24368da3198a3437",
    "lte-suburban.down": "b9bd738136a1658998bfc9026d7fab1705a7046c1a60fca72f771a87d96f9611",
    "5g-midband.up": "e05fc433a7b4ffd7ed0e0950c5a1623aafd33ff8bd0d62dc618353b776cbe18d",
    "5g-midband.down": "a027056626fee001f34b8ae8934b617f861f17cfca702c2679a17f117e65d0a3",
}


@pytest.mark.parametrize("name", ARCHIVE)
def test_an_example_is_the_same_everywhere_and_has_the_statistics_of_its_model(
    name: str, archive_of_examples: Path
) -> None:
    model, (entry, _, way) = MODELS[name], name.rpartition(".")
    series = Archive(archive_of_examples).series(entry, ENDINGS[way])
    times = (series.scan().collect()["at_ns"] // 10**6).to_list()
    assert hashlib.sha256("".join(f"{time}\n" for time in times).encode()).hexdigest() == DIGESTS[name]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] == model.duration * 1000
    rates = np.bincount((np.array(times) - 1) // 1000) * OPPORTUNITY_BYTES * 8
    assert rates.mean() == pytest.approx(model.mean, rel=0.1)
    # Poisson counts scatter around the bounds of the rate, by 4 sigma at most in 120 draws.
    highest = model.high + 4 * (model.high * OPPORTUNITY_BYTES * 8) ** 0.5
    assert 0.8 * model.high < max(rates) < highest


def test_data_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(TraceError, match="set XDG_DATA_HOME"):
        _ = resolve("lte-suburban.up", Path()).path


def test_any_file_by_path(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "mine.up"
    path.write_text("0\n1\n1\n4\n")
    source = resolve("sub/mine.up", tmp_path)
    assert (source.path, source.synthetic) == (path, False)
    assert resolve(str(path), Path("/nowhere")).path == path
    assert source.sha256 == hashlib.sha256(b"0\n1\n1\n4\n").hexdigest()
    assert source.trace.opportunities == 4
    assert source.trace.duration_ns == 4_000_000


def test_a_malformed_trace_is_refused_with_file_line_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "bad.up"
    for content, place in ((b"", ":"), (b"1\n2\nthree\n", ":3: "), (b"5\n3\n", ":2: "), (b"1\n\xff\xfe\x00\n", ":2: ")):
        path.write_bytes(content)
        with pytest.raises(TraceError) as caught:
            _ = resolve("bad.up", tmp_path).trace
        assert str(caught.value).startswith(f"{path}{place}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown trace ''"),
        (".", "'.' is a folder, not a trace file: write"),
        ("..", "'..' is a folder, not a trace file: write"),
        ("/dev/zero", "'/dev/zero' is a device, not a trace file: write"),
        ("/nowhere/x.up", "there is no file '/nowhere/x.up': write"),
        ("sub/x.up", "there is no file 'sub/x.up' in {folder}: write"),
        ("x.up", "unknown trace 'x.up', and no such file in {folder}: "),
        ("a\0b", "cannot be used as a trace file"),
        ("~nobody-of-this-name/x", "there is no file '~nobody-of-this-name/x'"),
        ("x" * 5000, "File name too long"),
    ],
)
def test_paths_that_are_no_trace_file_are_refused_with_the_reason(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        resolve(text, tmp_path)
    message = str(caught.value)
    assert words.format(folder=tmp_path) in message
    assert ARCHIVE[0] in message
    assert "\n" not in message
    assert len(message) < 600

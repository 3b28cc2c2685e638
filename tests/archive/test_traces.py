"""Traces: the archive is generated as published figures say, any file can be used, a malformed one is refused."""

import hashlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cellbed.archive import ARCHIVE, TraceError, resolve
from cellbed.archive.examples import MODELS, PDO_BYTES, Example

MODEL_LIST = list(MODELS.values())
DIGESTS = {
    "lte-suburban.up": "934d75e05742087cd6f06cf1bbc31a8d8f8e896db710abca24368da3198a3437",
    "lte-suburban.down": "b9bd738136a1658998bfc9026d7fab1705a7046c1a60fca72f771a87d96f9611",
    "5g-midband.up": "e05fc433a7b4ffd7ed0e0950c5a1623aafd33ff8bd0d62dc618353b776cbe18d",
    "5g-midband.down": "a027056626fee001f34b8ae8934b617f861f17cfca702c2679a17f117e65d0a3",
}


@pytest.fixture(scope="module")
def stamps() -> dict[str, list[int]]:
    """Milliseconds of every opportunity of each trace of the archive."""
    return {model.name: model.stamps() for model in MODEL_LIST}


def _rates(stamps: list[int], seconds: int) -> list[float]:
    """bit/s in each second."""
    counts = [0] * seconds
    for stamp in stamps:
        counts[(stamp - 1) // 1000] += 1
    return [count * PDO_BYTES * 8 for count in counts]


def test_examples_are_the_same_everywhere(stamps: dict[str, list[int]]) -> None:
    texts = {name: "".join(f"{stamp}\n" for stamp in times) for name, times in stamps.items()}
    assert {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()} == DIGESTS


@pytest.mark.parametrize("model", MODEL_LIST, ids=ARCHIVE)
def test_statistics_are_those_of_the_model(model: Example, stamps: dict[str, list[int]]) -> None:
    times = stamps[model.name]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] == model.duration * 1000
    rates = _rates(times, model.duration)
    assert sum(rates) / len(rates) == pytest.approx(model.mean, rel=0.1)
    # Poisson counts scatter around the bounds of the rate, by 4 sigma at most in 120 draws.
    highest = model.high + 4 * (model.high * PDO_BYTES * 8) ** 0.5
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


@pytest.mark.parametrize(
    "content",
    [b"1\r\n2\r\n", b"# a comment\n1\n2\n", b"1\n\n2\n\n", b"1\n2"],
    ids=["CRLF", "comment", "blank", "no newline"],
)
def test_tolerated_forms(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace").write_bytes(content)
    assert resolve("trace", tmp_path).trace.opportunities == 2


MALFORMED: dict[str, tuple[bytes, int | None]] = {
    "empty": (b"", None),
    "zeros only": (b"0\n0\n", None),
    "decimal": (b"1\n2.5\n", 2),
    "letters": (b"1\n2\nthree\n", 3),
    "backwards": (b"5\n3\n", 2),
    "too large": (b"1\n99999999999999999999999999\n", 2),
    "not text": (b"1\n\xff\xfe\x00\n", 2),
}


@pytest.mark.parametrize(("content", "line"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_trace_is_refused_with_file_line_and_reason(tmp_path: Path, content: bytes, line: int | None) -> None:
    path = tmp_path / "bad.up"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        _ = resolve("bad.up", tmp_path).trace
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: " if line else f"{path}:")
    assert "\n" not in message


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


def test_show_one_trace(tmp_path: Path) -> None:
    from cellbed.cli.traces import app

    path = tmp_path / "mine.down"
    path.write_text("".join(f"{stamp}\n" for stamp in range(1, 1001)))
    shown = CliRunner().invoke(app, ["show", str(path)])
    assert shown.exit_code == 0, shown.output
    for part in ("recorded", "1 s", "mean 12 Mbit/s", "longest gap 1 ms", "1,000 opportunities"):
        assert part in shown.output

"""The data bank and what an endpoint does to a photograph."""

import concurrent.futures
import contextlib
import io
import statistics
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cellbed.support.errors import CellbedError
from cellbed.workloads.image_classification.photographs import data_bank
from cellbed_node.offloading import jpeg
from cellbed_node.offloading.endpoint import Images, UnusableInputError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def _photograph(level: int = 128) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (level, level, level)).save(buffer, "JPEG")
    return buffer.getvalue()


def test_the_bank_has_the_sizes_that_were_asked_for(cache: Path) -> None:
    said: list[str] = []
    bank = data_bank(cache, note=said.append)
    images = Images(bank)
    contents = [images.payload(name) for name in images.names]
    sizes = [len(content) for content in contents]
    assert len(sizes) == 100
    assert min(sizes) >= 7_000
    assert max(sizes) <= 170_000
    assert abs(statistics.median(sizes) / 65_000 - 1) < 0.05
    assert len(said) == 1
    for content in contents:
        with Image.open(io.BytesIO(content)) as image:
            assert image.format == "JPEG"
            size = image.size
        assert jpeg.preprocess(content) == content
        reduced = jpeg.preprocess(content, 0.5)
        with Image.open(io.BytesIO(reduced)) as image:
            assert image.size == (round(size[0] / 2), round(size[1] / 2))
        assert len(reduced) < 0.6 * len(content)
    said.clear()
    assert data_bank(cache, note=said.append) == bank
    assert said == []


def _build(folder: Path) -> dict[str, bytes]:
    images = Images(data_bank(folder, count=5))
    return {name: images.payload(name) for name in images.names}


def test_two_processes_may_build_the_bank_at_once_and_it_is_the_same_elsewhere(tmp_path: Path) -> None:
    with concurrent.futures.ProcessPoolExecutor(3) as pool:
        first, second, elsewhere = pool.map(_build, [tmp_path / "one", tmp_path / "one", tmp_path / "other"])
    assert first == second == elsewhere
    assert len(list((tmp_path / "one").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CellbedError, match="XDG_CACHE_HOME"):
        data_bank(tmp_path / "file" / "cache", count=1, note=lambda _: None)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    with pytest.raises(CellbedError, match=r"pip install .* -r requirements/demo\.txt"):
        data_bank(tmp_path, count=1, note=lambda _: None)


@pytest.mark.parametrize("level", [0, 255])
def test_black_and_burnt_out_photographs_are_unusable(level: int) -> None:
    with pytest.raises(UnusableInputError, match="luminance"):
        jpeg.preprocess(_photograph(level))


@given(st.binary(max_size=300) | st.integers(0, 600).map(lambda size: _photograph()[:size]))
def test_what_is_no_photograph_is_unusable_and_never_another_error(content: bytes) -> None:
    with contextlib.suppress(UnusableInputError):
        jpeg.preprocess(content)

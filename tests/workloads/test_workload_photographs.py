"""The data bank and what an endpoint does to a photograph."""

import concurrent.futures
import hashlib
import io
import json
import statistics
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cellbed.support.errors import CellbedError
from cellbed.workloads.image_classification import jpeg, photographs
from cellbed.workloads.image_classification.photographs import data_bank
from cellbed.workloads.offloading.endpoint import UnusableInputError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def _photograph(level: int = 128, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (level, level, level)).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def test_the_bank_has_the_sizes_that_were_asked_for(cache: Path) -> None:
    said: list[str] = []
    bank = data_bank(cache, note=said.append)
    sizes = [photograph.bytes for photograph in bank.photographs]
    assert len(sizes) == 100
    assert min(sizes) >= 7_000
    assert max(sizes) <= 170_000
    assert abs(statistics.median(sizes) / 65_000 - 1) < 0.05
    assert len(said) == 1
    manifest = json.loads((bank.folder / "manifest.json").read_text())
    assert manifest["seed"] == photographs.SEED
    for entry, content in zip(manifest["photographs"], bank.load(), strict=True):
        assert entry["bytes"] == len(content)
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        with Image.open(io.BytesIO(content)) as image:
            assert image.format == "JPEG"
            size = image.size
        jpeg.preprocess(content)
        reduced = jpeg.preprocess(content, 0.5)
        with Image.open(io.BytesIO(reduced)) as image:
            assert image.size == (round(size[0] / 2), round(size[1] / 2))
        assert len(reduced) < 0.6 * len(content)
    said.clear()
    assert data_bank(cache, note=said.append) == bank
    assert said == []


def test_the_bank_is_the_same_wherever_it_is_built(tmp_path: Path) -> None:
    banks = [data_bank(tmp_path / name, count=5, note=lambda _: None) for name in ("one", "other")]
    assert banks[0].photographs == banks[1].photographs


def test_a_damaged_bank_is_built_again(tmp_path: Path) -> None:
    bank = data_bank(tmp_path, count=3, note=lambda _: None)
    (bank.folder / "001.jpg").write_bytes(b"damaged")
    assert data_bank(tmp_path, count=3, note=lambda _: None) == bank
    assert hashlib.sha256(bank.load()[1]).hexdigest() == bank.photographs[1].sha256
    (bank.folder / "manifest.json").unlink()
    assert data_bank(tmp_path, count=3, note=lambda _: None) == bank
    assert [path.name for path in tmp_path.iterdir()] == [bank.folder.name]


def _build(folder: Path) -> tuple[photographs.Photograph, ...]:
    return data_bank(folder, count=5, note=lambda _: None).photographs


def test_two_processes_may_build_it_at_once(tmp_path: Path) -> None:
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        first, second = pool.map(_build, [tmp_path, tmp_path])
    assert first == second
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CellbedError, match="XDG_CACHE_HOME"):
        data_bank(tmp_path / "file" / "cache", count=1, note=lambda _: None)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    with pytest.raises(CellbedError, match="pip install --force-reinstall matplotlib"):
        data_bank(tmp_path, count=1, note=lambda _: None)


def test_metadata_goes_and_the_picture_stays() -> None:
    exif = Image.Exif()
    exif[0x010E] = "a description that is nobody's business"
    rich = _photograph(exif=exif, comment=b"a comment", icc_profile=b"p" * 300)
    plain = jpeg.strip_metadata(rich)
    assert b"nobody" in rich
    assert b"nobody" not in plain
    assert b"a comment" not in plain
    with Image.open(io.BytesIO(rich)) as before, Image.open(io.BytesIO(plain)) as after:
        assert after.tobytes() == before.tobytes()
        assert after.info["icc_profile"] == before.info["icc_profile"]
        assert not after.getexif()
    assert jpeg.strip_metadata(plain) == plain


@pytest.mark.parametrize("level", [0, 255])
def test_black_and_burnt_out_photographs_are_unusable(level: int) -> None:
    with pytest.raises(UnusableInputError, match="luminance"):
        jpeg.preprocess(_photograph(level))


@given(st.binary(max_size=300) | st.integers(0, 600).map(lambda size: _photograph()[:size]))
def test_what_is_no_photograph_is_unusable_and_never_another_error(content: bytes) -> None:
    for step in (jpeg.strip_metadata, jpeg.preprocess):
        try:
            step(content)
        except UnusableInputError:
            continue

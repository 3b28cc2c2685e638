"""The translation of sentences: data bank, seeded model, and a run with and without offloading."""

import json
import os
from pathlib import Path

import polars as pl
import pytest

from cellbed.scenario import ScenarioError, load
from cellbed.workloads.translation import marian, sentences
from cellbed_node.offloading import translator
from cellbed_node.offloading.broker import find_mosquitto
from cellbed_node.offloading.sentences import Sentences
from cellbed_node.offloading.task import ModelError, check
from in_process import cellbed
from scenario_text import tables

TINY = marian.Shape(layers=1, width=16, heads=2, feed_forward=32, vocabulary=400)
SCENARIO = tables(
    name="translation",
    duration="3 s",
    seed=5,
    nodes={"endpoint": {"count": 2, "cpus": 1.0, "memory": "512 MiB"}},
    links={"mobile": {"up": "20 Mbit/s", "down": "20 Mbit/s", "base_delay": "5 ms"}},
)
REMOTE = tables(nodes={"edge": {"cpus": 2.0, "memory": "1 GiB"}}, links={"core": {"edge": "2 ms"}})
APPLICATION = """
[apps.{name}]
kind = "translation"
server = "{server}"
rate = "1 /s"
timeout = "5 min"
drain = "5 min"
"""
OFFLOADED = SCENARIO + REMOTE + APPLICATION.format(name="sentences", server="edge")
LOCAL = SCENARIO + APPLICATION.format(name="sentences", server="endpoint")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    marian.write(folder, shape=TINY)
    return folder


def test_sentences_have_their_size_and_differ(tmp_path: Path) -> None:
    notes: list[str] = []
    bank = Sentences(sentences.data_bank(tmp_path, count=200, note=notes.append))
    payloads = [bank.payload(name) for name in bank.names]
    assert len(set(payloads)) == 200
    assert all(100 <= len(payload) <= 200 for payload in payloads)
    sentences.data_bank(tmp_path, count=200, note=notes.append)
    assert len(notes) == 1


def test_seeded_replies_have_the_length_of_the_sentence(tiny: Path) -> None:
    task = translator.load(str(tiny))
    replies = set()
    for number in range(20):
        sentence = sentences.sentence(1, number).encode()
        reply = task.compute(task.decode(sentence))
        assert abs(len(reply.encode()) - len(sentence)) <= 4
        assert 100 <= len(reply.encode()) <= 200
        replies.add(reply)
    assert len(replies) > 1
    with pytest.raises(ValueError, match="cannot be decoded"):
        task.decode(b"\xff\xfe")


def test_building_twice_gives_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    marian.write(tmp_path, shape=TINY)
    files = sorted(file.name for file in tiny.iterdir())
    assert files == sorted(file.name for file in tmp_path.iterdir())
    assert all((tmp_path / name).read_bytes() == (tiny / name).read_bytes() for name in files)


def test_a_model_of_the_users_own_needs_no_sentencepiece(tiny: Path, tmp_path: Path) -> None:
    for file in tiny.iterdir():
        if file.name not in ("source.spm", "seeded.json"):
            (tmp_path / file.name).symlink_to(file)
    task = translator.load(str(tmp_path))
    assert len(task.compute(task.decode(b"The bridge")).split()) > 1
    assert check("cellbed_node.offloading.translator", model=str(tmp_path)) is None


def test_a_model_in_pytorch_translates(tmp_path: Path) -> None:
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="needs PyTorch: pip install 'cellbed[torch]'")
    marian.write_for_torch(tmp_path, shape=TINY)
    task = translator.load(str(tmp_path))
    sentence = sentences.sentence(1, 1).encode()
    assert task.compute(task.decode(sentence))
    (tmp_path / "model.safetensors").write_bytes(b"no model")
    with pytest.raises(ModelError, match="transformers cannot load this model"):
        check("cellbed_node.offloading.translator", model=str(tmp_path))


def test_malformed_model_is_a_clear_error(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model\.bin"):
        translator.load(str(tmp_path))
    (tmp_path / "model.bin").write_bytes(b"no model")
    with pytest.raises(ModelError, match="CTranslate2 cannot load this model"):
        check("cellbed_node.offloading.translator", model=str(tmp_path))
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(OFFLOADED + 'model = "model.bin"')
    with pytest.raises(ScenarioError, match=r"'model\.bin' is not a folder"):
        load(scenario)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs: sentences translated at the edge, and on the endpoints."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK) or find_mosquitto() is None:
        pytest.skip("no /dev/net/tun or no Mosquitto")
    here = tmp_path_factory.mktemp("run")
    for name, text in (("offloaded", OFFLOADED), ("local", LOCAL)):
        (here / f"{name}.toml").write_text(text)
        cellbed("run", here / f"{name}.toml", "--out", here / f"{name}-runs", status=0)
        next((here / f"{name}-runs").iterdir()).rename(here / name)
    return here


def test_each_request_is_answered_and_its_parts_add_up(folder: Path) -> None:
    requests = pl.read_parquet(folder / "offloaded" / "requests.parquet")
    assert set(requests["status"]) == {"ok"}
    seeded = requests.filter(app="sentences")
    assert len(seeded) == 6
    assert seeded["output"].null_count() == 0
    assert seeded["bytes_up"].is_between(100, 200).all()
    assert seeded["bytes_down"].is_between(100, 200).all()
    assert (seeded["part_inference"] > 0).all()
    assert (seeded["part_uplink_delay"] >= 0.007).all()


def test_without_offloading_there_are_no_parts_of_the_network(folder: Path) -> None:
    local = pl.read_parquet(folder / "local" / "requests.parquet")
    assert list(local["status"]) == ["ok"] * 6
    assert local["uplink_entered_ns"].null_count() == len(local)
    assert local["residual_s"].abs().max() < 1e-9
    (described,) = json.loads((folder / "local" / "run.json").read_text())["applications"]
    assert {span["place"] for span in described["spans"]} == {"endpoint"}
    for endpoint in ("endpoint-0", "endpoint-1"):  # each is served on its own node
        assert len((folder / "local" / "raw" / f"sentences.{endpoint}.service.jsonl").read_text().splitlines()) == 3


def test_runs_with_and_without_offloading_are_compared_request_by_request(folder: Path) -> None:
    done = cellbed("compare", folder / "offloaded", folder / "local", status=0)
    assert "the parts of sentences differ between these runs" in done.stdout


def test_the_report_labels_seeded_weights_and_synthetic_sentences(folder: Path) -> None:
    page = (folder / "local" / "report.html").read_text()
    assert marian.NOTE in page
    assert sentences.NOTE[1:] in page
    assert "Hand-over" in page

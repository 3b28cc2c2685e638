"""The first steps of a user: examples, and a scenario from five questions."""

import json
import os
import pty
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import psutil
import pytest

from cellbed.scenario import Scenario, load, starter
from cellbed.scenario.applications import tables
from cellbed.scenario.examples import examples
from distributions import environment, install
from in_process import cellbed, completions

ROOT = Path(__file__).parents[2]


def test_run_without_a_file_lists_what_to_write(tmp_path: Path) -> None:
    error = cellbed("run", cwd=tmp_path, status=2).stderr
    assert "cellbed init FILE" in error
    assert "cellbed run --example NAME" in error
    assert all(path.stem in error for path in (ROOT / "scenarios").glob("*.toml"))


def test_examples_are_listed_with_the_first_sentence_of_their_comment(tmp_path: Path) -> None:
    lines = cellbed("examples", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.stem for path in (ROOT / "scenarios").glob("*.toml"))
    assert all(line.endswith((".", "?")) for line in lines)
    (sentence,) = (line.split(maxsplit=1)[1] for line in lines if line.startswith("offload-lte "))
    assert sentence == "Image classification offloaded to an edge node over an LTE link."
    listed = json.loads(cellbed("examples", "--json", cwd=tmp_path).stdout)
    assert sentence in [each["sentence"] for each in listed]
    assert "offload-lte" in completions("cellbed examples off", tmp_path)


def test_each_example_is_copied_with_the_files_that_it_names(tmp_path: Path) -> None:
    for name, example in examples().items():
        copied = example.copy(tmp_path / name)
        assert load(copied[0]).name == name
        assert all(path.parent == tmp_path / name for path in copied)


def test_an_example_is_printed_copied_once_and_run_by_its_name(tmp_path: Path) -> None:
    text = (ROOT / "scenarios" / "migration.toml").read_text()
    assert cellbed("examples", "migration", cwd=tmp_path).stdout == text
    copied = cellbed("examples", "migration", "--copy", "mine", cwd=tmp_path).stdout.split()
    assert copied == ["mine/migration.toml", "mine/sessions.py", "mine/state.py"]
    again = cellbed("examples", "migration", "--copy", "mine", cwd=tmp_path, status=2)
    assert again.stderr == "error: mine/migration.toml: exists already: choose another folder\n"
    assert cellbed("run", "--example", "smoke", "--dry-run", cwd=tmp_path).stdout.startswith("smoke: 5 s")
    assert "did you mean 'smoke'?" in cellbed("run", "--example", "smok", cwd=tmp_path, status=2).stderr
    assert "remove it" in cellbed("run", "x.toml", "--example", "smoke", cwd=tmp_path, status=2).stderr


def write(path: Path, **given: str) -> Scenario:
    """The scenario that answers give; all others are the defaults."""
    path.write_text(starter.collect(path, dict.fromkeys(starter.QUESTIONS) | given, None))
    return load(path)


def test_a_scenario_of_each_kind_node_and_network_is_written_and_accepted(tmp_path: Path) -> None:
    kinds, nodes, networks = (starter.QUESTIONS[name].choices() for name in ("what", "where", "network"))
    assert kinds.keys() == tables().keys()
    assert {"namespace", "container", "vm", "host"} <= nodes.keys()
    assert {"lte-suburban", "5g-midband", "lowband-driving"} <= networks.keys()
    for kind in kinds:
        assert [each.kind for each in write(tmp_path / "x.toml", what=kind).applications.values()] == [kind]
    for node in nodes:
        made = write(tmp_path / "x.toml", where=f"{node} at 4 ms", network="9 Mbit/s")
        assert made.nodes["edge"].backend.kind == node
    for network in networks:
        write(tmp_path / "x.toml", where="vm", network=network)


@pytest.mark.parametrize(
    ("given", "measure"),
    [
        ({"what": "http"}, "p99_latency < 300 ms"),
        ({"what": "http", "load": "2 /s"}, "median_latency < 300 ms"),
        ({"what": "web"}, "median_latency < 300 ms"),
        ({"what": "program"}, "connections > 0"),
    ],
)
def test_the_suggested_expectation_can_be_decided(tmp_path: Path, given: dict[str, str], measure: str) -> None:
    write(tmp_path / "x.toml", **given)
    ((name, limit),) = tomllib.loads((tmp_path / "x.toml").read_text())["expect"].items()
    assert f"{name} {limit}" == measure


def test_a_kind_of_another_distribution_can_be_chosen(tmp_path: Path) -> None:
    site = install(tmp_path / "site", "[cellbed.applications]\necho = example_kind.kind:Echo\n")
    command = [sys.executable, "-m", "cellbed", "init", "x.toml", "--what", "echo"]
    environment_ = environment(site, ROOT / "tests/support")
    done = subprocess.run(command, env=environment_, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert tomllib.loads((tmp_path / "x.toml").read_text())["apps"]["echo"]["server"] == "edge"


def test_options_are_in_the_file_which_passes_the_check_of_this_machine(tmp_path: Path) -> None:
    options = ["--what", "http", "--where", "eu-west-3", "--network", "5g-midband", "--load", "poisson 3 /s"]
    cellbed("init", "my shop.toml", *options, "--ask", "failed_share < 1 %", cwd=tmp_path, status=0)
    text = (tmp_path / "my shop.toml").read_text()
    written = tomllib.loads(text)
    assert written["name"] == "my-shop"
    assert written["links"]["mobile"]["up"] == "5g-midband.up"
    assert written["links"]["core"] == {"cloud": "eu-west-3"}
    assert written["apps"]["http"]["arrivals"] == "poisson"
    assert written["expect"] == {"failed_share": "< 1 %"}
    assert "\n# Made by: cellbed init 'my shop.toml' --what http" in text
    cellbed("run", "my shop.toml", "--dry-run", cwd=tmp_path, status=0)


def test_a_schema_beside_the_file_completes_it_in_editors(tmp_path: Path) -> None:
    (tmp_path / "cellbed.schema.json").write_text(cellbed("schema").stdout)
    cellbed("init", "x.toml", cwd=tmp_path, status=0)
    assert (tmp_path / "x.toml").read_text().startswith("#:schema ./cellbed.schema.json\n# Photographs go ")
    if shutil.which("taplo") is None:
        pytest.skip("taplo, the language server of Even Better TOML, is not installed")
    (tmp_path / "wrong.toml").write_text(
        (tmp_path / "x.toml").read_text().replace("[nodes.edge]", "[nodes.edge]\ncpu = 1")
    )
    for file, status in (("x.toml", 0), ("wrong.toml", 1)):
        done = subprocess.run(["taplo", "lint", file], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == status, done.stderr


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("mine")
    refused = cellbed("init", "x.toml", cwd=tmp_path, status=2)
    assert refused.stderr == "error: x.toml: exists already: write another name, or --force to replace it\n"
    assert (tmp_path / "x.toml").read_text() == "mine"
    cellbed("init", "x.toml", "--force", cwd=tmp_path, status=0)
    assert load(tmp_path / "x.toml").name == "x"
    assert "there is no folder none: make it" in cellbed("init", "none/x.toml", cwd=tmp_path, status=2).stderr


@pytest.mark.parametrize(
    ("option", "answer", "error"),
    [
        ("what", "htp", "did you mean 'http'?"),
        ("where", "vm at mars", "'mars'"),
        ("where", "rack at 3 ms", "'rack'"),
        ("network", "5g-midbnd", "did you mean '5g-midband"),
        ("network", "\x1b[2J", "'\\x1b[2J'"),
        ("load", "8", "'8' has no unit"),
        ("ask", "fast", "'fast' is not an expectation: write"),
        ("ask", "speed < 3", "there is no measure 'speed'"),
    ],
)
def test_a_wrong_answer_is_one_error_and_writes_nothing(tmp_path: Path, option: str, answer: str, error: str) -> None:
    done = cellbed("init", f"--{option}", answer, cwd=tmp_path, status=2)
    assert done.stderr.startswith(f"error: --{option}: ")
    assert error in done.stderr
    assert list(tmp_path.iterdir()) == []


def at_terminal(folder: Path, *typed: str) -> tuple[int, str]:
    """Exit status and output of `cellbed init` at a terminal where a line is typed at each prompt."""
    master, slave = pty.openpty()
    command = [sys.executable, "-P", "-m", "cellbed", "init", "x.toml", "--network", "9 Mbit/s"]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, start_new_session=True, preexec_fn=_take_terminal
    ) as process:
        os.close(slave)
        shown = ""
        for text in typed:
            while not shown.endswith("] "):
                shown += os.read(master, 4096).decode()
            # Python notices a Ctrl-C between the prompt and the wait for an answer only after the answer.
            while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
                time.sleep(0.001)
            os.write(master, text.encode())
            shown += "\n"
        try:
            while received := os.read(master, 4096):
                shown += received.decode()
        except OSError:  # the process has closed the terminal
            pass
    os.close(master)
    return process.returncode, shown


def _take_terminal() -> None:
    os.close(os.open(os.ttyname(0), os.O_RDWR))


def test_questions_are_asked_at_a_terminal_again_after_a_wrong_answer(tmp_path: Path) -> None:
    status, shown = at_terminal(tmp_path, "webb\n", "transfers\n", "\n", "\n", "nothing\n")
    assert status == 0
    assert "did you mean 'web'?" in shown
    assert "Over which network?" not in shown  # an option has answered it
    written = load(tmp_path / "x.toml")
    assert [each.kind for each in written.applications.values()] == ["transfers"]


def test_ctrl_c_at_a_question_writes_nothing(tmp_path: Path) -> None:
    status, shown = at_terminal(tmp_path, "http\n", "\x03")
    assert status == 130
    assert "Traceback" not in shown
    assert list(tmp_path.iterdir()) == []

"""How fair a cell is to its users, and what each of them got."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.measure.cells import jain
from cellbed.measure.run_folder import read_run
from cellbed.measure.summary import collect
from in_process import cellbed
from predicted_runs import SECOND, change_json, make_run, read_log

AMOUNTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1e300)), min_size=1, max_size=60)


@given(AMOUNTS, st.floats(1e-3, 1e3), st.randoms())
def test_jains_index_lies_between_one_user_and_all(amounts: list[float], factor: float, random: object) -> None:
    index = jain(amounts)
    if max(amounts) == 0:
        assert index is None
        return
    assert 1 / len(amounts) - 1e-9 <= index <= 1
    # It depends neither on the unit nor on the order.
    if max(amounts) < 1e297 and min(each for each in amounts if each) > 1e-297:
        assert jain([each * factor for each in reversed(amounts)]) == pytest.approx(index)


def test_jains_index_is_the_share_of_users_that_are_served_equally() -> None:
    assert jain([7.5] * 3 + [0.0] * 9) == 0.25
    # (1 + 2 + 3)² / (3 · (1 + 4 + 9))
    assert jain([1, 2, 3]) == pytest.approx(6 / 7)
    assert jain([]) is None


def in_its_time(run: Path) -> np.ndarray[Any, Any]:
    """Packets that left a link's queue within the 10 s of a run, at times from its beginning."""
    log, t0 = read_log(run), read_run(run)["t0_ns"]
    log["arrived"] -= t0
    log["released"] -= t0
    return log[(log["drop"] == 0) & (log["released"] >= 0) & (log["released"] < 10 * SECOND)]


def test_users_of_a_cell_are_summarised_from_the_packet_log(tmp_path: Path) -> None:
    users = [f"mobile-{number}.uplink" for number in range(3)]
    cells = [{"name": "macro.uplink", "description": "round robin", "users": users}]
    served = [
        {"direction": name, "served_ns": nanos} for name, nanos in zip(users, (4 * SECOND, SECOND, 0), strict=True)
    ]
    account = {"cells": [{"name": "macro.uplink", "users": served}]}
    run = tmp_path / "run"
    make_run(run, duration=10, rate=4, endpoints=3, cells=cells, emulator=account)
    (cell,) = collect(run).cells
    log = in_its_time(run)
    for number, user in enumerate(cell.users):
        left = log[log["direction"] == 2 * number]
        assert user.direction == users[number]
        assert user.packets == len(left)
        assert user.throughput_mbit_s == pytest.approx(left["bytes"].sum() * 8 / 1e6 / 10)
        wait = np.sort(left["released"] - left["arrived"]) / 1e9
        assert user.queueing_p50_s == pytest.approx(wait[math.ceil(0.5 * len(wait)) - 1])
        assert user.queueing_p99_s == pytest.approx(wait[math.ceil(0.99 * len(wait)) - 1])
    assert [user.share for user in cell.users] == [0.8, 0.2, 0.0]
    assert cell.time_fairness == jain([0.8, 0.2, 0.0])
    assert cell.fairness == jain([user.throughput_mbit_s for user in cell.users])
    assert cell.throughput_mbit_s == pytest.approx(sum(user.throughput_mbit_s for user in cell.users))
    assert pl.read_parquet(run / "cells.parquet")["served_s"].to_list() == [4.0, 1.0, 0.0]


def test_cells_and_kernels_of_runs_are_compared(tmp_path: Path) -> None:
    cells = [{"name": "macro.uplink", "users": ["mobile-0.uplink", "mobile-1.uplink"]}]
    for name, endpoints, idle in (("one", 2, "1"), ("two", 1, "0")):
        make_run(tmp_path / name, endpoints=endpoints, cells=cells[:endpoints])
        kernel = {"slow_start_after_idle": idle}
        change_json(tmp_path / name / "environment.json", lambda it, kernel=kernel: it.update(kernel))  # type: ignore[misc]
        asked = {"transport": {"congestion_control": name}}
        (tmp_path / name / "scenario.resolved.json").write_text(json.dumps(asked))
    words = ("compare", tmp_path / "one", tmp_path / "two")
    done = cellbed(*words, status=0)
    assert re.search(r"Jain's index of throughputs +(1.000|0\.99\d) +1.000", done.stdout)
    assert re.search(r"throughput of mobile-1.uplink +[\d.]+ .bit/s \(49 %\) +–", done.stdout)
    assert "warning: slow start after idle was off in two and on in one, as the kernels have it" in done.stdout
    assert "differs from the first in its nodes, transport, links" in done.stdout
    assert cellbed(*words, "--out", tmp_path / "page.html").returncode == 0
    assert "Throughput of mobile-1.uplink" in (tmp_path / "page.html").read_text()


def test_a_user_counts_in_a_cell_while_it_is_there(tmp_path: Path) -> None:
    second, user = SECOND, "mobile-0.uplink"
    cells = [
        {"name": "macro.uplink", "users": [user], "visits_ns": {user: [[0, 2 * second], [8 * second, None]]}},
        {"name": "small.uplink", "users": [user], "visits_ns": {user: [[3 * second, 8 * second]]}},
    ]
    visits = [{"direction": user, "served_ns": second}, {"direction": user, "served_ns": 2 * second}]
    account = {"cells": [{"name": "macro.uplink", "users": visits}, {"name": "small.uplink", "users": visits[:1]}]}
    run = tmp_path / "run"
    make_run(run, duration=10, rate=4, cells=cells, emulator=account)
    macro, small = collect(run).cells
    log = in_its_time(run)
    at, size = (log[name][log["direction"] == 0] for name in ("released", "bytes"))
    here = (at < 2 * second) | (at >= 8 * second)
    assert macro.users[0].packets == here.sum()
    assert macro.users[0].throughput_mbit_s == pytest.approx(size[here].sum() * 8 / 1e6 / 4)
    assert macro.throughput_mbit_s == pytest.approx(size[here].sum() * 8 / 1e6 / 10)
    there = (at >= 3 * second) & (at < 8 * second)
    assert small.users[0].packets == there.sum()
    assert small.users[0].throughput_mbit_s == pytest.approx(size[there].sum() * 8 / 1e6 / 5)
    assert pl.read_parquet(run / "cells.parquet")["served_s"].to_list() == [3.0, 1.0]

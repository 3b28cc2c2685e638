"""Super-packets on a real path: what programs and the packet log see."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator_process import EmulatorProcess, Stages, constant, delay, line_of_two, packets
from emulator_transfers import transfer


def lossy() -> Stages:
    return [{"kind": "loss", "probability": 0.01, "seed": 3}, constant(200_000_000, 200_000), delay(3)]


@pytest.mark.parametrize("family", [4, 6])
def test_data_arrives_through_loss_and_queue(family: int, tmp_path: Path) -> None:
    with EmulatorProcess(line_of_two(lossy(), lossy(), tmp_path)) as emulator:
        emulator.ready()
        transfer(emulator, 2_000_000, family)
        account = emulator.stop()
    assert account["refused"] == 0
    assert all(interface["dropped"] == 0 for interface in account["interfaces"].values())
    log = packets(tmp_path)
    assert log["bytes"].max() <= 1500
    uplink = log[(log["direction"] == 0) & (log["protocol"] == 6)]
    assert (uplink["drop"] == 2).any()
    # The delivered segments cover the stream without a gap; sequence numbers are counted from the SYN's.
    core = log[(log["direction"] == 1) & (log["protocol"] == 6)]
    assert covered(core) == 2_000_000
    assert (log["observed"] >= log["departed"]).all()


def covered(log: np.ndarray[Any, np.dtype[Any]]) -> int:
    """Bytes of the stream up to the first that is in no packet."""
    first = int(log["tcp_sequence"][0]) + 1
    begin = (log["tcp_sequence"].astype(np.int64) - first) % 2**32
    reached = 0
    for start, length in sorted(zip(begin.tolist(), log["payload"].tolist(), strict=True)):
        if length and start <= reached:
            reached = max(reached, start + length)
    return reached

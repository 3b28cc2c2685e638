"""Flows over time: sampled in virtual time and in the kernel, measured and drawn."""

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cellbed as library
from cellbed.laws.law import LawError, kernel_version, read
from cellbed.measure.flows import BIN_S, around_outages, bin_flows, recoveries, transfers
from cellbed.measure.outages import Outage
from cellbed.report import figures
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.flows import sample_flows
from in_process import cellbed
from law_examples import fixed
from run_commands import needs_limits, only_folder, run
from scenario_text import iperf3_table, scenario_head


def scenario(folder: Path, law: str, options: str, *, seconds: int, queue: str = "100 kB", **mobile: Any) -> Path:
    text = scenario_head(
        {"endpoint": {"cpus": 1.0}, "edge": {"cpus": 1.0}},
        mobile={"base_delay": "20 ms", "queue": {"kind": "droptail", "limit": queue}, **mobile},
        core={"edge": "0 ms"},
        name="flows",
        duration=f"{seconds} s",
        transport={"congestion_control": law, "series": True},
    )
    path = folder / "flows.toml"
    path.write_text(text + iperf3_table("bulk", options))
    return path


def predicted(folder: Path, *, law: str, options: str, seconds: int, **mobile: Any) -> Path:
    path = scenario(folder, law, options, seconds=seconds, **mobile)
    cellbed("run", path, "--virtual", "--out", folder / "runs", status=0)
    return only_folder(folder / "runs")


def of_download(flows: pl.DataFrame) -> pl.DataFrame:
    return transfers(flows).filter(sender="edge-0")


def test_flow_in_virtual_time_fills_its_link_under_its_law(tmp_path: Path) -> None:
    folder = predicted(tmp_path, law="vegas", options="-t 5 -R", seconds=8)
    loaded = library.load(folder)
    flow = of_download(loaded.flows)
    assert flow.select("app", "sender", "sender_port", "receiver", "law").unique().rows() == [
        ("bulk", "edge-0", 5201, "endpoint-0", "vegas")
    ]
    steady = flow.filter(pl.col("time_s").is_between(2, 4))
    assert 190 < len(steady) <= 201
    # Payload of 1448 in packets of 1500 bytes; Vegas keeps 2 to 4 of them in the queue of a link with 40 ms both ways.
    assert steady["throughput_mbit_s"].mean() == pytest.approx(20 * 1448 / 1500, rel=0.02)
    assert 0.040 < steady["rtt_s"].median() < 0.044  # type: ignore[operator]
    assert (steady["in_flight_bytes"] <= steady["window_bytes"]).all()
    assert (steady["receive_window_bytes"] > steady["in_flight_bytes"]).all()
    assert steady["pacing_mbit_s"].is_null().all()
    assert steady["law_base_us"].min() == pytest.approx(40_000, rel=0.05)
    received = pl.read_parquet(folder / "connections.parquet")["to_client_bytes"].max()
    assert flow["acked_bytes"].sum() == pytest.approx(received, rel=0.02)
    traffic = loaded.summary.applications[0].traffic
    assert (traffic.connections, traffic.received_bytes > received) == (2, True)
    assert 0.04 < traffic.setup_p50_s <= traffic.round_trip_p50_s
    assert 10 < traffic.throughput_down_mbit_s < 20


def test_losses_are_those_of_the_connection_and_the_report_shows_the_recovery_from_an_outage(tmp_path: Path) -> None:
    folder = predicted(tmp_path, law="reno", options="-t 9 -R", seconds=10, outage=[["3 s", "2 s"]])
    flow = of_download(library.load(folder).flows)
    connection = pl.read_parquet(folder / "connections.parquet").sort("to_client_bytes")[-1]
    assert flow["law"].unique().to_list() == ["reno"]
    assert flow["retransmitted"].sum() == connection["to_client_retransmitted"].item() > 0
    assert flow["threshold_bytes"][-1] is not None
    page = (folder / "report.html").read_text()
    assert "Flows over time" in page
    assert "Recovery after outages" in page
    figures.write(folder, tmp_path / "figures", "png")
    assert (tmp_path / "figures" / "flows.png").read_bytes().startswith(b"\x89PNG")


def flows_of(rates: list[float]) -> pl.DataFrame:
    """Return a flow with these throughputs, Mbit/s, in consecutive bins."""
    return pl.DataFrame(
        {
            "time_s": [(number + 0.5) * BIN_S for number in range(len(rates))],
            "acked_bytes": [int(rate * 1e6 / 8 * BIN_S) for rate in rates],
        }
    ).with_columns(
        flow=pl.lit(0), app=pl.lit("bulk"), law=pl.lit("cubic"), sender=pl.lit("edge"), receiver=pl.lit("endpoint"),
        rtt_s=pl.lit(0.04), window_bytes=pl.lit(1), threshold_bytes=pl.lit(1), lost=pl.lit(0),
    )  # fmt: skip


def test_recovery_ends_with_the_first_second_at_nine_tenths_of_the_rate_before() -> None:
    # 2 s at 10 Mbit/s, an outage of 2 s, 1 s at 5 Mbit/s, then all of it.
    flows = flows_of([10.0] * 10 + [0.0] * 10 + [5.0] * 5 + [10.0] * 10)
    outage = Outage("mobile", "endpoint", "downlink", 2.0, 2.0)
    assert bin_flows(flows)["throughput_mbit_s"][:11].to_list() == pytest.approx([10.0] * 10 + [0.0])
    (row,) = recoveries(around_outages(flows, [outage])).to_dicts()
    assert (row["begin_s"], row["end_s"]) == (2.0, 4.0)
    assert row["recovery_s"] == pytest.approx(0.8)  # one bin at 5 Mbit/s and four at 10: 9 Mbit/s
    (never,) = recoveries(around_outages(flows[:22], [outage])).to_dicts()
    assert never["recovery_s"] is None
    assert len(around_outages(flows, [Outage("mobile", "another", "downlink", 2.0, 2.0)])) == 0


def test_law_that_shows_too_much_is_refused(tmp_path: Path) -> None:
    path = fixed(tmp_path / "much.h")
    five = " ".join(["show(unused)"] * 5)
    path.write_text(path.read_text() + f"#define LAW_SHOWN(show) {five}\n")
    with pytest.raises(LawError, match="LAW_SHOWN has more than LAW_MOST_SHOWN variables"):
        read(path).compiled("host")


def obstacle() -> str | None:
    """Return why flows cannot be sampled in this kernel, or ``None``."""
    try:
        with sample_flows(Path(os.devnull)):
            return None
    except CellbedError as error:
        return str(error).splitlines()[0]


needs_sampling = pytest.mark.skipif((why := obstacle()) is not None, reason=str(why))


@needs_sampling
@pytest.mark.needs_tun
@needs_limits
@pytest.mark.skipif(kernel_version() < (6, 4), reason="laws stay longer")
@pytest.mark.parametrize("law", [pytest.param("reno", marks=pytest.mark.slow), "copa"])
def test_samples_of_the_kernel_are_those_of_iperf3(tmp_path: Path, law: str) -> None:
    # An upload: iperf3 reads its sender's TCP_INFO at the end of each interval.
    path = scenario(tmp_path, law, "-t 5 --json", seconds=8)
    run("run", path, "--out", tmp_path / "runs", status=0)
    folder = only_folder(tmp_path / "runs")
    flow = transfers(library.load(folder).flows)
    assert flow.select("app", "sender", "receiver", "receiver_port", "law").unique().rows() == [
        ("bulk", "endpoint-0", "edge-0", 5201, law)
    ]
    assert len(flow) <= 100 * (flow["time_s"][-1] - flow["time_s"][0]) + 2
    theirs = json.loads((folder / "raw/bulk.endpoint-0.client.out").read_text())
    intervals = [each["streams"][0] for each in theirs["intervals"]]
    retransmitted = sum(each["retransmits"] for each in intervals)
    assert flow["retransmitted"].sum() == pytest.approx(retransmitted, rel=0.1, abs=1)  # the last ones may be later
    # iperf3 reads TCP_INFO by its own clock, between two samples. In a round trip the window at most doubles or halves,
    # so each reading is within the range of all samples but for a factor of two. A wrong unit or flow is off by more.
    for theirs_of, ours in (("snd_cwnd", flow["window_bytes"]), ("rtt", flow["srtt_s"] * 1e6)):
        for each in intervals[:-1]:
            assert ours.min() / 2 <= each[theirs_of] <= 2 * ours.max()  # type: ignore[operator]
    received = theirs["end"]["sum_received"]["bytes"]
    assert flow["acked_bytes"].sum() == pytest.approx(received, rel=0.05)
    if law == "copa":
        assert flow["law_rtt_min_us"].max() == pytest.approx(40_000, rel=0.1)
        assert flow["pacing_mbit_s"].drop_nulls().len() > 0

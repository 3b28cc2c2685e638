"""COSM-IC, transatlantic experiments with a next-generation edge: its tables of transport protocols, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cellbed.reproduction import (
    Answer,
    Claim,
    Data,
    Finding,
    Measure,
    Swept,
    SweptPublication,
    Values,
    above,
    below,
    paired,
)

_LAWS = {"New Reno": "reno", "CUBIC": "cubic", "BBR": "bbr"}
_CLIENT = "iperf3 --client {server.address} --reverse"
_SCENARIO: dict[str, Any] = {
    "name": "cosmic",
    "duration": "110 s",
    "nodes": {"endpoint": {"cpus": 1.0, "memory": "1 GB"}, "cloud": {"cpus": 1.0, "memory": "1 GB"}},
    "links": {"mobile": {"up": "unlimited", "down": "unlimited"}, "core": {}},
    # A window must hold 140 MB, what 10 Gbit/s carry in 112 ms.
    "transport": {
        "congestion_control": "cubic",
        "receive_buffer": "512 MB",
        "send_buffer": "512 MB",
        "metrics_cache": False,
    },
    "apps": {
        "transfer": {
            "kind": "program",
            "server": {"on": "cloud", "command": "iperf3 --server", "ready": {"port": 5201}},
            "client": {"on": "endpoint", "command": f"{_CLIENT} --time 100"},
        }
    },
}
_SIZES_MB = (125, 175, 200, 225)
_THROUGHPUT = "throughput_down_mbit_s"
_LOSS = ("0 %", "0.1 %", "0.5 %")
TABLE_4 = {"New Reno": (206, 4.89, 3.98), "CUBIC": (270, 9.42, 2.64), "BBR": (640, 373, 323)}
"""Throughput, Mbit/s, by loss."""
TABLE_2 = {"CUBIC": (4.61, 5.17, 5.51, 6.64), "BBR": (1.37, 1.48, 1.57, 1.80)}
"""Response time, s, by size of the file."""


def _core(rate: str, loss: str = "0 %") -> dict[str, Any]:
    return {"kind": "delay", "delay": "56 ms", "rate": rate, "loss": loss}


EXPERIMENTS = (
    Swept(
        "loss",
        "Throughput under loss",
        "Table IV",
        {
            "law": {"key": "transport.congestion_control", "levels": _LAWS},
            "loss": {"key": "links.core.cloud", "levels": {loss: _core("1 Gbit/s", loss) for loss in _LOSS}},
        },
        repetitions=2,
        short={"changes": {"duration": "30 s", "apps.transfer.client.command": f"{_CLIENT} --time 20"}},
    ),
    Swept(
        "file",
        "Response time of a file",
        "Table II",
        {
            "law": {"key": "transport.congestion_control", "levels": {law: _LAWS[law] for law in TABLE_2}},
            "size": {
                "key": "apps.transfer.client.command",
                "levels": {f"{size} MB": f"{_CLIENT} --bytes {size}000000" for size in _SIZES_MB},
            },
        },
        changes={"links.core.cloud": _core("10 Gbit/s"), "duration": "30 s"},
        repetitions=3,
        short={"levels": {"size": ["125 MB"]}},
    ),
)


def _ratio(law: str, loss: str, other: str, without: str) -> Measure:
    """Return the throughput of a law over that of another, at two losses."""
    return Measure("loss", _THROUGHPUT, {"law": law, "loss": loss}, {"law": other, "loss": without})


def _seconds(size_mb: int, law: str) -> Callable[[Data], Values]:
    """Return the response time of a file: its size over the throughput from the first byte to the last."""

    def measure(data: Data) -> Values:
        found = data["file"].values(_THROUGHPUT, law=law, size=f"{size_mb} MB")
        return paired(lambda rate: size_mb * 8 / rate, found)

    return measure


def _claims() -> Iterator[Claim]:
    for law, (without, *published) in TABLE_4.items():
        for loss, value in zip(_LOSS[1:], published, strict=True):
            share = value / without
            yield Claim(
                f"kept-{_LAWS[law]}-{loss.removesuffix(' %')}",
                "loss",
                "Table IV",
                f"Throughput of {law} at a loss of {loss} over that at none",
                f"{share:.3g} times",
                _ratio(law, loss, law, _LOSS[0]),
                direction="most remains" if law == "BBR" else "most is lost",
                agrees=above(0.5) if law == "BBR" else below(0.5),
                figure=(share, share),
            )
    for law, other in (("BBR", "CUBIC"), ("CUBIC", "New Reno")):
        for at, loss in enumerate(_LOSS):
            factor = TABLE_4[law][at] / TABLE_4[other][at]
            yield Claim(
                f"{_LAWS[law]}-over-{_LAWS[other]}-{loss.removesuffix(' %')}",
                "loss",
                "Table IV",
                f"Throughput of {law} over that of {other} at a loss of {loss}",
                f"{factor:.3g} times",
                _ratio(law, loss, other, loss),
                direction="higher" if factor > 1 else "lower",
                agrees=above(1) if factor > 1 else below(1),
                figure=(factor, factor),
            )
    for law, times in TABLE_2.items():
        for size, seconds in zip(_SIZES_MB, times, strict=True):
            yield Claim(
                f"file-{_LAWS[law]}-{size}",
                "file",
                "Table II",
                f"Response time of a file of {size} MB under {law}",
                f"{seconds:.2f} s",
                _seconds(size, law),
                "time",
                figure=(seconds, seconds),
            )
    for at, size in enumerate(_SIZES_MB):
        factor = TABLE_2["CUBIC"][at] / TABLE_2["BBR"][at]
        yield Claim(
            f"file-cubic-over-bbr-{size}",
            "file",
            "Table II",
            f"Response time of a file of {size} MB, CUBIC over BBR",
            f"{factor:.3g} times",
            Measure("file", _THROUGHPUT, {"law": "BBR", "size": f"{size} MB"}, {"law": "CUBIC", "size": f"{size} MB"}),
            direction="longer",
            agrees=above(1),
            figure=(factor, factor),
        )


def _under_loss(findings: Mapping[str, Finding], data: Data) -> str:
    reno, cubic, bbr = (findings[f"kept-{law}-0.1"].ours for law in _LAWS.values())
    return f"At a loss of 0.1 % New Reno keeps {reno} its throughput, CUBIC {cubic} and BBR {bbr}."


def _of_files(findings: Mapping[str, Finding], data: Data) -> str:
    found = [findings[f"file-cubic-over-bbr-{size}"] for size in _SIZES_MB]
    factors = [each.ours for each in found if each.same != "not measured"]
    return f"Files take {' and '.join((factors[0], factors[-1]) if len(factors) > 1 else factors)} as long with CUBIC."


PUBLICATION = SweptPublication(
    name="cosmic",
    title="COSM-IC: transport protocols over a transatlantic link",
    citation="Choudhury et al., Remote Orchestration of NextG Services Across the Global Internet: An Experimental "
    "Study",
    scenario=_SCENARIO,
    short={},
    short_note="A short reproduction: two repetitions, transfers of 20 instead of 100 s, of which slow start is a "
    "larger share, and one file.",
    roles=(),
    experiments=tuple(replace(each, short={"repetitions": 2, **each.short}) for each in EXPERIMENTS),
    claims=tuple(_claims()),
    answers=(
        Answer("Loss", "With 0.1 % of loss, TCP performs poorly over a high bandwidth-delay product.", _under_loss),
        Answer("Files", "Slow start compromises the use of the link: responses take seconds.", _of_files),
    ),
    differences=(
        "The paper limits the bandwidth of Table IV by tc without stating the value: 1 Gbit/s is ours, and so is the "
        "queue before it. The 10 Gbit/s of Table II are the paper's.",
        "Losses are independent, in both directions. The paper's link may lose packets without those that tc adds.",
        "Receive and send buffers of 512 MB, which hold the path's 140 MB, are ours; the paper states none.",
        "Response times are from a file's first byte to its last; the paper does not define them.",
        "UDP (Table III), mmCPTP (Table V) and migration (Tables VI and VII) are not reproduced.",
    ),
    yes="same",
    no="not the same",
)

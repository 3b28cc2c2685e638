"""The 5G study's applications at edge and cloud (section VII), as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cellbed.reproduction import Claim, Measure, Swept, above, below

TABLE_5 = {"edge": (0.03, 0.04, 0.21, 0.56, 1.5), "cloud": (0.1, 0.12, 0.37, 0.75, 1.68)}
TABLE_6 = {"edge": (0.12, 0.15, 0.21, 0.23, 0.32), "cloud": (0.28, 0.36, 0.39, 0.51, 0.62)}
"""Times of uploads and downloads, s, by size."""
SIZES = ("200 kB", "500 kB", "1 MB", "2 MB", "5 MB")
_TABLES = {"upload": ("Table V", TABLE_5), "download": ("Table VI", TABLE_6)}
_PLACE: dict[str, Any] = {
    "keys": ["links.mobile.down", "links.mobile.up", "links.mobile.base_delay"],
    # Capacities of section IV-A; round trips of 6.1 and 40.7 ms (section VII-A).
    "levels": {"edge": ["1800 Mbit/s", "69.2 Mbit/s", "3.05 ms"], "cloud": ["2000 Mbit/s", "63.8 Mbit/s", "20.35 ms"]},
}

EXPERIMENTS = (
    Swept(
        "files",
        "Files at edge and cloud",
        "Tables V, VI",
        {
            "place": _PLACE,
            "file": {
                "keys": ["apps.transfer.upload", "apps.transfer.download"],
                "levels": {
                    **{f"upload of {size}": [[size], []] for size in SIZES},
                    **{f"download of {size}": [[], [size]] for size in SIZES},
                },
            },
        },
        changes={"apps.transfer": {"kind": "transfers", "server": "cloud", "arrivals": "closed"}, "duration": "10 s"},
        repetitions=3,
        varies=False,
        short={
            "repetitions": 1,
            "levels": {"file": ["download of 5 MB"]},
            "changes": {"duration": "3 s"},
        },
    ),
)


def claims() -> Iterator[Claim]:
    """Return the claims about the applications."""
    for way, (where, table) in _TABLES.items():
        for size, edge, cloud in zip(SIZES, table["edge"], table["cloud"], strict=True):
            of = {"file": f"{way} of {size}"}
            yield Claim(
                f"{way}-{size.replace(' ', '').lower()}",
                "files",
                where,
                f"Time of {'an' if way == 'upload' else 'a'} {way} of {size}, cloud over edge",
                f"{cloud / edge:.3g} times",
                Measure("files", "latency_mean_s", {**of, "place": "cloud"}, {**of, "place": "edge"}),
                direction="longer",
                agrees=above(1),
                figure=(cloud / edge, cloud / edge),
                group=f"{way}s are faster at the edge",
            )
    for way, small, words, agrees in (
        ("upload", "500 kB", "falls", below(1)),
        ("download", "200 kB", "rises", above(1)),
    ):
        where, table = _TABLES[way]
        at = {"place": "edge"}
        sizes = {size: f"{way} of {size}" for size in (small, "5 MB")}
        figure = _rate(table["edge"], "5 MB") / _rate(table["edge"], small)
        yield Claim(
            f"{way}-rate",
            "files",
            where,
            f"Effective throughput of {way}s of 5 MB over that of {small}, edge",
            f"{figure:.3g} times",
            Measure(
                "files",
                "effective_throughput_p50_mbit_s",
                {**at, "file": sizes["5 MB"]},
                {**at, "file": sizes[small]},
            ),
            direction=words,
            agrees=agrees,
            figure=(figure, figure),
        )


def _rate(times: tuple[float, ...], size: str) -> float:
    amount, unit = size.split()
    return float(amount) * {"kB": 1, "MB": 1000}[unit] / times[SIZES.index(size)]

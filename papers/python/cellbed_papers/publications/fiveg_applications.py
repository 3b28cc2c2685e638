"""The 5G study's applications at edge and cloud (section VII), as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cellbed.extension.files import SIZE
from cellbed.extension.reports import formats
from cellbed_papers.drawings import bars, boxes, tabled
from cellbed_papers.publication import (
    LARGER,
    SMALLER,
    Claim,
    Data,
    Finding,
    Measure,
    Range,
    Swept,
    quantity,
    relative,
    values_below,
)

TABLE_5 = {"edge": (0.03, 0.04, 0.21, 0.56, 1.5), "cloud": (0.1, 0.12, 0.37, 0.75, 1.68)}
TABLE_6 = {"edge": (0.12, 0.15, 0.21, 0.23, 0.32), "cloud": (0.28, 0.36, 0.39, 0.51, 0.62)}
"""Times of uploads and downloads, s, by size."""
SIZES = ("200 kB", "500 kB", "1 MB", "2 MB", "5 MB")
PAGES = ("google", "facebook", "amazon", "cnn", "netflix")
LAWS = {"BBR": ("bbr", 0.183, 0.712), "CUBIC": ("cubic", 0.291, 0.73), "ExLL": ("exll", 0.195, 0.709)}
"""Laws, with the minimum and maximum share of page load time that the edge saves under them (section VII-A)."""
PICTURES = {"4K": ("2160p", 0.279), "FHD": ("1080p", 0.214), "HD": ("720p", 0.201)}
"""Renditions, with the ratio edge / cloud of a chunk's response time (section VII-B)."""
FASTER_4K = 4.5
"""Ratio edge / cloud of the player's throughput, 4K."""
CALL_MS = {"edge": (33.2, 233.0), "cloud": (102.8, 354.6)}
"""Round-trip time of the transport and end-to-end delay of a call, ms (section VII-C)."""
MASK = 0.815
"""Ratio edge / cloud of the time of a segmentation (section VII-D)."""
_TABLES = {"upload": ("Table V", TABLE_5), "download": ("Table VI", TABLE_6)}
_PLACE: dict[str, Any] = {
    "keys": ["links.mobile.down", "links.mobile.up", "links.mobile.base_delay"],
    # AT&T's capacities (section IV-A); round-trip times of 6.1 and 40.7 ms (section VII-A).
    "levels": {
        place: ["{trace:5g-edge.down}", "{trace:5g-edge.up}", delay]
        for place, delay in (("edge", "3.05 ms"), ("cloud", "20.35 ms"))
    },
}

_WHERE = {"web": "Fig. 11(a)", "video": "Fig. 11(b)", "call": "Fig. 11(c)", "segmentation": "Fig. 11(d)"}
_TIME, _PLAYED = "latency_mean_s", "own_throughput_mbit_s_mean"
_CALL_PARTS = {
    words: {"part": part}
    for words, part in (
        ("round trip", "round_trip"),
        ("jitter buffer", "jitter_buffer"),
        ("target delay", "target_delay"),
        ("between frames", "inter_frame"),
        ("end to end", "delay"),
    )
}
_BROWSER = {"cpus": 2.0, "memory": "2 GB"}
_HD = {"key": "apps.film.renditions", "levels": {name: [rendition] for name, (rendition, _) in PICTURES.items()}}
_CALL = {
    "keys": ["apps.call.width", "apps.call.height", "apps.call.bit_rate"],
    "levels": {"1080p": [1920, 1080, "6 Mbit/s"], "360p": [640, 360, "1500 kbit/s"]},
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
        drawings=tuple(
            (
                f"{table}: time of {way}s",
                bars("time, s", _TIME, {size: {"file": f"{way} of {size}"} for size in SIZES}, "place"),
            )
            for way, (table, _) in _TABLES.items()
        ),
    ),
    Swept(
        "web",
        "Web pages",
        _WHERE["web"],
        {
            "place": _PLACE,
            "page": {"key": "apps.page.page", "levels": {page: page for page in PAGES}},
            "law": {"key": "transport.congestion_control", "levels": {law: name for law, (name, *_) in LAWS.items()}},
        },
        changes={
            "nodes.endpoint": _BROWSER,
            "apps": {"page": {"kind": "web", "server": "cloud", "arrivals": "closed", "drain": "5 s"}},
            "duration": "10 s",
        },
        repetitions=3,
        short={
            "repetitions": 2,
            "levels": {"page": ["google", "netflix"], "law": ["BBR"]},
            "changes": {"apps.page.drain": "2 s", "duration": "5 s"},
        },
        drawings=(("Fig. 11(a): page load time", bars("page load time, s", _TIME, "page", "place", "law")),),
    ),
    Swept(
        "video",
        "Videos",
        _WHERE["video"],
        {"place": _PLACE, "picture": _HD},
        changes={
            "nodes.endpoint": _BROWSER,
            "apps": {"film": {"kind": "video", "server": "cloud", "drain": "5 s"}},
            "transport.slow_start_after_idle": True,
            "duration": "122 s",
        },
        repetitions=3,
        short={
            "repetitions": 1,
            "levels": {"picture": ["HD"]},
            "changes": {"apps.film.length": "20 s", "apps.film.drain": "1 s", "duration": "16 s"},
        },
        drawings=(
            ("Fig. 11(b): response time of a chunk", bars("response time, s", _TIME, "picture", "place")),
            ("Fig. 11(b): throughput at the player", bars("throughput, Mbit/s", _PLAYED, "picture", "place")),
        ),
    ),
    Swept(
        "call",
        "Calls through a relay",
        _WHERE["call"],
        {"place": _PLACE, "picture": _CALL},
        changes={
            # Both ends are behind this link: two links give the study's round-trip times of 12.2 and 81.4 ms.
            "nodes.endpoint": {**_BROWSER, "count": 2, "cpus": 6.0},
            "apps": {"call": {"kind": "call", "server": "cloud"}},
            "skip": "5 s",
            "duration": "35 s",
        },
        repetitions=3,
        short={
            "repetitions": 1,
            "levels": {"picture": ["360p"]},
            "changes": {"nodes.endpoint.cpus": 2.0, "apps.call.drain": "1 s", "duration": "18 s"},
        },
        drawings=(
            ("Fig. 11(c): delays of a call", bars("mean, ms", "own_{part}_ms_mean", _CALL_PARTS, "place", "picture")),
        ),
    ),
    Swept(
        "segmentation",
        "Segmentation",
        _WHERE["segmentation"],
        {"place": _PLACE},
        changes={
            "apps": {"mask": {"kind": "segmentation", "server": "cloud", "rate": "1 /s"}},
            "transport.slow_start_after_idle": True,
            "duration": "50 s",
        },
        repetitions=5,
        short={"repetitions": 2, "changes": {"apps.mask.drain": "1 s", "duration": "8 s"}},
        drawings=(("Fig. 11(d): time of a segmentation", boxes("time, s", tabled("requests", "latency_s"), "place")),),
    ),
)


def claims() -> Iterator[Claim]:
    """Return the claims about the applications."""
    yield from _file_claims()
    for law, (name, least, most) in LAWS.items():
        for page in PAGES:
            at, figure = {"page": page, "law": law}, (-most, -least)
            group = f"page load times under {law}"
            yield _gain_claim("web", f"{page}-{name}", f"Page load time of {page} under {law}", at, figure, group=group)
    for picture, (_, response) in PICTURES.items():
        what, at = f"Response time of a chunk in {picture}", {"picture": picture}
        yield _gain_claim("video", f"response-{picture}", what, at, (response - 1, response - 1))
    for picture in PICTURES:
        faster = (FASTER_4K, FASTER_4K) if picture == "4K" else None
        what, column = f"Throughput at the player in {picture}, edge over cloud", "own_throughput_mbit_s_mean"
        at, other = ({"picture": picture, "place": place} for place in ("edge", "cloud"))
        more: dict[str, Any] = {"direction": "higher", "agrees": LARGER, "figure": faster}
        published, key = f"{FASTER_4K:g} times" if faster else "–", f"video-throughput-{picture}".lower()
        yield Claim(key, "video", _WHERE["video"], what, published, Measure("video", column, at, other), **more)
    for picture in _CALL["levels"]:
        yield from _call_claims(picture)
    yield _gain_claim("segmentation", "mask", "Time of a segmentation", {}, (MASK - 1, MASK - 1))


def _gain_claim(
    experiment: str, key: str, what: str, at: Mapping[str, str], figure: Range | None, **more: Any
) -> Claim:
    """Return a claim about the change of a time from cloud to edge. figure: published range, negative."""
    published = "–" if figure is None else " to ".join(dict.fromkeys(quantity(each, "reduction") for each in figure))
    near, far = ({**at, "place": place} for place in ("edge", "cloud"))
    measure = Measure(experiment, "latency_mean_s", near, far, how=relative)
    more = {"unit": "reduction", "agrees": values_below(-0.005), "figure": figure, "published": published} | more
    statement = f"{what}, change from cloud to edge"
    name = f"{experiment}-{key}".lower()
    return Claim(name, experiment, _WHERE[experiment], statement, measure=measure, direction="shorter", **more)


def _call_claims(picture: str) -> Iterator[Claim]:
    """Return the claims about calls. Magnitudes are compared only for the study's picture."""
    trips, delays = ({place: of[at] for place, of in CALL_MS.items()} for at in (0, 1))
    at, full = {"picture": picture}, picture == "1080p"
    note, what = "" if full else " in 1080p", f"End-to-end delay of a call in {picture}"
    saved = relative(delays["edge"], delays["cloud"])
    figure = (saved, saved) if full else None
    yield _gain_claim("call", f"delay-{picture}", what, at, figure, published=f"{quantity(saved, 'reduction')}{note}")
    for place in CALL_MS:
        own = {**at, "place": place}
        seconds = delays[place] / 1000
        figure, measure = (seconds, seconds) if full else None, Measure("call", _TIME, own)
        key, published = f"call-{place}-{picture}", f"{delays[place]:g} ms{note}"
        yield Claim(key, "call", _WHERE["call"], f"{what}, {place}", published, measure, "time", figure=figure)
    for place in CALL_MS:
        key, what = f"call-round-trip-{picture}-{place}", f"Round trip of a call in {picture}, {place}, ms"
        measure = Measure("call", "own_round_trip_ms_mean", {**at, "place": place})
        figure = (trips[place], trips[place]) if full else None
        more: dict[str, Any] = {"figure": figure, "made": ("round trips",)}
        yield Claim(key, "call", _WHERE["call"], what, f"{trips[place]:g}{note}", measure, "number", **more)


def gains(findings: Mapping[str, Finding], data: Data) -> str:
    """Return the sentence about Fig. 11. Raises KeyError if none of its claims was measured."""
    found = []
    for what, beginning in (
        ("a page load", "web-"),
        ("a chunk's response", "video-response-"),
        ("a call's delay in 1080p", "call-delay-1080p"),
        ("a call's delay in 360p", "call-delay-360p"),
        ("a segmentation", "segmentation-"),
    ):
        values = [each.interval.value for key, each in findings.items() if key.startswith(beginning)]
        if saved := sorted(-value for value in values if value is not None):
            found.append(f"{' to '.join(dict.fromkeys(map(formats.share, (saved[0], saved[-1]))))} of {what}")
    if not found:
        raise KeyError("Fig. 11")
    return f"The edge saves {', '.join(found)}.".replace("-", "−")


def _file_claims() -> Iterator[Claim]:
    for way, (where, table) in _TABLES.items():
        for size, edge, cloud in zip(SIZES, table["edge"], table["cloud"], strict=True):
            key, file = f"{way}-{size.replace(' ', '').lower()}", f"{way} of {size}"
            statement = f"Time of {'an' if way == 'upload' else 'a'} {file}, cloud over edge"
            at, other = ({"file": file, "place": place} for place in ("cloud", "edge"))
            measure = Measure("files", "latency_mean_s", at, other)
            more: dict[str, Any] = {"direction": "longer", "agrees": LARGER}
            more |= {"figure": _quotient(cloud, edge), "group": f"{where}: times of {way}s"}
            yield Claim(key, "files", where, statement, f"{cloud / edge:.3g} times", measure, **more)
    for way, small, words, agrees in (
        ("upload", "500 kB", "falls", SMALLER),
        ("download", "200 kB", "rises", LARGER),
    ):
        where, table = _TABLES[way]
        large, other = ({"file": f"{way} of {size}", "place": "edge"} for size in ("5 MB", small))
        times, larger = dict(zip(SIZES, table["edge"], strict=True)), SIZE.parse("5 MB") / SIZE.parse(small)
        least, most = (larger * each for each in _quotient(times[small], times["5 MB"]))
        figure = larger * times[small] / times["5 MB"]
        statement = f"Effective throughput of {way}s of 5 MB over {small}, edge"
        measure = Measure("files", "effective_throughput_p50_mbit_s", large, other)
        more = {"direction": words, "agrees": agrees, "figure": (least, most)}
        yield Claim(f"{way}-rate", "files", where, statement, f"{figure:.3g} times", measure, **more)


def _quotient(one: float, other: float) -> Range:
    """Return the range of the quotient of two times that are printed in hundredths of a second."""
    half = 0.005
    return (one - half) / (other + half), (one + half) / (other - half)

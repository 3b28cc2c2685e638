"""The recordings of New York University in the city's cellular networks: delivery opportunities of 2018 and 2019."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cellbed.archive.entry import About
from cellbed.archive.series import Part
from cellbed.archive.sources.source import Imported, Recording, Source, git_files, named

_COMMIT_2018 = "6138081113601ab74d145931616384b0eb7a77b0"
_BLOBS_2018 = {
    "downlink-3g-no-cross-subway.pps": "d9b8b90743466b96c16fe9a29df51f44f9acc705",
    "downlink-3g-no-cross-times-1": "31b9da9a2ab663331928750f46691bf5f7274dca",
    "downlink-3g-no-cross-times-2": "1e917b3298d1ce23ef105ede8c6f2d6b5b31ec37",
    "downlink-3g-with-cross-subway": "548cc0011c90358aef72d41a9530a1fbd8c6a706",
    "downlink-3g-with-cross-times-1": "3e124c1dc95272fcfe5967c5d5ec94c73d4c68bb",
    "downlink-3g-with-cross-times-2": "e85a84fc8d27ccc123bf52dfc96f5840e09b2d90",
    "downlink-4g-no-cross-subway.pps": "7f63b3286816c56b0030585066b6af9f48a5e5fc",
    "downlink-4g-no-cross-times": "3edef774028969bbd830348c836900e9f309155a",
    "downlink-4g-with-cross-subway.pps": "25b05f049922522a69447f839f96614b86468824",
    "downlink-4g-with-cross-times": "e2a299755c4e42377d96cd488bbd81001166e4e5",
    "uplink-3g-no-cross-subway.pps": "04290846a442a56656cb646637725d295c3e37e5",
    "uplink-3g-with-cross-subway": "75d6fa78a30233f8268fb4ba9100945d49873fad",
    "uplink-4g-no-cross-subway.pps": "c3f1e1dc1129bafd76a719abec750a7bb4d4afc0",
    "uplink-4g-no-cross-times": "3a230bb7457c1f9b580adc84876d3c0891edc589",
    "uplink-4g-with-cross-subway.pps": "4dda96f9cbd23bc7e8186624924006ad920a667f",
    "uplink-4g-with-cross-times": "469ea6b72182aeb69fe7c7db8340e2eafc691ea8",
}
_FILE_2018 = re.compile(r"(downlink|uplink)-((3g|4g)-(no|with)-cross-(subway|times)(?:-\d)?)(?:\.pps)?")
_PLACES_2018 = {"subway": ("subway", "the subway"), "times": (None, "Times Square")}


def _of_2018(folder: Path, _way: Part) -> Iterator[Recording]:
    found: dict[Path, list[tuple[re.Match[str], Path]]] = {}
    for path in sorted(folder.rglob("*-cross-*")):
        name = _FILE_2018.fullmatch(path.name)
        # Of four uplinks the files are empty.
        if name is not None and path.is_file() and path.stat().st_size:
            found.setdefault(path.with_name(name[2]), []).append((name, path))
    for pair in found.values():
        name = pair[0][0]
        paths = tuple(path for _, path in pair)
        mobility, place = _PLACES_2018[name[5]]
        about = About(
            origin="recorded",
            technology=name[3],
            place=f"New York City, United States: {place}",
            date="2018",
            mobility=mobility,
            method="delivery opportunities in whole milliseconds, prepared for Mahimahi; how is not said",
            licence=NYC_2018.licence,
            source=NYC_2018.page,
            citation=NYC_2018.citation,
            note=f"The date is that of the publication. The file's name says '{name[4]} cross', unexplained.",
        )
        yield Recording(
            named("nyc-2018", name[2]), paths[0].relative_to(folder).as_posix(), about, Imported(paths, "mahimahi")
        )


NYC_2018 = Source(
    name="nyc-2018",
    title="New York University's 3G and 4G of 2018: Times Square and the subway, both directions",
    status="documented",
    page="https://github.com/Soheil-ab/Cellular-Traces-2018",
    licence="not stated",
    terms="The repository has no licence: ask the authors before passing the recordings on. Cite the paper.",
    citation=(
        "S. Abbasloo et al. C2TCP: A Flexible Cellular TCP to Meet Stringent Delay Requirements. IEEE Journal on "
        "Selected Areas in Communications 37(4), 918–932, 2019"
    ),
    layout=(
        "DIRECTION-STANDARD-CROSS-PLACE with DIRECTION of downlink, uplink, STANDARD of 3g, 4g, CROSS of no-cross, "
        "with-cross and PLACE of subway, times (Times Square), in Mahimahi's format."
    ),
    checked="the repository's README, and 10 of the 16 files themselves",
    convert=_of_2018,
    doubt=(
        "The README says that the traces are of cellular networks in New York City and made for Mahimahi, and nothing "
        "of operator, day, device, or what 'cross' in the names is; the place is read from the names. Four uplinks of "
        "3G are empty files there and are not asked for."
    ),
    remote=git_files("Soheil-ab/Cellular-Traces-2018", _COMMIT_2018, _BLOBS_2018),
)

_COMMIT_2019 = "ac6717b5f113bf899344e91ffc57e472daf29954"
_BLOBS_2019 = {
    "trace-2767958-taxi1": "ece1e3d7ca91d2f232185b1c821e8dbd2fe7db58",
    "trace-2768760-taxi3": "b72458cf28cfdf1ea240f65874986a589b042cae",
    "trace-2925703-home1": "3ed0e2780c9ae187ba8d70cf6541ff66cf9ba3aa",
    "trace-3093662-home3": "ce819cefb5d836979b53fc5bb49b6e96552d7740",
    "trace-3109898-bus": "4b4d8bc815f6076f2200f74ac2059f90c53e2efb",
    "trace-3114405-bus": "2281d9d971f095ffbf8bc803dfc54ce2e5a4a849",
    "trace-3189663-timessquare": "6955a1d8994f7264771ec03bf4867006b1da40a4",
    "trace-3199718-timessquare": "9f88022063d9f69561863f966062036823f33d33",
    "trace-3201037-timessquare": "1145cd6447205e106c169b7bb4a52f4e9ce39b8c",
    "trace-3201711-timessquare": "a2a5bea226b1c54ca52c92a16dbb414ab4e6a0c5",
    "trace-3202253-timessquare": "787399d611d431b6f06e0311c72aa3f34cb9c35c",
    "trace-3203600-timessquare": "84308145caf13c22c189f546bd7074cf53529537",
    "trace-3204803-timessquare": "ffb7665a7a97a9627f35017d8c79358fda5b198b",
    "trace-3205967-timessquare": "3344ffe80060415283a1f5470a0f59b0eb2faac6",
    "trace-3207521-timessquare": "1a4acc7b9be51b97197711ed3df1e244ce9ec956",
    "trace-3208852-timessquare": "082266647ad42357e93de1d46851b1f89ec3c14a",
    "trace-3219061-home": "24ab6a12ae7adb5ebf57591a651bf37cfc87258c",
    "trace-3453943-timessquare": "495ddaa151adbb6195b8a3013795c8fc2b195faa",
    "trace-3455408-timessquare": "b49b03d8a89b5ab9844a1057e50d0ab1ec44178c",
    "trace-3457194-timessquare": "69519c47f8bb276f798d1af13d15942e33f206a5",
    "trace-3458374-timessquare": "1ca85dfabbd5d99a04c27c405baa9213aee22ff5",
    "trace-3552192-bus": "bb1b870f73db572225dcfecbbdd3e54e64eef413",
    "trace-3555076-bus": "2e0af44afa723fa1b7e0cdad8a7e4692102780aa",
}
_FILE_2019 = re.compile(r"trace-(\d+)-(taxi|bus|home|timessquare)\d*")
_STATIONARY_2019 = {"3457194", "3458374"}
"""Of those in Times Square (trace-info); in the others the user walked."""
_MOBILITY_2019 = {"taxi": "driving", "bus": "bus", "home": "stationary", "timessquare": "walking"}
_PLACES_2019 = {"taxi": "in a taxi", "bus": "on a bus", "home": "at home", "timessquare": "Times Square"}


def _of_2019(folder: Path, _way: Part) -> Iterator[Recording]:
    for path in sorted(folder.rglob("trace-*")):
        name = _FILE_2019.fullmatch(path.name)
        if name is None or not path.is_file():
            continue
        about = About(
            origin="recorded",
            place=f"New York City, United States: {_PLACES_2019[name[2]]}",
            date="2019",
            mobility="stationary" if name[1] in _STATIONARY_2019 else _MOBILITY_2019[name[2]],
            method="delivery opportunities in whole milliseconds, in Mahimahi's format; how is not said",
            licence=NYC_2019.licence,
            source=NYC_2019.page,
            citation=NYC_2019.citation,
            note="The README does not say of which generation the networks were.",
        )
        of = path.relative_to(folder).as_posix()
        words = ("nyc-2019", name[2], name[1])
        yield Recording(named(*words), of, about, Imported((path,), "mahimahi", "downlink"))


NYC_2019 = Source(
    name="nyc-2019",
    title="New York University's recordings of 2019: walking, stationary, bus and taxi in New York, downlink",
    status="documented",
    page="https://github.com/Soheil-ab/Cellular-Traces-NYC",
    licence="not stated",
    terms="The repository has no licence: ask the authors before passing the recordings on. Cite the paper.",
    citation=(
        "S. Abbasloo, C.-Y. Yen, H. J. Chao. Classic Meets Modern: a Pragmatic Learning-Based Congestion Control for "
        "the Internet. ACM SIGCOMM 2020"
    ),
    layout=(
        "trace-NUMBER-WHERE with WHERE of taxi, bus, home, timessquare, in Mahimahi's format; trace-info says which "
        "are stationary, walking, driving."
    ),
    checked="the repository's README and trace-info, and 15 of the 23 files themselves",
    convert=_of_2019,
    doubt=(
        "The README calls the networks cellular without a generation or an operator, so the entries have none. It "
        "uses each trace for the downlink, which is what is taken for its direction; there are no uplinks (the "
        "repository's wired48 is a constant rate and is left out)."
    ),
    remote=git_files("Soheil-ab/Cellular-Traces-NYC", _COMMIT_2019, _BLOBS_2019),
)

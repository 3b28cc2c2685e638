"""Data sets of which no address is known: whatever files one has of them are taken for what they look like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cellbed.archive.entry import About
from cellbed.archive.series import Part
from cellbed.archive.sources.source import Imported, Recording, Source, named


def _edge_study(folder: Path, _way: Part) -> Iterator[Recording]:
    yield from _recognised(folder, EDGE_STUDY, About(origin="recorded", technology="5g", date="2021"))


def _aws(folder: Path, _way: Part) -> Iterator[Recording]:
    yield from _recognised(folder, AWS, About(origin="recorded", technology="fixed", date="2025"))


def _recognised(folder: Path, source: Source, about: About) -> Iterator[Recording]:
    """A recording of each file, whose format is found out when it is read."""
    about = about.model_copy(update={"licence": source.licence, "source": source.page, "citation": source.citation})
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        of = path.relative_to(folder)
        yield Recording(named(source.name, *of.parent.parts, of.stem), of.as_posix(), about, Imported((path,)))


EDGE_STUDY = Source(
    name="5g-edge-study",
    title=(
        "The measurements of “An Empirical Study of 5G: Effect of Edge on Transport Protocol and Application "
        "Performance”"
    ),
    status="uncertain",
    page="https://github.com/syslabshare1/5G_measurement_tool",
    licence="not known",
    terms="Not known: ask the authors.",
    citation=(
        "H. Lim, J. Lee, J. Lee, S. Dhawaskar Sathyanarayana, J. Kim, A. Nguyen, K. T. Kim, Y. Im, M. Chiang, D. "
        "Grunwald, K. Lee, S. Ha. An Empirical Study of 5G: Effect of Edge on Transport Protocol and Application "
        "Performance. IEEE Transactions on Mobile Computing, 2023, doi:10.1109/TMC.2023.3274708"
    ),
    layout=(
        "Not documented. The tool drives iperf3, ping and a tcp_probe of its own, whose lines have no legend; files of "
        "formats that cellbed imports are recognised."
    ),
    checked="the tool, in a copy of 2021 that its author made last: it has no data",
    convert=_edge_study,
    doubt=(
        "The paper says that tool and data set are in its repository, which is the one above according to the tool's "
        "README (in our text of the paper the address is garbled). The one copy that could be read holds the tool "
        "only, and what a data set there looks like is not known. Get it from there or from the authors; results of "
        "iperf3 (JSON), of ping, or tables of rates are converted by `cellbed traces fetch 5g-edge-study --from FILE`."
    ),
)

AWS = Source(
    name="aws-round-trips",
    title="Round-trip times from Amsterdam to Amazon's regions, of the thesis that cellbed began with",
    status="uncertain",
    page="https://github.com/atlarge-research/continuum",
    licence="not known",
    terms="Not known: ask the authors.",
    citation=(
        "G. Mishchenko. Network Simulation for AI in the Digital Continuum. "
        "Bachelor thesis, Vrije Universiteit Amsterdam, 2025, §5.2"
    ),
    layout=(
        "What the ping utility prints, a file a region (eu-central-1, eu-west-3, us-east-1), according to the thesis."
    ),
    checked="nothing: the records were not at hand",
    convert=_aws,
    doubt=(
        "The thesis measured with ping over several days and says that its data are on Google Drive; its text does not "
        "have the link, and the testbed's repository (branches main and mahimahi) has neither link nor records. Get "
        "them from the authors, or make your own with `cellbed ping-record`, and convert them by `cellbed traces fetch "
        "aws-round-trips --from FILE`. Percentiles of the TCP round trips between Amazon's regions, not from "
        "Amsterdam, are published by https://www.cloudping.co: p10 to p99 of a day to a year, without the single times."
    ),
)

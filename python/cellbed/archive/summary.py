"""Summary of a trace in a few numbers."""

from dataclasses import dataclass

from cellbed.archive.catalogue import TraceSource


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Figures of one trace. duration and longest_gap are nanoseconds, mean_rate bit/s; the gap counts across the loop.

    direction: "uplink" or "downlink" by the ending of its name, "" if unknown.
    """

    name: str
    direction: str
    duration: int
    mean_rate: float
    longest_gap: int
    opportunities: int
    synthetic: bool
    sha256: str


def summarise(source: TraceSource) -> TraceSummary:
    """Return the figures of ``source``. Raises TraceError when it is malformed."""
    trace = source.trace
    ending = source.name.rpartition(".")[2]
    return TraceSummary(
        name=source.name,
        direction={"up": "uplink", "down": "downlink"}.get(ending, ""),
        duration=trace.duration_ns,
        mean_rate=trace.mean_bit_rate,
        longest_gap=trace.longest_gap_ns,
        opportunities=trace.opportunities,
        synthetic=source.synthetic,
        sha256=source.sha256,
    )

"""What the requests of a decomposition have in common, as a sentence."""

from typing import TYPE_CHECKING

from cellbed.report import formats

if TYPE_CHECKING:
    from cellbed.measure.decomposition import Decomposition


def sentence(decomposition: "Decomposition") -> str | None:
    """``"9 of these 10 requests were under way during the uplink outage of 1.19 s at 30.0 s."``

    None where fewer than half of the requests met an outage: then it is not what they have in common.
    """
    met, requests = decomposition.outages, decomposition.requests
    if met is None or 2 * met.requests < requests:
        return None
    outage = f"the {met.way} outage of {formats.duration(met.length_s)} at {formats.duration(met.begin_s)}"
    share = f"All these {requests}" if met.requests == requests else f"{met.requests} of these {requests}"
    subject = f"{share} requests were" if requests > 1 else "This request was"
    if met.most == met.requests:
        return f"{subject} under way during {outage}."
    return f"{subject} under way during an outage, {met.most} of them during {outage}."

"""The origin of a run's figures in words: traces, notes and proofs, and the outage common to slow requests."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from cellbed.report.formats import duration
from cellbed.runformat.description import Caution, Description

if TYPE_CHECKING:
    from cellbed.measure.decomposition import Decomposition

State = Literal["holds", "not reached", "not proved", "off"]

PREDICTED = Caution(
    "predicted: simulated in virtual time, not measured",
    "Links and TCP are simulated; what programs take is drawn from the measured profile in profile.json, if any.",
)

MARKS: dict[State, str] = {"holds": "✓", "not reached": "!", "not proved": "–", "off": "✗"}


def traces(description: dict[str, Any]) -> str | None:
    """Return all traces, recordings and models: ``"lte-suburban (synthetic)"``; both directions of a link as one; None
    without any."""
    found: dict[str, bool] = {}
    for direction in description.get("directions") or []:
        for each in filter(None, (origin(direction), direction.get("round_trips"))):
            name = re.sub(r"\.(up|down)$| (uplink|downlink)(?= by |$)", "", str(each["name"]))
            found[name] = found.get(name, False) or bool(each.get("synthetic"))
    return ", ".join(f"{name} (synthetic)" if synthetic else name for name, synthetic in found.items()) or None


def origin(direction: dict[str, Any]) -> dict[str, Any] | None:
    """Return the trace, recording or model that a direction plays: ``name``, ``synthetic``, ``sha256``; None if there
    is none."""
    found: dict[str, Any] | None = direction.get("played") or direction.get("trace")
    return found


def origin_words(direction: dict[str, Any]) -> str:
    """Return the origin for a chart's title: ``"lte-suburban.up (synthetic)"``; empty if nothing is played."""
    found = origin(direction)
    return "" if not found else f"{found['name']} (synthetic)" if found.get("synthetic") else str(found["name"])


def transport(description: dict[str, Any]) -> str | None:
    """Return the transport: ``"TCP bbr, the default of this machine"``; None for a run that did not record it."""
    control = description.get("congestion_control")
    if not control:
        return None
    return f"TCP {control['name']}" + ("" if control.get("asked") else ", the default of this machine")


def cautions(description: dict[str, Any], applications: Sequence[Description]) -> list[Caution]:
    """Return the cautions about a run's data: from its applications, and notes that are only in ``run.json``."""
    declared = dict.fromkeys(caution for each in applications for caution in each.cautions)
    known = {each.text for each in declared}
    notes = [str(note) for note in description.get("notes") or []]
    predicted = [PREDICTED] if description.get("clock") == "virtual" else []
    return [*predicted, *declared, *(Caution(note) for note in notes if note not in known)]


def state(proof: dict[str, Any]) -> State:
    """Return the result of a proof; ``not reached``: the limit held, but the machine could not produce enough load."""
    found = proof.get("state")
    return found if found in MARKS else "holds" if proof.get("ok") else "off"


def cause(decomposition: "Decomposition") -> str | None:
    """Return the shared cause: ``"9 of these 10 requests were under way during the uplink outage of 1.19 s at 30.0
    s."``

    None if fewer than half of the requests met an outage: then the outage is not common to them.
    """
    met, requests = decomposition.outages, decomposition.requests
    if met is None or 2 * met.requests < requests:
        return None
    outage = f"the {met.way} outage of {duration(met.length_s)} at {duration(met.begin_s)}"
    share = f"All these {requests}" if met.requests == requests else f"{met.requests} of these {requests}"
    subject = f"{share} requests were" if requests > 1 else "This request was"
    if met.most == met.requests:
        return f"{subject} under way during {outage}."
    return f"{subject} under way during an outage, {met.most} of them during {outage}."

"""What a run was made of, in words, from the content of ``run.json``: its traces, notes and proofs."""

from typing import Any, Literal

State = Literal["holds", "not reached", "not proved", "off"]

MARKS: dict[State, str] = {"holds": "✓", "not reached": "!", "not proved": "–", "off": "✗"}


def traces(description: dict[str, Any]) -> str | None:
    """``"lte-suburban (synthetic)"``: every trace and record once, both directions of a link as one; None without."""
    found: dict[str, bool] = {}
    for direction in description.get("directions") or []:
        for trace in filter(None, (direction.get("trace"), direction.get("round_trips"))):
            name = str(trace["name"]).removesuffix(".up").removesuffix(".down")
            found[name] = found.get(name, False) or bool(trace.get("synthetic"))
    return ", ".join(f"{name} (synthetic)" if synthetic else name for name, synthetic in found.items()) or None


def trace_words(trace: dict[str, Any] | None) -> str:
    """``"lte-suburban.up, a synthetic trace"`` for the title of a chart; empty without a trace."""
    if not trace:
        return ""
    return f"{trace['name']}, a synthetic trace" if trace.get("synthetic") else f"trace {trace['name']}"


def notes(description: dict[str, Any], seeded_weights: bool) -> list[str]:
    """What the workload has to say about the run's data, in order.

    A run made before runs carried notes still says that its weights are seeded.
    """
    found = [str(note) for note in description.get("notes") or []]
    if seeded_weights and not any(is_about_weights(note) for note in found):
        found.insert(0, "seeded weights: compute is real, labels are not")
    return found


def is_about_weights(note: str) -> bool:
    """Whether a note is the one on seeded weights, which the page explains at length."""
    return note.startswith("seeded weights")


def state(proof: dict[str, Any]) -> State:
    """What a proof showed; ``not reached``: the limit was not exceeded, but the machine could not give that much."""
    found = proof.get("state")
    return found if found in MARKS else "holds" if proof.get("ok") else "off"

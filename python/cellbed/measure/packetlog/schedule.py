"""The delivery opportunities that a direction of a run had, from the trace that the run names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cellbed.archive import TraceError, resolve
from cellbed.archive.soundness import sha256
from cellbed.measure.packetlog.log import LogError, PacketLog
from cellbed.measure.packetlog.mahimahi import Opportunities
from cellbed.testbed.by_hand import manual_changes
from cellbed.units import DURATION


def opportunities(log: PacketLog, direction: int, folder: Path) -> Opportunities | None:
    """The schedule of a direction; `None` where it had no trace.

    folder: where a relative path of a trace is looked for, after the folders of the run.
    Errors: :class:`LogError` where the trace is not there any more, is another one, or was not played throughout.
    """
    described = log.directions.get(direction, {}).get("trace")
    if not described or log.folder is None:
        return None
    if _changed(log, direction):
        raise LogError(f"the bottleneck of {log.direction_name(direction)} was changed while the run went on")
    name, digest = str(described["name"]), described.get("sha256")
    found = []
    for place in (folder, log.folder, log.folder.parent, log.folder.parent.parent):
        try:
            source = resolve(name, place)
            found.append(source.path)
            # Earlier runs have the digest of the text that was made of the series.
            if digest in (None, source.sha256) or digest == sha256(source.path):
                return Opportunities(source.trace, *_playing(described, log.folder))
        except TraceError:
            continue
    why = f"{found[0]} is another one" if found else f"it is not in {folder.absolute()}"
    raise LogError(f"the trace {name!r} of this run cannot be used: {why}")


def _changed(log: PacketLog, direction: int) -> bool:
    """Whether schedule or queue were changed, by the scenario or by hand."""
    assert log.folder is not None
    planned = log.directions.get(direction, {}).get("changes") or []
    kinds = {kind for each in planned for kind in each.get("kinds", ())}
    name = log.direction_name(direction)
    return "bottleneck" in kinds | {each.kind for each in manual_changes(log.folder) if each.direction == name}


def _playing(described: dict[str, Any], folder: Path) -> tuple[int, bool]:
    """Where in the trace the schedule starts, ns, and whether it is looped: a shell tells it with the trace."""
    if "offset_ns" in described:
        return int(described["offset_ns"]), bool(described["looped"])
    mobile = _mobile_link(folder)
    return int(DURATION.parse(str(mobile.get("start", "0 s")))), bool(mobile.get("loop", True))


def _mobile_link(run: Path) -> dict[str, object]:
    path = run / "scenario.resolved.json"
    try:
        mobile = json.loads(path.read_text(encoding="utf-8")).get("links", {}).get("mobile") or {}
    except (OSError, ValueError, AttributeError) as error:
        raise LogError(f"{path}: cannot be read: {error}") from None
    if not isinstance(mobile, dict):
        raise LogError(f"{path}: links.mobile should be an object")
    return mobile

"""Calibration of live networks and of links in virtual time (CellReplay, NSDI 2025, §4.4).

Experiments and estimates: ``crates/calibration``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cellbed import _core, path
from cellbed.link import Link
from cellbed.recordings.conditional import conditional_plan
from cellbed.recordings.description import Calibration, TrainPlan
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recorder import run_recorder
from cellbed.scenario.radio import PROFILES
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.ways import WAYS


class CalibrationError(CellbedError):
    """A network that cannot be calibrated, or a calibration that cannot be read."""


def calibrate_virtually(
    uplink: Sequence[Mapping[str, Any]], downlink: Sequence[Mapping[str, Any]], seed: int = 0,
    outside: path.Outside | None = None,
) -> Calibration:  # fmt: skip
    """Calibrate a network in virtual time.

    uplink, downlink: stages of its directions (:attr:`cellbed.Link.stages`). seed: seed of the order of trains.
    outside: network that packets pass before the stages.

    Raises CalibrationError if nothing or too little comes through.
    """
    up, down = (json.dumps([dict(stage) for stage in each]) for each in (uplink, downlink))
    try:
        return parse(_core.calibrate_virtually(up, down, seed, outside))
    except ValueError as error:
        raise CalibrationError(f"the calibration of the network failed: {error}") from None


def calibrate_radio(profile: str, seed: int = 0) -> Calibration:
    """Calibrate both directions of a profile (docs/reference/radio.md) in virtual time.

    Raises CalibrationError for an unknown profile.
    """
    if profile not in PROFILES:
        hint = did_you_mean(profile, PROFILES)
        raise CalibrationError(f"there is no profile '{profile}': {hint}write one of {', '.join(PROFILES)}")
    uplink, downlink = (Link(rate={"kind": "radio", "profile": profile, "way": way}, seed=seed).stages for way in WAYS)
    return calibrate_virtually(uplink, downlink, seed)


def calibrate_live(server: str, secret: Path, interface: str | None = None, seed: int = 0) -> Calibration:
    """Calibrate the network between here and a recorder's server, with progress on standard error.

    server: ``HOST:PORT``. secret: file with the secret shared with the server. interface: network interface to use.
    seed: seed of the order of trains.

    Raises CalibrationError with the cause and a remedy.
    """
    options = ["--seed", str(seed)] if interface is None else ["--seed", str(seed), "--interface", interface]
    try:
        return parse(run_recorder(["calibrate", "--secret", secret, *options, "--", server]))
    except RecordingError as error:
        raise CalibrationError(str(error)) from None


def fit_plan(plan: TrainPlan, calibration: Calibration, *, regular: bool = False) -> TrainPlan:
    """Return trains that are light on a network: at most a tenth of its slowest second, none that meets an earlier one.

    Args:
        plan: The trains. Longer ones are shortened, gaps become longer.
        calibration: Calibration of the network.
        regular: Add trains of the calibrated lengths, for light rows.

    Returns:
        The plan.

    Raises:
        CalibrationError: The calibration lacks a rate, as in an imported recording.
    """
    try:
        fitted = _core.fit_plan(plan.model_dump_json(exclude_none=True), calibration.recorder_json(), regular)
    except ValueError as error:
        raise CalibrationError(f"no trains can be planned by this calibration: {error}") from None
    return TrainPlan.model_validate_json(fitted)


def default_plan(calibration: Calibration, seed: int = 0) -> TrainPlan:
    """Return the trains of a default recording of a calibrated network, which serve all methods of replay."""
    return fit_plan(conditional_plan().model_copy(update={"seed": seed}), calibration, regular=True)


def parse(text: str) -> Calibration:
    """Return the calibration in a JSON text, such as ``calibration.json``.

    Raises CalibrationError for any other text.
    """
    from pydantic import ValidationError

    try:
        return Calibration.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the text"
        raise CalibrationError(f"not a calibration: {where}: {first['msg']}") from None

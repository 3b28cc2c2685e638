"""Calibration of generated radio links: what a calibration says of a profile."""

from __future__ import annotations

import difflib

from cellbed.link import Link
from cellbed.report.calibration import Calibration, CalibrationError, calibrate_virtually
from cellbed.scenario.radio import PROFILES


def calibrate_radio(profile: str, seed: int = 0) -> Calibration:
    """Calibrate both directions of a profile (docs/radio.md) in virtual time.

    Raises CalibrationError for a name that no profile has.
    """
    if profile not in PROFILES:
        near = difflib.get_close_matches(profile, PROFILES, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise CalibrationError(f"there is no profile '{profile}': {hint}write one of {', '.join(PROFILES)}")
    uplink, downlink = (
        Link(rate={"kind": "radio", "profile": profile, "way": way}, seed=seed) for way in ("uplink", "downlink")
    )
    return calibrate_virtually(uplink, downlink, seed)

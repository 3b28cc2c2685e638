"""In which order networks meet applications: randomised and interleaved in trials. Pure and seeded.

In each trial every network meets every application once, in random order, so that what drifts on the machine meets all
of them alike (Sentosa et al., NSDI 2025, §5.3). All networks of a trial meet an application at the same position of the
recording and with the same order of files or pages.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from cellbed.experiments.evaluation.applications.application import Application


@dataclass(frozen=True, slots=True)
class Step:
    """One application on one network.

    recording: which of the condition's recordings it belongs to. position_ns: where in the network's course it begins.
    seed: of what is random within the application.
    """

    profile: str
    trial: int
    recording: int
    network: str
    application: Application
    position_ns: int
    seed: int

    @property
    def key(self) -> tuple[str, int, str, str]:
        """The identity of the step in an evaluation."""
        return self.profile, self.trial, self.network, self.application.name


def steps(
    profiles: Sequence[str],
    networks: Sequence[str],
    applications: Sequence[Application],
    trials: int,
    course_ns: int,
    seed: int,
    recordings: int = 1,
) -> list[Step]:
    """Return all steps in the order they are made, trial after trial; more trials leave those before as they are.

    recordings: of each condition; trials take them in turn. course_ns: length of the recording, within which
    applications begin and end, if they are not longer.
    """
    found: list[Step] = []
    for trial in range(trials):
        turns = list(profiles)
        _random(seed, trial, "profiles").shuffle(turns)
        for profile in turns:
            pairs = [(network, application) for network in networks for application in applications]
            _random(seed, trial, profile, "pairs").shuffle(pairs)
            for network, application in pairs:
                chance = _random(seed, trial, profile, application.name)
                latest = max(0, course_ns - round(application.length_s * 1e9))
                position, inner = chance.randrange(latest + 1), chance.randrange(2**31)
                found.append(Step(profile, trial, trial % recordings, network, application, position, inner))
    return found


def _random(*parts: object) -> random.Random:
    """Return a separate source for each purpose, so that adding one does not change the others."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "little"))

"""Other users of a capacity, who come and go."""

from __future__ import annotations

from random import Random


def shares(duration: int, users: int, active: float, spell: int, seed: int) -> list[tuple[int, float]]:
    """The share of one user who is always active, over `duration` ns: (from when, share), from 0 on.

    users: including this one. The others are active in spells of exponential length, `spell` ns on average,
    with pauses such that each is active for the share `active` of the time; they start in the long run's mix. All
    active users share equally, as under a round-robin scheduler with queues that are never empty.
    """
    random = Random(f"share {users} {active} {spell} {seed}")
    changes: list[tuple[float, int]] = []
    count = 0
    for _ in range(users - 1):
        on = random.random() < active
        count += on
        at = 0.0
        while active < 1:
            mean = spell if on else spell * (1 - active) / active
            at += random.expovariate(1 / mean)
            if at >= duration:
                break
            changes.append((at, -1 if on else 1))
            on = not on
    found = [(0, 1 / (1 + count))]
    for at, change in sorted(changes):
        count += change
        found.append((int(at), 1 / (1 + count)))
    return found

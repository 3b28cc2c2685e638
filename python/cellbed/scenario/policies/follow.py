"""The policy ``follow``: a service stays at the site of most of its endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from cellbed.scenario.policies.policy import Decide, Decision, Place, Policy, State


class Follow(Policy):
    """By the sites of the cells of the application's endpoints."""

    kind: Literal["follow"] = Field(description="Follow the sites of the cells of the application's endpoints.")
    nodes: list[str] = Field(
        min_length=1,
        description="Possible nodes of the service, one at each site.",
        examples=[["north-0", "south-0"]],
    )

    def targets(self) -> list[str]:
        return self.nodes

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        visited = {site for site in place.sites if site is not None}
        if len(visited) < 2:
            yield "kind", "the endpoints stay at one site: write a 'route' in their group, to cells at several sites"
        for site in sorted(visited):
            there = [node for node, at in place.nodes.items() if at == site]
            if len(there) != 1:
                listed = " and ".join(there) or "none"
                yield "nodes", f"at the site '{site}' there must be one of the nodes, there is {listed}"

    def decider(self) -> Decide:
        return _decide

    def __str__(self) -> str:
        """Return the policy in words."""
        return "the site of the endpoints"


def _decide(state: State) -> Decision | None:
    """Decide for the site with the most endpoints; if several sites have as many, prefer the present one."""
    counts = Counter(site for site in state.endpoints.values() if site is not None)
    if not counts or counts[state.nodes.get(state.place) or ""] == max(counts.values()):
        return None
    site, count = counts.most_common(1)[0]
    who = next(iter(state.endpoints)) if len(state.endpoints) == 1 else f"{count} of {len(state.endpoints)} endpoints"
    return next((node for node, at in state.nodes.items() if at == site), state.place), f"{who} at {site}"

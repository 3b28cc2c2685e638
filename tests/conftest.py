"""Fixtures of several files."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from shell_world import World, open_world

# A loaded machine is no fault of what is tested.
settings.register_profile("cellbed", deadline=None)
settings.load_profile("cellbed")


@pytest.fixture
def world() -> Iterator[World]:
    """A world of one's own."""
    with open_world() as world:
        yield world

"""Fixtures of several files."""

from collections.abc import Iterator

import pytest

from shell_world import World, open_world


@pytest.fixture
def world() -> Iterator[World]:
    """A world of one's own."""
    with open_world() as world:
        yield world

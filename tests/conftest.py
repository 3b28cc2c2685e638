"""Fixtures of several files."""

import os
from collections.abc import Iterator

import pytest

from shell_world import World, open_world


@pytest.fixture
def world() -> Iterator[World]:
    """A world of one's own."""
    with open_world() as world:
        yield world


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what this machine cannot run, before its fixtures."""
    if item.get_closest_marker("needs_tun") and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("/dev/net/tun cannot be opened")

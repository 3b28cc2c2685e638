"""Servers of the kinds whose client is a browser, and the keys of their tables."""

from collections.abc import Iterator

from cellbed.scenario.applications import Groups, Key
from cellbed.scenario.roles import AnyRole

PACKAGES = {"nginx": "nginx-light", "caddy": "caddy"}
"""Servers of pages, and the packages that contain them."""


def server_misfits(software: str, version: str, server: AnyRole | None, groups: Groups) -> Iterator[tuple[Key, str]]:
    """Yield problems of a server of files: (key, what to do). software, version: see
    :class:`cellbed.workloads.web.table.Web`."""
    if version == "3" and software == "nginx":
        yield "version", 'nginx of distributions has no HTTP/3: write software = "caddy", or version = "2"'
    elif server is not None and server.on in groups and not groups[server.on].backend.shares_files:
        yield "server", f"nodes '{server.on}' do not share this machine's files: use namespace nodes"

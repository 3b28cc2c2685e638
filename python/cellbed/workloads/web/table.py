"""The table of the kind in a scenario."""

import pathlib
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, Load, Timeout, Wait
from cellbed.scenario.fields import SITE
from cellbed.scenario.roles import Role
from cellbed.scenario.table import written
from cellbed.support.near_names import did_you_mean
from cellbed.workloads.browsing import PACKAGES, PROGRAMS
from cellbed.workloads.browsing.table import server_misfits
from cellbed.workloads.web.pages import DOMAIN, hosts, pages

_SOURCES = ("page", "root", "url")


class Web(Load):
    """Loads of a web page by Chromium, from nginx, Caddy or any server, over HTTP/1.1, HTTP/2 or HTTP/3."""

    model_config = ConfigDict(
        json_schema_extra={
            **RATE_IF_NEEDED,
            "required": ["kind"],
            "anyOf": [{"required": [name]} for name in _SOURCES],
        }
    )

    kind: Literal["web"]
    page: str | None = Field(
        None, description="Generated page: google, facebook, amazon, cnn or netflix.", examples=["amazon"]
    )
    root: Annotated[pathlib.Path, SITE] | None = Field(
        None, description="Folder with the files of a page, whose index.html is loaded."
    )
    url: str | None = Field(
        None,
        pattern="^https?://[!-~]{1,4000}$",
        description="URL of a page of any server; names in braces are filled in.",
        examples=["https://{server.address}:8443/"],
    )
    software: Literal["nginx", "caddy"] = Field("nginx", description="Server of `page` and `root`.")
    version: Literal["1.1", "2", "3"] = Field("2", description="Version of HTTP; 3 from Caddy.")
    cache: Literal["cold", "warm"] = Field(
        "cold",
        description="cold: each load has an empty cache and new connections. warm: cache and connections of the load "
        "before.",
    )
    timeout: Timeout = Field(written("60 s"), description="A page that has not loaded by then is given up.")
    drain: Wait = Field(written("60 s"), description="Time to wait for loads after the last one has begun.")

    @property
    def host_names(self) -> tuple[str, ...]:
        """As of :class:`Application`: the hosts of the page's origins."""
        if self.page is not None:
            return tuple(hosts(self.page))
        return (f"www.site.{DOMAIN}",) if self.root is not None else ()

    @property
    def certified(self) -> bool:
        """As of :class:`Application`."""
        return self.url is None or self.url.startswith("https:") or super().certified

    @property
    def tools(self) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        """As of :class:`Application`."""
        server = ("software", (self.software,), PACKAGES[self.software])
        return ("kind", PROGRAMS, PROGRAMS[0]), *((server,) if self.url is None else ())

    def templates(self) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().templates()
        if self.url is not None:
            yield "url", self.url

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`: the server of a URL can be a program of the user."""
        if key == "server" and self.url is not None and role.model_fields_set != {"on"}:
            return self._program_misfits(key, role, groups)
        return super()._own_misfits(key, role, groups)

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if not given:
            yield "page", 'missing: write a page that is generated, page = "amazon", or root = "./site", or a url'
        for name in given[1:]:
            yield name, f"'{given[0]}' is given, too: remove one of the two"
        if self.page is not None and self.page not in pages():
            hint = did_you_mean(self.page, pages())
            yield "page", f"there is no page '{self.page}': {hint}write one of {', '.join(pages())}"
        if self.root is not None and not (self.root / "index.html").is_file():
            yield "root", f"there is no index.html in '{self.root}': write one, or another folder"
        if self.url is None and self.server is None:
            yield "server", 'missing: write the node group that serves the page, server = "edge"'
        if self.url is not None:
            if "software" in self.model_fields_set:
                yield "software", "the URL's server is your own program: remove this key"
            if self.version != "1.1" and self.url.startswith("http:"):
                yield "version", "browsers use it with TLS alone: write 'https://' in 'url', or version = \"1.1\""
        else:
            yield from server_misfits(self.software, self.version, self.server, groups)

    def __str__(self) -> str:
        """Return the application in a line."""
        what = self.page or self.root or self.url
        return f"{super().__str__()}, page {what} over HTTP/{self.version}"

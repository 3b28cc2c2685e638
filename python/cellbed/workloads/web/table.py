"""Loads of web pages in a scenario."""

import pathlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, Load, Timeout, Wait, group_misfits
from cellbed.scenario.fields import SITE, SITE_FILE
from cellbed.scenario.nodes import Name
from cellbed.scenario.roles import Role
from cellbed.scenario.table import written
from cellbed.support.near_names import did_you_mean
from cellbed.workloads.browsing import PACKAGES, server_misfits
from cellbed.workloads.web.pages import DOMAIN, hosts, pages
from cellbed_node.browsing import PROGRAMS
from cellbed_node.web import warc
from cellbed_node.web.site import MOST_ORIGINS, SiteError

_SOURCES = ("page", "root", "site", "url")


class Web(Load):
    """Loads of a web page by Chromium, from nginx, Caddy or any server, over HTTP/1.1, HTTP/2 or HTTP/3."""

    model_config = ConfigDict(
        json_schema_extra={
            **RATE_IF_NEEDED,
            "required": ["kind"],
            "anyOf": [{"required": [name]} for name in _SOURCES],
        }
    )

    usual_load: ClassVar[str] = "closed"

    kind: Literal["web"]
    page: str | None = Field(
        None, description="Generated page: google, facebook, amazon, cnn or netflix.", examples=["amazon"]
    )
    root: Annotated[pathlib.Path, SITE] | None = Field(
        None, description="Folder with the files of a page, whose index.html is loaded."
    )
    site: Annotated[pathlib.Path, SITE_FILE] | None = Field(
        None, description="Recorded site of the archive, or a WARC file; its first page is loaded, or `url`."
    )
    origins: dict[Annotated[str, Field(pattern="^[a-z0-9._*-]{1,253}$")], Name] = Field(
        {},
        description="Node groups of origins of `site` that are not at `server`: pattern of host names = group.",
        examples=[{"*.cdn.example": "cloud"}],
    )
    url: str | None = Field(
        None,
        pattern="^https?://[!-~]{1,4000}$",
        description="URL of a page of any server; names in braces are filled in. With `site`: of the page in it.",
        examples=["https://{server.address}:8443/"],
    )
    software: Literal["nginx", "caddy"] = Field("nginx", description="Server of `page`, `root` and `site`.")
    version: Literal["1.1", "2", "3"] = Field("2", description="Version of HTTP; 3 from Caddy.")
    cache: Literal["cold", "warm"] = Field(
        "cold",
        description="cold: each load has an empty cache and new connections. warm: cache and connections of the load "
        "before.",
    )
    timeout: Timeout = Field(written("60 s"), description="A page that has not loaded by then is given up.")
    drain: Wait = Field(written("60 s"), description="Time to wait for loads after the last one has begun.")

    @property
    def served(self) -> bool:
        """Return whether the kind serves the page; else any server does."""
        return self.url is None or self.site is not None

    @property
    def more_servers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.origins.values()))

    @property
    def host_names(self) -> tuple[str, ...]:
        if self.page is not None:
            return tuple(hosts(self.page))
        if self.site is not None:
            return tuple({origin.host for origin in warc.read(self.site).origins})
        return (f"www.site.{DOMAIN}",) if self.root is not None else ()

    @property
    def has_certificate(self) -> bool:
        return self.served or str(self.url).startswith("https:") or super().has_certificate

    @property
    def tools(self) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        server = ("software", (self.software,), PACKAGES[self.software])
        return ("kind", PROGRAMS, PROGRAMS[0]), *((server,) if self.served else ())

    def templates(self) -> Iterator[tuple[Key, str]]:
        yield from super().templates()
        if self.url is not None and not self.served:
            yield "url", self.url

    def _own_misfits(self, key: str, role: Role, groups: Groups) -> Iterator[tuple[Key, str]]:
        if key == "server" and not self.served and role.model_fields_set != {"on"}:
            return self._program_misfits(key, role, groups)
        return super()._own_misfits(key, role, groups)

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if not given:
            yield "page", 'missing: write a page that is generated, page = "amazon", or root = "./site", or a url'
        for name in given[1:] if given != ["site", "url"] else ():
            yield name, f"'{given[0]}' is given, too: remove one of the two"
        if self.page is not None and self.page not in pages():
            hint = did_you_mean(self.page, pages())
            yield "page", f"there is no page '{self.page}': {hint}write one of {', '.join(pages())}"
        if self.root is not None and not (self.root / "index.html").is_file():
            yield "root", f"there is no index.html in '{self.root}': write one, or another folder"
        if self.served and self.server is None:
            yield "server", 'missing: write the node group that serves the page, server = "edge"'
        if not self.served:
            if "software" in self.model_fields_set:
                yield "software", "the URL's server is your own program: remove this key"
            if self.version != "1.1" and str(self.url).startswith("http:"):
                yield "version", "browsers use it with TLS alone: write 'https://' in 'url', or version = \"1.1\""
        else:
            yield from server_misfits(self.software, self.version, self.server, groups)
            for group in self.more_servers:
                if group in groups and not groups[group].backend.shares_files:
                    yield "origins", f"nodes '{group}' do not share this machine's files: use namespace nodes, or 'url'"
        yield from self._site_misfits(groups)

    def _site_misfits(self, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Yield problems of a recorded site."""
        if self.site is None:
            if self.origins:
                yield "origins", 'belong to a recorded site: write site = "FILE", or remove this key'
            return
        try:
            site = warc.read(self.site)
            page = self.url or site.page
        except SiteError as error:
            yield "site", str(error)
            return
        if page not in {each.url for each in site.exchanges if each.method == "GET"}:
            hint = did_you_mean(page, [each.url for each in site.exchanges if each.kind == "text/html"])
            yield "url", f"the site has no reply of '{page:.200}': {hint}`cellbed web show` shows its origins"
        if len(site.origins) > MOST_ORIGINS:
            yield "site", f"has {len(site.origins)} origins, more than {MOST_ORIGINS}: record a smaller site"
        for pattern, group in self.origins.items():
            yield from group_misfits(("origins", pattern), group, groups)
            if not any(fnmatchcase(origin.host, pattern) for origin in site.origins):
                hint = did_you_mean(pattern, [origin.host for origin in site.origins])
                yield ("origins", pattern), f"no origin of the site matches: {hint}`cellbed web show` shows them"

    def __str__(self) -> str:
        """Return the application in a line."""
        what = self.page or self.root or (self.site.name if self.site is not None else self.url)
        versions = warc.read(self.site).versions(self.version) if self.site is not None else self.version
        return f"{super().__str__()}, page {what} over HTTP/{versions}"

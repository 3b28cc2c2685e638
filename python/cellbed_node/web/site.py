"""Recorded sites: exchanges of requests and replies, their origins, and the selection of a request's reply. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from ipaddress import ip_address
from urllib.parse import urlsplit

from cellbed_node.errors import CellbedError, LeftOut

Headers = tuple[tuple[str, str], ...]
"""Names and values in Latin-1, in order."""
UNKNOWN = "1970-01-01T00:00:00Z"
"""Date of an exchange whose date is unknown."""
MOST_ORIGINS = 500
"""Maximum origins of a site that a scenario replays: each has a port."""
PORTS = {"http": 80, "https": 443}
_NO_URL = "not a URL of HTTP with a host name"
_HOST = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,252}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING = frozenset(
    "connection content-length keep-alive proxy-connection te trailer transfer-encoding upgrade".split()  # noqa: SIM905
)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_STATUS = re.compile(r"HTTP/[0-9.]+ +([2-5][0-9]{2}) ?([^\r\n]*)")
_REDIRECTS = (301, 302, 303, 307, 308)


class SiteError(CellbedError):
    """A recorded site that cannot be read or replayed. The text names the file, the place in it and the remedy."""


@dataclass(frozen=True, slots=True)
class Origin:
    """An origin of URLs (RFC 6454): scheme, host and port."""

    scheme: str
    host: str
    port: int

    @property
    def netloc(self) -> str:
        """Host and port; a scheme's default port is omitted."""
        return self.host if PORTS[self.scheme] == self.port else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"


def split(url: str) -> tuple[Origin, str]:
    """Return the origin of a URL, and its path with the query. Errors: ``ValueError`` for a URL that is not HTTP."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise ValueError(_NO_URL) from None
    if parts.scheme not in PORTS or not _HOST.fullmatch(host):
        raise ValueError(_NO_URL)
    target = (parts.path or "/") + (f"?{parts.query}" if "?" in url.partition("#")[0] else "")
    # A request line of HTTP has no further spaces and only ASCII characters.
    target = re.sub(r"[^!-~]", lambda it: "".join(f"%{byte:02X}" for byte in it[0].encode()), target)
    return Origin(parts.scheme, host, port or PORTS[parts.scheme]), target


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its reply. target: path with the query; body: body of the reply, encoded as `reply` states;
    address: of the server, if known; date: date of the request, in ISO 8601. Headers exclude those that frame a message
    on its connection (RFC 9112, §6), and pseudo-headers of HTTP/2."""

    method: str
    origin: Origin
    target: str
    status: int
    reply: Headers
    body: bytes = b""
    request: Headers = ()
    sent: bytes = b""
    reason: str = ""
    address: str | None = None
    date: str = UNKNOWN

    @property
    def url(self) -> str:
        return f"{self.origin}{self.target}"

    @property
    def kind(self) -> str:
        """The media type of the reply."""
        return (header(self.reply, "content-type") or "").partition(";")[0].strip().lower()


def header(headers: Headers, name: str) -> str | None:
    """Return the first value of the header `name`, which is in lower case."""
    return next((value for each, value in headers if each.lower() == name), None)


def clean(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return headers as in an :class:`Exchange`. Values with line feeds, as browsers export cookies, become several."""
    return tuple(
        (name, re.sub(r"[\x00-\x08\x0b-\x1f\x7f]|[^\x00-\xff]", "", line).strip(" \t"))
        for name, value in headers
        if _NAME.fullmatch(name) and name.lower() not in _FRAMING
        for line in value.split("\n")
    )


Message = tuple[str, Iterable[tuple[str, str]], bytes]
"""First line, headers and body."""


def exchange(url: str, request: Message, reply: Message, server: str | None, date: str | float) -> Exchange:
    """Return the exchange of two messages. server: its address; date: in ISO 8601, or in seconds since 1970.

    Errors: ``ValueError`` for a URL or a reply that is not of HTTP.
    """
    origin, target = split(url)
    status, headers, body = _STATUS.match(reply[0]), tuple(reply[1]), reply[2]
    if status is None:
        raise ValueError(f"its reply begins with '{reply[0]:.40}', no status of HTTP from 200 to 599")
    if (header(headers, "transfer-encoding") or "").lower().strip().endswith("chunked"):
        body = join_chunks(body)
    return Exchange(
        method=request[0].partition(" ")[0],
        origin=origin,
        target=target,
        request=clean(request[1]),
        sent=request[2],
        status=int(status[1]),
        reason=re.sub(r"[^ -~]", "", status[2]),
        reply=clean(headers),
        body=body,
        address=address(server),
        date=moment(date),
    )


def moment(date: object) -> str:
    """Return a date in ISO 8601, from this format or seconds since 1970; `UNKNOWN` for other values."""
    try:
        it = datetime.fromisoformat(date) if isinstance(date, str) else datetime.fromtimestamp(float(str(date)), UTC)
        return f"{it.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def address(text: str | None) -> str | None:
    """Return an IP address; ``None`` for another text, such as a placeholder for a hidden address."""
    try:
        return str(ip_address((text or "").strip("[]")))
    except ValueError:
        return None


@dataclass(frozen=True)
class Site:
    """A recorded site. source: name in messages; start: URL of its page, if the recording states it.

    left_out: entries of the recording that are not among the exchanges; remarks: differences from the recorded site.
    """

    source: str
    exchanges: Sequence[Exchange]
    start: str | None = None
    left_out: LeftOut = field(default_factory=LeftOut)
    remarks: Sequence[str] = ()

    @cached_property
    def origins(self) -> dict[Origin, list[Exchange]]:
        """The exchanges by origin, in the order of first use."""
        found: dict[Origin, list[Exchange]] = {}
        for each in self.exchanges:
            found.setdefault(each.origin, []).append(each)
        return found

    def versions(self, version: str) -> str:
        """Return the versions of HTTP that browsers use for the site; `version` needs TLS."""
        schemes = {origin.scheme for origin in self.origins}
        if schemes == {"http"}:
            return "1.1"
        return version if schemes == {"https"} or version == "1.1" else f"{version}, without TLS HTTP/1.1"

    @cached_property
    def page(self) -> str:
        """The URL of the site's first page. Errors: :class:`SiteError` if there is none."""
        for each in self.exchanges:
            if self.start in (None, each.url) and each.method == "GET" and begins_page(each.status, each.kind):
                return each.url
        if self.start is not None:
            remedy = "export its load again with contents, or choose another page with `url`"
            raise SiteError(f"{self.source}: no reply of its page {self.start:.200}: {remedy}")
        raise SiteError(f"{self.source}: no reply is a page (text/html): record or export the load of one")


def begins_page(status: int, kind: str) -> bool:
    """Return whether a reply of this status and media type can begin a page."""
    return status in _REDIRECTS or (status == 200 and kind == "text/html")


class Replies:
    """The replies of a site, selected as in Mahimahi's replay server (Netravali et al., ATC 2015, §2.2).

    Method, origin and path must be equal. Among several requests, the query with the longest common prefix is selected.
    Mahimahi also requires an equal User-Agent. Here an equal User-Agent only takes precedence, since exports of another
    browser have a different one.
    """

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._by_path: dict[tuple[str, str, str, bool], list[Exchange]] = {}
        for each in exchanges:
            self._by_path.setdefault(_key(each.method, str(each.origin), each.target), []).append(each)

    def find(self, method: str, origin: str, target: str, agent: str | None) -> Exchange | None:
        """Return the exchange whose reply a request gets, the first of equally good ones."""

        def score(each: Exchange) -> tuple[bool, int]:
            # A space ends the target in a line of HTTP: with it, an equal target beats a longer one.
            pairs = enumerate(zip(f"{each.target} ", f"{target} ", strict=False))
            shorter = min(len(each.target), len(target)) + 1
            return header(each.request, "user-agent") == agent, next((at for at, (a, b) in pairs if a != b), shorter)

        return max(self._by_path.get(_key(method, origin, target), ()), key=score, default=None)


def _key(method: str, origin: str, target: str) -> tuple[str, str, str, bool]:
    path, mark, _ = target.partition("?")
    return method, origin, path, bool(mark)


def join_chunks(body: bytes) -> bytes:
    """Return a body without its chunked framing (RFC 9112, §7.1). Bodies stored without framing, as by some recorders,
    are returned unchanged.

    Raises ValueError for a body that ends within a chunk.
    """
    parts: list[bytes] = []
    at = 0
    while (chunk := _CHUNK.match(body, at)) is not None:
        size = int(chunk[1], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[chunk.end() : chunk.end() + size])
        at = chunk.end() + size + 2
    if at > len(body) + 2 or (at < len(body) and parts):
        raise ValueError("its chunks are truncated or malformed")
    return b"".join(parts) or body

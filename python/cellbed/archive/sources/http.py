"""Opening an address: proxies of the environment, redirections, nothing but HTTP and HTTPS."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from cellbed.archive.errors import TraceError

if TYPE_CHECKING:
    import urllib3
    from urllib3.response import BaseHTTPResponse

CONNECT_S = 20.0
SILENCE_S = 60.0
"""How long a server may say nothing."""

_MOST_REDIRECTIONS = 10
_REDIRECTED = (301, 302, 303, 307, 308)


def open_address(address: str, headers: dict[str, str], silence_s: float = SILENCE_S) -> BaseHTTPResponse:
    """The answer to a GET, whatever its status but a redirection, with its body unread; to be closed by the caller.

    The body is as it is stored: no compression is asked for. Raises urllib3's HTTPError when the network fails,
    TraceError for an address that cannot be followed.
    """
    import urllib3

    at = address
    for _ in range(_MOST_REDIRECTIONS + 1):
        response = _pool(_proxy(at)).request(
            "GET",
            at,
            headers={"User-Agent": _user_agent(), "Accept-Encoding": "identity", **headers},
            timeout=urllib3.Timeout(connect=CONNECT_S, read=silence_s),
            preload_content=False,
            redirect=False,
            retries=False,
        )
        onward = response.headers.get("Location")
        if response.status not in _REDIRECTED or onward is None:
            return response
        response.close()
        following = urljoin(at, onward)
        if urlsplit(at).scheme == "https" and urlsplit(following).scheme != "https":
            raise TraceError(f"{address}: redirected to {following}, which cannot vouch for the files")
        at = following
    raise TraceError(f"{address}: more than {_MOST_REDIRECTIONS} redirections")


def _proxy(address: str) -> str | None:
    """The proxy that the environment names for an address (``https_proxy``, ``no_proxy``…)."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TraceError(f"{address}: not an HTTP or HTTPS address")
    if proxy_bypass(parts.hostname):
        return None
    known = getproxies()
    return known.get(parts.scheme) or known.get("all")


@cache
def _pool(proxy: str | None) -> urllib3.PoolManager:
    import urllib3

    if proxy is None:
        return urllib3.PoolManager()
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in ("http", "https"):
        raise TraceError(
            f"the environment names the proxy {parts.scheme}://{parts.hostname}, "
            "but only HTTP proxies are supported: download by hand and use --from"
        )
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return urllib3.ProxyManager(address, proxy_headers=urllib3.make_headers(proxy_basic_auth=login))


@cache
def _user_agent() -> str:
    from cellbed import __version__

    return f"cellbed/{__version__}"


def in_words(error: Exception) -> str:
    """What went wrong with the network, of an error of urllib3's."""
    import urllib3

    kinds = (
        (urllib3.exceptions.ProxyError, "the proxy named in the environment cannot be reached"),
        (urllib3.exceptions.NameResolutionError, "the name of the server cannot be resolved; is there a network?"),
        (urllib3.exceptions.NewConnectionError, "the server cannot be reached"),
        (urllib3.exceptions.ConnectTimeoutError, "the server does not answer"),
        (urllib3.exceptions.ReadTimeoutError, "the server stopped responding"),
    )
    return next((words for kind, words in kinds if isinstance(error, kind)), "the connection broke")

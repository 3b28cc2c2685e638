"""Files over HTTP: where they are listed, and downloads that resume, are checked, and appear only when complete.

Beside an unfinished file, ``NAME.part``, lies ``NAME.part.json``: its address, the version that the server named
(RFC 9110, §8.8), its length. The rest is requested with Range and If-Range (§13.1.5, §14.2), so that halves of two
versions are never joined.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from cellbed import inputs
from cellbed.archive.errors import TraceError
from cellbed.archive.sources.source import Listing, RemoteFile
from cellbed.readable import duration_words
from cellbed.whole_files import write_whole

if TYPE_CHECKING:
    import urllib3
    from urllib3.response import BaseHTTPResponse

Progress = Callable[[str, int, int | None], None]
"""Told of a file's name, how many of its bytes are there, and how many there will be, if that is known."""
News = Callable[[str], None]
"""Told at once what is tried, and why it is waited, in sentences."""

_CONNECT_S = 20.0
SILENCE_S = 60.0
"""Longest silence of a server."""

_MOST_REDIRECTIONS = 10
_REDIRECTED = (301, 302, 303, 307, 308)
_MOST_LISTING = 4 << 20
"""Of a page; an entry of Apache's listings takes some 200."""
_PIECE = 1 << 16
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_MOST_WAIT_S = 60.0
_MOVED = (
    "the data set may have moved; look for it at its page, then give its new address (--address) or the downloaded "
    "file (--from)"
)
_BY_HAND = "or download it elsewhere and give the file (--from)"


@dataclass(frozen=True, slots=True)
class Patience:
    """attempts: in a row that bring no byte. first_wait_s: before the second one; each later one doubles it."""

    attempts: int = 5
    first_wait_s: float = 1.0
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True)
class _Version:
    """Of what file the bytes of ``NAME.part`` are. validator: a strong entity tag or a date of change."""

    address: str
    validator: str | None
    total: int | None


_NONE = _Version("", None, None)


class GoneError(TraceError):
    """The server says that there is no such file, or not for us: asking again is of no use."""


class _AgainError(Exception):
    """It failed as things fail that succeed later. wait_s: what the server asks for."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.wait_s = wait_s


def download(
    remote: RemoteFile,
    folder: Path,
    most_bytes: int,
    progress: Progress,
    patience: Patience | None = None,
    news: News = lambda _: None,
) -> Path:
    """Put a file into ``folder`` at its path there, unless it is there already, and give the place.

    Raises TraceError when it cannot be had, is larger than ``most_bytes`` or is not what its checksum says. What has
    come stays for the next call after everything but the last two, a KeyboardInterrupt too.
    """
    place = folder / remote.path
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place.with_name(f"{place.name}.part")) as part:
            if not _is_there(place, remote):
                news(f"downloading {remote.address}")
                _Download(remote, place, part, most_bytes, progress, patience or Patience(), news).run()
            else:
                Path(part.name).unlink()
    except OSError as error:
        raise TraceError(f"{place}: cannot write the download there: {error.strerror or error}") from error
    return place


def _is_there(place: Path, remote: RemoteFile) -> bool:
    return place.exists() and (remote.checksum is None or remote.checksum.matches(place))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """A file that only this process writes, open at its end."""
    while True:
        with path.open("ab") as part:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TraceError(f"another process is downloading {path}: wait for it") from None
            # The previous holder of the lock may have given the file its final name meanwhile.
            if path.exists() and os.path.samestat(os.fstat(part.fileno()), path.stat()):
                yield part
                return


class _Download:
    def __init__(
        self,
        remote: RemoteFile,
        place: Path,
        part: IO[bytes],
        most_bytes: int,
        progress: Progress,
        patience: Patience,
        news: News,
    ) -> None:
        self.remote = remote
        self.place = place
        self.part = part
        self.most_bytes = most_bytes
        self.progress = progress
        self.patience = patience
        self.news = news
        self.note = place.with_name(f"{place.name}.part.json")
        self.version = _noted(self.note)
        self.have = part.seek(0, os.SEEK_END)

    def run(self) -> None:
        vain = 0
        while True:
            if not self._resumable():
                self._restart()
            before = self.have
            try:
                self._attempt()
                break
            except _AgainError as error:
                vain = 0 if self.have > before else vain + 1
                if vain >= self.patience.attempts:
                    kept = f"; {self.have:,} bytes are kept: run the command again to go on from there,"
                    raise TraceError(
                        f"{self.remote.address}: {error}{kept if self.have else ':'} "
                        f"{'' if self.have else 'try again later, '}{_BY_HAND}"
                    ) from error
                wait = self.patience.first_wait_s * 2.0 ** max(0, vain - 1)
                wait = min(_MOST_WAIT_S, max(wait, error.wait_s or 0.0))
                times = f", attempt {vain + 1} of {self.patience.attempts}" if vain else ""
                self.news(f"{error}: once more in {duration_words(wait)}{times}")
                time.sleep(wait)
        self._finish()

    def _attempt(self) -> None:
        """One request and as much of its answer as comes."""
        import urllib3

        try:
            with contextlib.closing(self._ask()) as response:
                if self._start(response):
                    # What is there, not a full piece: on a slow line that one can take long.
                    while piece := response.read1(_PIECE, decode_content=False):
                        self._take(piece)
        except urllib3.exceptions.SSLError as error:
            raise TraceError(
                f"{self.remote.address}: the server's certificate is not to be trusted: {error}; "
                "download it by hand if you know better, and use --from"
            ) from error
        except urllib3.exceptions.HTTPError as error:
            raise _AgainError(in_words(error)) from error
        finally:
            self.part.flush()
        total = self.version.total
        if total is not None and self.have < total:
            raise _AgainError(f"the connection ended after {self.have:,} of {total:,} bytes")

    def _take(self, piece: bytes) -> None:
        if self.have + len(piece) > self.most_bytes:
            self._too_large(f"goes on after {self.most_bytes:,} bytes, which is the limit")
        self.part.write(piece)
        self.have += len(piece)
        self.progress(self.remote.path, self.have, self.version.total)

    def _ask(self) -> BaseHTTPResponse:
        headers = {}
        if self.have:
            headers["Range"] = f"bytes={self.have}-"
            if self.version.validator is not None:
                headers["If-Range"] = self.version.validator
        return open_address(self.remote.address, headers, self.patience.silence_s)

    def _start(self, response: BaseHTTPResponse) -> bool:
        """Prepare the part for appending the answer's body; False: it is complete already."""
        status = response.status
        if status == 416 and self.have:
            # Either nothing was missing, or the file has become shorter.
            if response.headers.get("Content-Range", "") == f"bytes */{self.have}":
                return False
            self._restart()
            raise _AgainError("the file has changed at the server")
        if status == 206 and self.have:
            found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != self.have:
                self._restart()
                raise _AgainError("the server gives another part than it was asked for")
            return True
        if status != 200:
            self._refused(status, response.headers.get("Retry-After"))
        if response.headers.get("Content-Type", "").startswith("text/html"):
            # What many servers redirect to when a file is gone.
            raise GoneError(f"{self.remote.address}: the server answers with a web page instead of the file: {_MOVED}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise TraceError(f"{self.remote.address}: the server packs the file although it was asked not to")
        self._restart()
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        if total is not None:
            if total > self.most_bytes:
                self._too_large(f"has {total:,} bytes, the limit is {self.most_bytes:,}")
            if total > (free := shutil.disk_usage(self.place.parent).free):
                raise TraceError(
                    f"{self.remote.address} has {total:,} bytes, but {self.place.parent} has room for {free:,}: "
                    "set XDG_CACHE_HOME to a folder on a larger disk"
                )
        self._remember(_Version(self.remote.address, _validator(response), total))
        return True

    def _refused(self, status: int, retry_after: str | None) -> None:
        from http import HTTPStatus

        known = status in HTTPStatus._value2member_map_
        answer = f"the server answers {status}{f' ({HTTPStatus(status).phrase})' if known else ''}"
        if status in (408, 429) or status >= 500:
            raise _AgainError(answer, float(retry_after) if retry_after and retry_after.isdecimal() else None)
        raise GoneError(f"{self.remote.address}: {answer}: {_MOVED}")

    def _too_large(self, says: str) -> None:
        self._restart()
        raise TraceError(
            f"{self.remote.address} {says}: it is not the data set that is known; to take it, raise --most-bytes"
        )

    def _finish(self) -> None:
        os.fsync(self.part.fileno())
        path = Path(self.part.name)
        if self.remote.checksum is not None and not self.remote.checksum.matches(path):
            path.unlink()
            self.note.unlink(missing_ok=True)
            raise TraceError(
                f"{self.remote.address}: the file is not what its publisher says ({self.remote.checksum}), "
                "so it is thrown away: run the command again; if it stays so, the data set has changed"
            )
        path.replace(self.place)
        self.note.unlink(missing_ok=True)

    def _resumable(self) -> bool:
        """Whether one can go on after what is there: of this address, and of a known version or checked at the end."""
        named = self.version.validator is not None or self.remote.checksum is not None
        return self.version.address == self.remote.address and named

    def _restart(self) -> None:
        self.part.truncate(0)
        self.have = 0
        self.note.unlink(missing_ok=True)
        self.version = _NONE

    def _remember(self, version: _Version) -> None:
        self.version = version
        write_whole(self.note, lambda note: note.write_text(json.dumps(asdict(version)), encoding="utf-8"))


def _noted(note: Path) -> _Version:
    try:
        return _Version(**inputs.json_value(note))
    except (OSError, ValueError, TypeError):
        return _NONE


def _validator(response: BaseHTTPResponse) -> str | None:
    tag = response.headers.get("ETag", "")
    # A weak tag may stay when bytes change, so RFC 9110 forbids it in If-Range.
    return tag if tag.startswith('"') else response.headers.get("Last-Modified")


def open_address(address: str, headers: dict[str, str], silence_s: float = SILENCE_S) -> BaseHTTPResponse:
    """The answer to a GET, with any status but a redirection, with its body unread; to be closed by the caller.

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
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=silence_s),
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


def listed(listing: Listing) -> tuple[RemoteFile, ...]:
    """The files that a listing leads to, each at ``FOLDER/FILE``. Raises TraceError when there are none to be read."""
    files = []
    for folder in _names(listing.address, listing.folders, folders=True):
        address = urljoin(listing.address, f"{folder}/")
        files += [
            RemoteFile(urljoin(address, name), f"{unquote(folder)}/{unquote(name)}")
            for name in _names(address, listing.files, folders=False)
        ]
    if not files:
        raise TraceError(
            f"{listing.address}: the page lists none of the files that were there: the data set may have moved; "
            "give its new address (--address) or the downloaded files (--from)"
        )
    return tuple(files)


def _names(address: str, pattern: str, *, folders: bool) -> list[str]:
    """What a page links to directly below itself and a pattern matches, once each, as the links spell it."""
    links = _Links()
    links.feed(_page(address))
    below = urlsplit(address).path
    found = dict.fromkeys(urlsplit(urljoin(address, link))[:3] for link in links.found)
    here = urlsplit(address)[:2]
    names = [path[len(below) :] for *host, path in found if tuple(host) == here and path.startswith(below)]
    bare = [name.removesuffix("/") for name in names if name.endswith("/") == folders]
    plain = [name for name in bare if "/" not in unquote(name) and unquote(name) not in ("", ".", "..")]
    return sorted(name for name in plain if re.fullmatch(pattern, unquote(name)))


def _page(address: str) -> str:
    import urllib3

    try:
        response = open_address(address, {})
        try:
            if response.status != 200:
                raise TraceError(
                    f"{address}: the server answers {response.status}: the data set may have moved; "
                    "give its new address (--address) or the downloaded files (--from)"
                )
            text = response.read(_MOST_LISTING + 1, decode_content=False)
        finally:
            response.close()
    except urllib3.exceptions.HTTPError as error:
        raise TraceError(
            f"{address}: cannot read the list of files there: {in_words(error)}: try again later, or download them "
            "elsewhere and give them (--from)"
        ) from error
    if len(text) > _MOST_LISTING:
        raise TraceError(f"{address}: the list of files there has more than {_MOST_LISTING >> 20} MiB")
    return text.decode(errors="replace")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]

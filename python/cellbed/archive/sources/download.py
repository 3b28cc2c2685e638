"""A file over HTTP, which goes on where it broke off, is checked, and appears under its name only when it is whole.

Beside a file in the making, ``NAME.part``, lies ``NAME.part.json``: its address, the version that the server named
(RFC 9110, §8.8), its length. The rest is asked for with Range and If-Range (§13.1.5, §14.2), so that halves of two
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
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.sources.checksum import matches
from cellbed.archive.sources.http import SILENCE_S, in_words, open_address
from cellbed.archive.sources.source import RemoteFile
from cellbed.readable import duration_words

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

Progress = Callable[[str, int, int | None], None]
"""Told of a file's name, how many of its bytes are there, and how many there will be, if that is known."""
News = Callable[[str], None]
"""Told at once what is tried, and why it is waited, in sentences."""

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
    return place.exists() and (remote.checksum is None or matches(place, remote.checksum))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """A file that only this process writes, open at its end."""
    while True:
        with path.open("ab") as part:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TraceError(f"another process is downloading {path}: wait for it") from None
            # Whoever had the lock before may have given the file its final name meanwhile.
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
        """Make the part such that the answer's body is to be written to its end; False: it is complete already."""
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
        said = f"the server answers {status}{f' ({HTTPStatus(status).phrase})' if known else ''}"
        if status in (408, 429) or status >= 500:
            raise _AgainError(said, float(retry_after) if retry_after and retry_after.isdecimal() else None)
        raise GoneError(f"{self.remote.address}: {said}: {_MOVED}")

    def _too_large(self, says: str) -> None:
        self._restart()
        raise TraceError(
            f"{self.remote.address} {says}: it is not the data set that is known; to take it, raise --most-bytes"
        )

    def _finish(self) -> None:
        os.fsync(self.part.fileno())
        path = Path(self.part.name)
        if self.remote.checksum is not None and not matches(path, self.remote.checksum):
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
        unfinished = self.note.with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(version)), encoding="utf-8")
        unfinished.replace(self.note)


def _noted(note: Path) -> _Version:
    try:
        return _Version(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return _NONE


def _validator(response: BaseHTTPResponse) -> str | None:
    tag = response.headers.get("ETag", "")
    # A weak tag may stay when bytes change, so RFC 9110 forbids it in If-Range.
    return tag if tag.startswith('"') else response.headers.get("Last-Modified")

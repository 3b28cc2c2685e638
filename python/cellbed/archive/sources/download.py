"""Downloads over HTTP, with checksums and atomic replacement, and extraction of archives."""

from __future__ import annotations

import lzma
import shutil
import ssl
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from cellbed.archive.errors import TraceError
from cellbed.archive.sources.source import RemoteFile
from cellbed.support.readable import duration_words

Report = Callable[[str], None]
"""Receives a message to show at once."""
State = Callable[[str], None]
"""Receives the present progress."""

SILENCE_S = 60.0
"""Maximum silence of a server, s."""
ATTEMPTS = 5
FIRST_WAIT_S = 1.0
"""Wait before the second attempt, s; each later wait is twice the previous one."""
_PIECE = 1 << 16
_MOVED = "the data set may have moved; look for it at its page, then give the downloaded file (--from)"


class GoneError(TraceError):
    """The server lacks or refuses the file. Retrying is useless."""


class _TemporaryError(Exception):
    """A temporary failure; retry."""


def download(
    remote: RemoteFile,
    folder: Path,
    state: State = lambda _: None,
    report: Report = lambda _: None,
) -> Path:
    """Download a file to its path in ``folder``, unless a matching file exists there, and return the path.

    Raises TraceError if the file cannot be downloaded or differs from its checksum.
    """
    place = folder / remote.path
    part = place.with_name(f"{place.name}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and (remote.checksum is None or remote.checksum.matches(place)):
            return place
        report(f"downloading {remote.address}")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _receive(remote, part, state)
                break
            except _TemporaryError as error:
                if attempt == ATTEMPTS:
                    raise TraceError(
                        f"{remote.address}: {error}: try again later, or download it elsewhere and give the file "
                        "(--from)"
                    ) from error
                wait_s = FIRST_WAIT_S * 2 ** (attempt - 1)
                report(f"{error}: retry in {duration_words(wait_s)}, attempt {attempt + 1} of {ATTEMPTS}")
                time.sleep(wait_s)
        if remote.checksum is not None and not remote.checksum.matches(part):
            part.unlink()
            raise TraceError(
                f"{remote.address}: the file does not have the published checksum ({remote.checksum}) and was deleted: "
                "run the command again; if the error persists, the data set has changed"
            )
        part.replace(place)
    except OSError as error:
        raise TraceError(f"{place}: cannot write the download there: {error.strerror or error}") from error
    return place


def _receive(remote: RemoteFile, part: Path, state: State) -> None:
    """Write the body of one reply to `part`. Raises _TemporaryError, TraceError, and OSError of the file."""
    try:
        response = open_address(remote.address)
    except HTTPError as error:
        if error.code in (408, 429) or error.code >= 500:
            raise _TemporaryError(f"the server answers {error.code} ({error.reason})") from error
        raise GoneError(f"{remote.address}: the server answers {error.code} ({error.reason}): {_MOVED}") from error
    except (OSError, HTTPException) as error:
        raise _TemporaryError(_describe_error(error)) from error
    with response, part.open("wb") as file:
        if response.headers.get_content_type() == "text/html":
            # Many servers redirect to a web page when a file is gone.
            raise GoneError(f"{remote.address}: the server answers with a web page instead of the file: {_MOVED}")
        total = response.length
        while piece := _read(response):
            file.write(piece)
            state(f"{remote.path}: {file.tell() / 1e6:.1f}{f' of {total / 1e6:.1f}' if total else ''} MB")
        if total is not None and file.tell() < total:
            raise _TemporaryError(f"the connection ended after {file.tell():,} of {total:,} bytes")


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read1(_PIECE)
    except (OSError, HTTPException) as error:
        raise _TemporaryError(_describe_error(error)) from error


def _describe_error(error: Exception) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return "the server stopped responding"
    return f"the connection failed ({reason})"


class _Redirections(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise TraceError(f"{req.full_url}: redirected to {newurl}, which is not HTTPS; use --from")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_address(address: str) -> HTTPResponse:
    """Return the answer to a GET, through the proxy that the environment names, with its body unread.

    Raises HTTPError for any status but success, OSError or HTTPException if the network fails, TraceError for an
    invalid address or an untrusted certificate.
    """
    from cellbed import __version__

    if urlsplit(address).scheme not in ("http", "https"):
        raise TraceError(f"{address}: not an HTTP or HTTPS address")
    own = {"User-Agent": f"cellbed/{__version__}", "Accept-Encoding": "identity"}
    try:
        return build_opener(_Redirections).open(Request(address, headers=own), timeout=SILENCE_S)  # type: ignore[no-any-return]
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise TraceError(
                f"{address}: the server's certificate cannot be trusted: {error.reason.verify_message}; "
                "download the file by hand if you know better, and use --from"
            ) from error
        raise


_ENDINGS = {ending: name for name, endings, _ in shutil.get_unpack_formats() for ending in endings}
_DAMAGED = (
    shutil.ReadError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, KeyError,
    NotImplementedError, RuntimeError,
)  # fmt: skip


def is_archive(path: Path) -> bool:
    """Return whether a file's name has the ending of a zip or tar archive."""
    return path.name.lower().endswith(tuple(_ENDINGS))


def unpack(archive: Path, folder: Path) -> None:
    """Extract the files of an archive. Raises TraceError for a damaged or unsafe archive."""
    kind = next(name for ending, name in _ENDINGS.items() if archive.name.lower().endswith(ending))
    try:
        # For a zip archive, Python skips files outside the folder and extracts links as plain files.
        shutil.unpack_archive(archive, folder, kind, filter=None if kind == "zip" else "data")
    except _DAMAGED as error:
        raise TraceError(f"{archive}: the archive is damaged or unsafe: {error}; use --from on its files") from error
    except OSError as error:
        raise TraceError(f"{archive}: cannot unpack this archive: {error.strerror or error}") from error

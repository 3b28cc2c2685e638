"""The self-made certificate of the evaluation's web server."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cellbed.errors import CellbedError


@dataclass(frozen=True, slots=True)
class Certificate:
    """path, key: PEM files. hash: base64 of the SHA-256 of the public key, by which a browser is told to trust it."""

    path: Path
    key: Path
    hash: str


def make(folder: Path) -> Certificate:
    """A certificate and its key in `folder`. Errors: :class:`CellbedError` where OpenSSL is missing or fails."""
    if shutil.which("openssl") is None:
        raise CellbedError("page loads need OpenSSL for their certificate: apt-get install openssl")
    path, key = folder / "certificate.pem", folder / "key.pem"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "3650"]
    _openssl(*request, "-subj", "/CN=evaluation", "-keyout", str(key), "-out", str(path))
    public = _openssl("x509", "-in", str(path), "-noout", "-pubkey")
    der = base64.b64decode("".join(line for line in public.decode().splitlines() if "-----" not in line))
    return Certificate(path, key, base64.b64encode(hashlib.sha256(der).digest()).decode())


def _openssl(*arguments: str) -> bytes:
    done = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise CellbedError(f"openssl could not make a certificate: {said[-1] if said else done.returncode}")
    return done.stdout

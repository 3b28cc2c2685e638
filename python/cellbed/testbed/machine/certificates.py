"""Certificates of the servers of a run, signed by an authority that exists for this run alone."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path

from cellbed.testbed.machine.process import run

PROGRAM = "openssl"
AUTHORITY = "ca.pem"
"""Name of the file with the authority's certificate."""
FILES = CERTIFICATE, KEY = "certificate.pem", "key.pem"
"""Names of a server's files."""
VARIABLES = ("CELLBED_CA", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Environment variables for the path of the authority's certificate: OpenSSL, Python's requests, Node.js."""
_CONFIGURATION = "[req]\ndistinguished_name=name\n[name]\n"  # the machine's configuration may add extensions
_NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650")


def issue(folder: Path, servers: Mapping[str, Iterable[str]]) -> None:
    """Make an authority in a folder, and for each server, a certificate and key in a new folder inside.

    servers: names and addresses of each server, by name of its folder. Only this user can read the keys. The
    authority's key is not kept.
    Errors: :class:`~cellbed.testbed.machine.process.ProgramError`.
    """
    settings, authority, key = folder / "openssl.cnf", folder / AUTHORITY, folder / "ca.key"
    settings.write_text(_CONFIGURATION, encoding="utf-8")
    common = [PROGRAM, *_NEW, "-config", str(settings), "-addext", "subjectKeyIdentifier=hash"]
    try:
        own = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
        run([*common, "-subj", "/CN=cellbed", *_options(own), "-out", str(authority), "-keyout", str(key)])
        for server, names in servers.items():
            place = folder / server
            place.mkdir()
            place.chmod(0o755)
            its = [
                "basicConstraints=critical,CA:FALSE",
                "keyUsage=critical,digitalSignature",
                "extendedKeyUsage=serverAuth",
                "authorityKeyIdentifier=keyid",
                f"subjectAltName={','.join(map(_alternative, names))}",
            ]
            signer = ["-CA", str(authority), "-CAkey", str(key)]
            files = ["-out", str(place / CERTIFICATE), "-keyout", str(place / KEY)]
            run([*common, "-subj", "/CN=server", *signer, *_options(its), *files])
        for file in (authority, *folder.glob(f"*/{CERTIFICATE}")):
            file.chmod(0o644)
    finally:
        key.unlink(missing_ok=True)
        settings.unlink()


def _options(extensions: Iterable[str]) -> list[str]:
    return [word for each in extensions for word in ("-addext", each)]


def _alternative(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"

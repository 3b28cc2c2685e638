"""Names in braces in the texts of a scenario, filled in for each node: ``http://{server.address}:8080``."""

from collections.abc import Collection

from cellbed.support.near_names import did_you_mean
from cellbed_node.templates import PART

CERTIFICATE = ("server.certificate", "server.key")
"""Names for the files with an application's server certificate, and its key."""
NAMES = ("server.address", "client.address", *CERTIFICATE, "node.name", "node.address", "seed", "duration_s")
"""Possible names in a text, besides ``APP.address``, the address of an application's server."""


def problem(text: str, applications: Collection[str]) -> str | None:
    """Return the problem of the names in a text, with its remedy. applications: names of applications with a server."""
    names = [*NAMES, *(f"{name}.address" for name in applications)]
    for part in PART.finditer(text):
        if part[0] in ("{", "}"):
            return f"single '{part[0]}' in '{text}': write '{part[0] * 2}' for a brace"
        if part[1] is not None and part[1] not in names:
            hint = did_you_mean(part[1], names)
            return f"unknown name '{part[0]}': {hint}write one of {', '.join(names)}, or '{{{{' for a brace"
    return None


def without(text: str, names: Collection[str]) -> str:
    """Return the text without the names in `names`, which are filled in later."""
    return PART.sub(lambda part: "" if part[1] in names else part[0], text)

"""Stored exports of OpenTelemetry, i.e. the bodies that programs of a node have sent, in ``raw/<node>.otlp``;
identifiers of a load's requests."""

import struct
from hashlib import sha256

SUFFIX = ".otlp"
HEADER = struct.Struct("<Iqq")
"""Header of each body: length, bytes; arrival, monotonic ns; lead of the wall clock over the monotonic one, ns."""
LARGEST_BODY = 8 << 20
"""Maximum bytes of a body, also after inflation."""
LARGEST_RECORD = 256 << 20
"""Maximum bytes of a node's file."""
APPLICATION = "cellbed.app"
"""Attribute of the resource: the application of the program."""


def identifiers(app: str, endpoint: str, request: int) -> tuple[str, str]:
    """Return the trace and span identifiers of a request that an endpoint sends for an application."""
    digest = sha256(f"{app}/{endpoint}/{request}".encode()).hexdigest()
    return digest[:32], digest[32:48]


def traceparent(app: str, endpoint: str, request: int) -> str:
    """Return the header field ``traceparent`` of a request (W3C Trace Context, §3.2)."""
    trace, span = identifiers(app, endpoint, request)
    return f"00-{trace}-{span}-01"

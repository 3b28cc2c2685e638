"""Stored exports of OpenTelemetry: the bodies that programs of a node have sent, in ``raw/<node>.otlp``; and the
identifiers of requests of a load."""

import struct
from hashlib import sha256

SUFFIX = ".otlp"
HEADER = struct.Struct("<Iqq")
"""Before each body: its bytes; when it was there, monotonic; by how much the wall clock was ahead of that, ns."""
LARGEST_BODY = 8 << 20
"""Bytes of a body, also when it is inflated."""
LARGEST_RECORD = 256 << 20
"""Bytes of a node's file."""
APPLICATION = "cellbed.app"
"""Attribute of the resource: the application of the program."""


def identifiers(app: str, endpoint: str, request: int) -> tuple[str, str]:
    """Return the identifiers of the trace and the span of a request that an endpoint sends for an application."""
    digest = sha256(f"{app}/{endpoint}/{request}".encode()).hexdigest()
    return digest[:32], digest[32:48]


def traceparent(app: str, endpoint: str, request: int) -> str:
    """Return the header field of a request (W3C Trace Context, §3.2)."""
    trace, span = identifiers(app, endpoint, request)
    return f"00-{trace}-{span}-01"

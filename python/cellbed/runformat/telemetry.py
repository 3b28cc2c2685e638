"""Stored exports of OpenTelemetry: the bodies that programs of a node have sent, in ``raw/<node>.otlp``."""

import struct

SUFFIX = ".otlp"
HEADER = struct.Struct("<Iqq")
"""Before each body: its bytes; when it was there, monotonic; by how much the wall clock was ahead of that, ns."""
LARGEST_BODY = 8 << 20
"""Bytes of a body, also when it is inflated."""
LARGEST_RECORD = 256 << 20
"""Bytes of a node's file."""
APPLICATION = "cellbed.app"
"""Attribute of the resource: the application of the program."""

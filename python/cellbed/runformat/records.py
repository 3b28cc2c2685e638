"""The records of programs of a run: JSON lines in ``raw/<application>.<node>.<file>``.

The columns of a client's record are the fields of :class:`cellbed_node.ledger.Request`. A kind of application may
declare more columns (:class:`cellbed.runformat.description.Description`).
"""

from typing import Literal, get_args

from cellbed_node.ledger import Request

REQUESTS, MESSAGES, SERVICES = "requests.jsonl", "messages.jsonl", "service.jsonl"
"""Files: requests of a client, messages of its streamed replies, and requests or spans of a server."""
ColumnType = Literal["integer", "text", "number", "tcp"]
"""Type of a column; ``tcp``: the fields of :data:`cellbed_node.tcp.TCP_INFO`."""
_TYPES: dict[type, ColumnType] = {int: "integer", float: "number", dict: "tcp"}


def columns_of(record: type[Request]) -> dict[str, ColumnType]:
    """Return the columns of a client's record of requests."""
    found: dict[str, ColumnType] = {}
    for name, each in record.__dataclass_fields__.items():
        kinds = {getattr(kind, "__origin__", kind) for kind in (each.type, *get_args(each.type))}
        found[name] = next((column for kind, column in _TYPES.items() if kind in kinds), "text")
    return found


REQUEST = columns_of(Request)
"""Columns of a request's record in every kind of application."""
SERVED: dict[str, ColumnType] = {"request": "integer", "endpoint": "text"}
"""Columns of a server's record in every kind of application: the served request."""
_OFFSETS = ("message", "received_ns", "bytes", "local_port", "remote_port", "downlink_start", "downlink_end")
MESSAGE: dict[str, ColumnType] = {**SERVED, **dict.fromkeys(_OFFSETS, "integer")}
"""Columns of the record of a streamed reply's message."""

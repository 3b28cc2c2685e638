"""The critical path of a page, on tables worked out by hand."""

from typing import Any

import polars as pl
import pytest

from cellbed.measure.pages import add_paths
from cellbed.runformat.description import Composed
from cellbed.runformat.spans import Span, on_path

MS = 1_000_000
SPANS = on_path(
    [
        Span("browser", "endpoint", "Browser", "browser", "", ""),
        Span("server", "remote", "Server", "server", "", ""),
        Span("transport", "downlink", "Transport", "transport", "", ""),
    ]
)
APPLICATION = Composed("web", "", SPANS, consists_of="web:objects")


def _object(number: int, initiator: int | None, begin_ms: int, *parts_ms: int | None, **more: Any) -> dict[str, Any]:
    """Return an object. parts_ms: of browser, server and transport, which follow each other."""
    parts = [None if part is None else part / 1e3 for part in parts_ms]
    found = {"endpoint": "e", "load": 0, "request": number, "initiator": initiator, "status": "ok"}
    found |= {"intended_ns": begin_ms * MS, "reply_ns": (begin_ms + sum(part or 0 for part in parts_ms)) * MS}
    return found | dict(zip(("part_browser", "part_server", "part_transport"), parts, strict=True)) | more


def _path(objects: list[dict[str, Any]], end_ms: int) -> tuple[float | None, ...]:
    """Return the browser's time, the server's and the transport's on the path of a load that began at 0, ms."""
    pages = pl.DataFrame({"endpoint": ["e"], "request": [0], "started_ns": [0], "reply_ns": [end_ms * MS]})
    row = add_paths(pages, pl.DataFrame(objects), APPLICATION).row(0, named=True)
    names = ("path_browser_ns", "path_server_ns", "path_transport_ns")
    return tuple(None if row[name] is None else row[name] / MS for name in names)


DOCUMENT = _object(0, None, 0, 10, 40, 50)
SCRIPT, IMAGE, LATE = (_object(1, 0, 150, 5, 100, 45), _object(2, 0, 150, 5, 20, 25), _object(3, 1, 400, 0, 100, 200))


@pytest.mark.parametrize(
    ("objects", "end_ms", "path"),
    [
        # Server 40 + 100 + 100, transport 50 + 45 + 200; 10 + 50 + 5 + 100 + 0 + 300 are the browser's.
        pytest.param([DOCUMENT, SCRIPT, IMAGE, LATE], 1000, (465, 240, 295), id="from the last object to the document"),
        # The document named the image when 30 ms of its 50 ms of transport had passed.
        pytest.param([DOCUMENT, _object(1, 0, 80, 20, 300, 600)], 1000, (30, 340, 630), id="until the next was wanted"),
        pytest.param([DOCUMENT, _object(1, 0, 100, 0, 500, 500)], 600, (510, 40, 50), id="none after the load event"),
        pytest.param([DOCUMENT, _object(1, 0, 100, 0, 1, 1, status="failed")], 600, (510, 40, 50), id="none failed"),
        pytest.param([DOCUMENT, _object(1, 0, 100, 0, None, 300)], 1000, (None, None, None), id="unknown parts"),
        pytest.param([_object(0, None, 0, 0, 0, 0, load=7)], 1000, (1000, 0, 0), id="all from the cache"),
        pytest.param(
            [_object(1, 2, 100, 0, 100, 100), _object(2, 1, 100, 0, 50, 50)], 1000, (800, 100, 100), id="a circle ends"
        ),
    ],
)
def test_the_path_of_a_page(objects: list[dict[str, Any]], end_ms: int, path: tuple[float | None, ...]) -> None:
    assert _path(objects, end_ms) == path

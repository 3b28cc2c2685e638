"""The critical path of a page, on tables worked out by hand."""

from typing import Any

import polars as pl

from cellbed.measure.pages import with_paths
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


def _path(objects: list[dict[str, Any]], end_ms: int = 1000) -> tuple[float | None, ...]:
    """Return the browser's time, the server's and the transport's on the path of a load that began at 0, ms."""
    pages = pl.DataFrame({"endpoint": ["e"], "request": [0], "started_ns": [0], "reply_ns": [end_ms * MS]})
    row = with_paths(pages, pl.DataFrame(objects), APPLICATION).row(0, named=True)
    names = ("path_browser_ns", "path_server_ns", "path_transport_ns")
    return tuple(None if row[name] is None else row[name] / MS for name in names)


DOCUMENT = _object(0, None, 0, 10, 40, 50)


def test_the_path_leads_from_the_last_object_to_the_document_and_its_parts_add_up() -> None:
    script, image = _object(1, 0, 150, 5, 100, 45), _object(2, 0, 150, 5, 20, 25)
    late = _object(3, 1, 400, 0, 100, 200)
    # Server 40 + 100 + 100, transport 50 + 45 + 200; 10 + 50 + 5 + 100 + 0 + 300 are the browser's.
    assert _path([DOCUMENT, script, image, late]) == (465, 240, 295)


def test_an_object_counts_until_the_next_one_was_wanted() -> None:
    # The document named the image when 30 ms of its 50 ms of transport had passed.
    image = _object(1, 0, 80, 20, 300, 600)
    assert _path([DOCUMENT, image]) == (30, 340, 630)


def test_objects_after_the_load_event_and_failed_ones_are_not_on_the_path() -> None:
    after, failed = _object(1, 0, 100, 0, 500, 500), _object(2, 0, 100, 0, 1, 1, status="failed")
    assert _path([DOCUMENT, after, failed], end_ms=600) == (510, 40, 50)


def test_a_path_with_an_object_without_parts_is_unknown() -> None:
    assert _path([DOCUMENT, _object(1, 0, 100, 0, None, 300)]) == (None, None, None)


def test_a_load_whose_objects_came_from_the_cache_is_the_browsers() -> None:
    assert _path([_object(0, None, 0, 0, 0, 0, load=7)]) == (1000, 0, 0)


def test_objects_that_name_each_other_end_the_path() -> None:
    one, other = _object(1, 2, 100, 0, 100, 100), _object(2, 1, 100, 0, 50, 50)
    assert _path([one, other]) == (800, 100, 100)

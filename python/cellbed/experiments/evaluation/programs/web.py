"""The web server of the evaluation's pages: nginx, HTTP/1.1 at one port, HTTP/2 at another, both with TLS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from cellbed.experiments.evaluation.applications import Protocol
from cellbed.experiments.evaluation.pages import Page, PageObject, pages
from cellbed.shell.programs import find

PORTS: dict[Protocol, int] = {"HTTP/1.1": 7443, "HTTP/2": 7444}

_CONFIGURATION = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path temporary;
    proxy_temp_path temporary;
    fastcgi_temp_path temporary;
    uwsgi_temp_path temporary;
    scgi_temp_path temporary;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    keepalive_requests 10000;
    tcp_nodelay on;
    etag off;
    add_header Cache-Control no-store;
    types {{ text/html html; text/css css; text/javascript js; font/woff2 woff2; image/svg+xml svg; }}
    server {{ listen {address}:{http1} ssl; root www; }}
    server {{ listen {address}:{http2} ssl http2; root www; }}
}}
"""


def serve(address: str, certificate: str, key: str, folder: Path) -> NoReturn:
    """Become nginx. folder: of its configuration and the pages."""
    (folder / "temporary").mkdir(parents=True, exist_ok=True)
    for page in pages():
        for number, each in enumerate(page.objects):
            path = folder / "www" / (each.name.lstrip("/") + ("index.html" if each.kind == "document" else ""))
            if not path.exists() or path.stat().st_size != each.bytes:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body(page, number))
    configuration = folder / "nginx.conf"
    http1, http2 = PORTS["HTTP/1.1"], PORTS["HTTP/2"]
    configuration.write_text(
        _CONFIGURATION.format(address=address, certificate=certificate, key=key, http1=http1, http2=http2),
        encoding="utf-8",
    )
    program = str(find("nginx"))
    os.execv(program, [program, "-p", str(folder), "-c", str(configuration), "-e", "stderr"])


def body(page: Page, number: int) -> bytes:
    """An object of exactly its size that names those that it asks for in the browser's own words."""
    each = page.objects[number]
    asked = page.children(number)
    match each.kind:
        case "document":
            # A browser asks for a font when there is text in it.
            fonts = (font for font in page.objects if font.kind == "font")
            texts = "".join(f'<p style="font-family:{_family(font)}">x' for font in fonts)
            tags = "".join(map(_tag, asked))
            # Without an icon of its own the browser would ask for one that nobody told of.
            start = f"<!doctype html><link rel=icon href=data:,><title>{page.name}</title>"
            return _filled(f"{start}{tags}{texts}<!--", "x", "-->", each.bytes)
        case "stylesheet":
            faces = "".join(f"@font-face{{font-family:{_family(font)};src:url({font.name})}}" for font in asked)
            return _filled(f"{faces}/*", "x", "*/", each.bytes)
        case "script":
            wanted = "".join(f"new Image().src='{image.name}';" for image in asked)
            return _filled(f"{wanted}/*", "x", "*/", each.bytes)
        case "image":
            drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><!--'
            return _filled(drawing, "x", "--></svg>", each.bytes)
        case "font":
            return bytes(each.bytes)


def _tag(each: PageObject) -> str:
    match each.kind:
        case "stylesheet":
            return f'<link rel="stylesheet" href="{each.name}">'
        case "script":
            return f'<script defer src="{each.name}"></script>'
        case _:
            return f'<img src="{each.name}">'


def _family(font: PageObject) -> str:
    return font.name.rpartition("/")[2].partition(".")[0]


def _filled(head: str, filling: str, tail: str, size: int) -> bytes:
    missing = size - len(head) - len(tail)
    if missing < 0:
        raise ValueError(f"an object of {size} bytes has no room for what it asks for")
    return (head + filling * missing + tail).encode()

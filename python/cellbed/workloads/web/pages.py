"""Pages generated after measured sites: their objects, and files of exactly the objects' sizes.

``pages.toml`` defines the pages; the evaluation loads the same objects in virtual time.
"""

import functools
import hashlib
import random
import struct
import tomllib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

ObjectKind = Literal["document", "stylesheet", "script", "font", "image"]
VERSION = 1
"""Version of the generated files; a higher version generates them again."""
DOMAIN = "test"
"""Domain of host names, reserved for tests (RFC 6761, §6.2)."""
_GROUPS: dict[str, tuple[ObjectKind, str]] = {
    "stylesheets": ("stylesheet", "css"),
    "scripts": ("script", "js"),
    "fonts": ("font", "woff2"),
    "images": ("image", "png"),
    "late_images": ("image", "png"),
}
_BYTES_PER_PIXEL = 0.25
"""Bytes per pixel of an image, as in JPEG photographs of medium quality."""
_WORDS = [
    "page",
    "cell",
    "link",
    "edge",
    "delay",
    "queue",
    "packet",
    "radio",
    "tower",
    "slot",
    "rate",
    "window",
    "trace",
]


@dataclass(frozen=True, slots=True)
class Object:
    """An object of a page. path: on its host; size: bytes; parent: number of the object that names it, ``None`` for the
    document; origin: number of its host."""

    path: str
    kind: ObjectKind
    size: int
    parent: int | None
    origin: int


@functools.cache
def pages() -> dict[str, list[Object]]:
    """Return the objects of each page by its name, in the order of their requests, the document first."""
    content = tomllib.loads(files(__package__).joinpath("pages.toml").read_text(encoding="utf-8"))
    spread = content.pop("spread")
    return {name: list(_objects(groups, spread)) for name, groups in content.items()}


def hosts(name: str) -> list[str]:
    """Return the host names of a page's origins, in the order of the origins' numbers."""
    count = 1 + max(each.origin for each in pages()[name])
    return [f"www.{name}.{DOMAIN}", *(f"static{number}.{name}.{DOMAIN}" for number in range(1, count))]


def _objects(groups: dict[str, Any], spread: float) -> Iterator[Object]:
    yield Object("/", "document", groups["document"], None, 0)
    count, stylesheet, script = 1, 0, 0
    for group, (kind, ending) in _GROUPS.items():
        # Fonts are requested after the first stylesheet has arrived, late images after the last script has run.
        parent = {"fonts": stylesheet, "late_images": script}.get(group, 0)
        number, total = groups[group]
        if group == "stylesheets":
            stylesheet = count
        if group == "scripts":
            script = count + number - 1
        for index, size in enumerate(_geometric_sizes(number, total, spread)):
            # Stylesheets come from the document's host, other objects from all hosts in turn.
            origin = 0 if kind == "stylesheet" else count % groups["origins"]
            yield Object(f"/{group}/{index}.{ending}", kind, size, parent, origin)
            count += 1


def _geometric_sizes(count: int, total: int, spread: float) -> list[int]:
    """Return `count` sizes that sum to `total` bytes and fall geometrically by `spread` from first to last."""
    step = spread ** (-1 / max(count - 1, 1))
    weights = [step**index for index in range(count)]
    sizes = [int(total * weight / sum(weights)) for weight in weights]
    return [sizes[0] + total - sum(sizes), *sizes[1:]]


def write(name: str, folder: Path) -> None:
    """Write the files of a page into a folder, with a subfolder per host. The files depend on the name alone. Errors:
    ``OSError``."""
    objects, names, chance = pages()[name], hosts(name), _chance(name)
    children: dict[int | None, list[int]] = {}
    for number, each in enumerate(objects):
        children.setdefault(each.parent, []).append(number)
    found = urls(name)

    makers: dict[ObjectKind, Callable[[int, list[str]], bytes]] = {
        "document": lambda number, _: _document(name, chance),
        "stylesheet": lambda number, urls: _stylesheet(urls),
        "script": lambda number, urls: _script(urls, objects[number].size),
        "font": lambda number, _: chance.randbytes(objects[number].size),
        "image": lambda number, _: _image(objects[number].size, chance),
    }
    for number, each in enumerate(objects):
        content = makers[each.kind](number, [found[child] for child in children.get(number, [])])
        file = folder / names[each.origin] / (each.path.lstrip("/") or "index.html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_pad(content, each))


def _pad(content: bytes, each: Object) -> bytes:
    """Return the content, extended to the size of an object by a comment at its end."""
    opening, closing = {"document": (b"<!--", b"-->")}.get(each.kind, (b"/*", b"*/"))
    missing = each.size - len(content)
    if missing and missing < len(opening + closing):
        raise ValueError(f"{each.path}: {len(content)} bytes do not leave room for a comment in {each.size}")
    return content + opening + b"." * (missing - len(opening + closing)) + closing if missing else content


def urls(name: str) -> list[str]:
    """Return the URLs of a page's objects."""
    names = hosts(name)
    return [f"https://{names[each.origin]}{each.path}" for each in pages()[name]]


@functools.cache
def places(name: str) -> dict[int, int]:
    """Return, for each object that the document names, the bytes of the document that a browser must have to know the
    object."""
    text, found = _document(name, _chance(name)), urls(name)
    return {
        number: text.index(f'"{found[number]}"'.encode()) + len(found[number]) + 2
        for number, each in enumerate(pages()[name])
        if each.parent == 0
    }


def _chance(name: str) -> random.Random:
    return random.Random(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]))


def _document(name: str, chance: random.Random) -> bytes:
    named = [(each.kind, url) for each, url in zip(pages()[name], urls(name), strict=True) if each.parent == 0]
    of_kind = {kind: [url for of, url in named if of == kind] for kind in ("stylesheet", "script", "image")}
    head = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name} (synthetic)</title>',
        '<link rel="icon" href="data:,">',
        *(f'<link rel="stylesheet" href="{url}">' for url in of_kind["stylesheet"]),
        *(f'<script defer src="{url}"></script>' for url in of_kind["script"]),
        "</head><body><h1 class=f0>A page that is generated</h1>",
    ]
    body = [
        f'<section><p class="f{index % 8}">{" ".join(chance.choices(_WORDS, k=60))}</p><img src="{url}"></section>'
        for index, url in enumerate(of_kind["image"])
    ]
    return "\n".join([*head, *body, "</body></html>\n"]).encode()


def _stylesheet(fonts: list[str]) -> bytes:
    """Return a layout with images of equal width. fonts: URLs of fonts, which texts use in turn."""
    rules = ["img{width:320px;height:240px}section{display:inline-block;width:340px}"] if fonts else []
    for index, url in enumerate(fonts):
        rules.append(f'@font-face{{font-family:f{index};src:url("{url}")}}.f{index}{{font-family:f{index},serif}}')
    return "\n".join([*rules, ""]).encode()


def _script(images: list[str], size: int) -> bytes:
    """Return functions that fill most of a size and are parsed but not called. images: URLs of images that the script
    adds to the page."""
    added = "".join(f'{{const i=new Image();i.src="{url}";document.body.append(i)}}\n' for url in images)
    lines, length, number = [added], len(added), 0
    while length < size - 200:
        lines.append(f"function f{number}(a,b){{let s=a;for(let i=0;i<b;i++)s+=i*{number};return s}}\n")
        length, number = length + len(lines[-1]), number + 1
    return "".join(lines).encode()


def _image(size: int, chance: random.Random) -> bytes:
    """Return a PNG of 4 by 3 with exactly this size, mostly noise."""
    height = max(1, int((size / _BYTES_PER_PIXEL * 3 / 4) ** 0.5))
    width = max(1, height * 4 // 3)
    noisy = min(height, max(0, (size - 1000) * 9 // 10 // (3 * width)))
    rows = [b"\0" + chance.randbytes(3 * width) for _ in range(noisy)]
    rows += [b"\0" + bytes([row % 256, 90, 120]) * width for row in range(height - noisy)]
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    begin, end = b"\x89PNG\r\n\x1a\n" + head + _chunk(b"IDAT", zlib.compress(b"".join(rows))), _chunk(b"IEND", b"")
    # The rest is in a private chunk, which decoders skip.
    return begin + _chunk(b"prVt", bytes(size - len(begin) - len(end) - len(_chunk(b"prVt", b"")))) + end


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

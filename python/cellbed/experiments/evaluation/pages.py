"""The web pages of the evaluation: which objects each has, how large they are, and which of them asks for which."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Kind = Literal["document", "stylesheet", "script", "font", "image"]

ENDINGS: dict[Kind, str] = {
    "document": "",
    "stylesheet": ".css",
    "script": ".js",
    "font": ".woff2",
    "image": ".svg",
}

_GROUPS: tuple[tuple[str, Kind], ...] = (
    ("stylesheets", "stylesheet"),
    ("scripts", "script"),
    ("fonts", "font"),
    ("images", "image"),
    ("late_images", "image"),
)


@dataclass(frozen=True, slots=True)
class PageObject:
    """One object of a page.

    name: its path on the server. bytes: of its body. parent: number of the object that asks for it; ``None`` for the
    document.
    """

    name: str
    kind: Kind
    bytes: int
    parent: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its objects in the order they are asked for, each behind the one that asks for it."""

    name: str
    objects: tuple[PageObject, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all bodies together."""
        return sum(each.bytes for each in self.objects)

    def children(self, parent: int) -> list[PageObject]:
        """The objects that object number `parent` asks for."""
        return [each for each in self.objects if each.parent == parent]


@cache
def pages() -> tuple[Page, ...]:
    """The pages of ``pages.toml``, which says where their figures are from."""
    content = tomllib.loads(files(__package__).joinpath("pages.toml").read_text(encoding="utf-8"))
    spread = content.pop("spread")
    return tuple(_page(name, groups, spread) for name, groups in content.items())


def _page(name: str, groups: dict[str, Any], spread: float) -> Page:
    objects = [PageObject(f"/{name}/", "document", groups["document"], None)]
    parents: dict[str, int] = {}
    for group, kind in _GROUPS:
        # Fonts are found when the first stylesheet is there, late images when the last script has run.
        parent = {"fonts": parents.get("stylesheets"), "late_images": parents.get("scripts")}.get(group) or 0
        first = len(objects)
        objects += [
            PageObject(f"/{name}/{group}-{index}{ENDINGS[kind]}", kind, size, parent)
            for index, size in enumerate(_falling(groups[group][0], groups[group][1], spread))
        ]
        parents[group] = len(objects) - 1 if group == "scripts" else first
    return Page(name, tuple(objects))


def _falling(count: int, total: int, spread: float) -> list[int]:
    """`count` sizes that fall geometrically by `spread` from first to last and together are `total` bytes."""
    step = spread ** (-1 / max(count - 1, 1))
    weights = [step**index for index in range(count)]
    sizes = [int(total * weight / sum(weights)) for weight in weights]
    return [sizes[0] + total - sum(sizes), *sizes[1:]]

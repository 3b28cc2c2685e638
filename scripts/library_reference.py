"""Generate the lists of docs/reference/library.md from docstrings, for the site (scripts/docs_site.py).

A list takes the place of the text between ``<!--Section:cellbed.Name-->`` and ``<!--end-->``; the section is ``Args``
or ``Attributes`` of the docstring (Google style), or ``Properties`` of a class.
"""

import inspect
import re
import textwrap

import cellbed

_LIST = re.compile(r"(<!--(Args|Attributes|Properties):cellbed\.(\w+)-->\n).*?(?=<!--end-->)", re.DOTALL)
_ENTRY = re.compile(r"^    (\w+)(?: \((\w+)\))?: (.*(?:\n {8}.*)*)", re.MULTILINE)
_SECTION = re.compile(r"^(\w+):\n((?:    .*\n?|\n)+)", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?([^`]+)`|``([^`]+)``")


def entries(name: str, section: str) -> list[tuple[str, str, str]]:
    """Return name, type and description of each entry of a section."""
    item = getattr(cellbed, name)
    if section == "Properties":
        return [(key, "", inspect.getdoc(value) or "") for key, value in vars(item).items() if _is_property(value)]
    sections = dict(_SECTION.findall(inspect.getdoc(item) or ""))
    return _ENTRY.findall(sections[section])


def _is_property(value: object) -> bool:
    return isinstance(value, property) or hasattr(value, "attrname")


def describe(name: str, section: str) -> str:
    """Return a section as a list of Markdown."""
    lines = []
    for key, kind, text in entries(name, section):
        plain = _ROLE.sub(lambda match: f"`{match[1] or match[2]}`", " ".join(text.split()))
        lines += textwrap.wrap(f"* `{key}`{kind and f' ({kind})'}: {plain}", 120, subsequent_indent="  ")
    return "\n".join(lines)


def generate(page: str) -> str:
    """Return the page with its lists."""
    return _LIST.sub(lambda match: f"{match[1]}\n{describe(match[3], match[2])}\n\n", page)

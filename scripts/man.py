"""Writes a manual page for `cellbed` and for each command: ``python scripts/man.py FOLDER``."""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from typer.main import get_command

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
# The module is compiled later, or is an old one: of it, the commands need the kinds of stages alone.
sys.modules["cellbed._core"] = core = ModuleType("cellbed._core")
setattr(core, "stage_schema", (ROOT / "crates/link/src/schema/stages.json").read_text)  # noqa: B010

from cellbed.cli.main import app  # noqa: E402
from cellbed.cli.verbs import SIBLINGS  # noqa: E402


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command and the commands below it, with their names."""
    yield name, command
    context = command.make_context(name, ["--help"], resilient_parsing=True)
    for each in command.list_commands(context) if hasattr(command, "list_commands") else ():
        if each not in SIBLINGS:
            _, found, _ = command.resolve_command(context, [each])
            yield from commands(f"{name} {each}", found)


def roff(text: str) -> str:
    """Return text as roff shows it unchanged."""
    return re.sub(r"(?m)^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def page(name: str, command: Any, date: str) -> str:
    """Return the page of a command in roff (man(7))."""
    context = command.make_context(name, ["--help"], resilient_parsing=True)
    about = (command.help or "").strip()
    first, _, rest = about.partition("\n")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f'.TH "{name.replace(" ", "-").upper()}" 1 "{date}" cellbed', ".SH NAME"]
    lines += [roff(f"{name.replace(' ', '-')} - {first.rstrip('.')}"), ".SH SYNOPSIS", roff(f"{name} {usage}")]
    for paragraph in filter(str.strip, re.split(r"\n\s*\n", rest)):
        # "\b" begins what is shown line by line.
        shown = re.sub(r"(?m)^\s*\b\n?", "", paragraph.replace("\b", ""))
        lines += [".PP", ".nf", roff(shown), ".fi"] if "\b" in paragraph else [".PP", roff(" ".join(shown.split()))]
    records = [each for each in (p.get_help_record(context) for p in command.get_params(context)) if each]
    lines += [".SH OPTIONS"] * bool(records)
    for option, text in records:
        lines += [".TP", roff(option), roff(text)]
    return "\n".join(lines) + "\n"


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))
    for name, command in commands("cellbed", get_command(app)):
        (folder / f"{name.replace(' ', '-')}.1").write_text(page(name, command, date), "utf-8")


if __name__ == "__main__":
    main()

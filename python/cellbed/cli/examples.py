"""``cellbed examples``: the scenarios that come with cellbed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.options import AsJson, example_names


def examples(
    name: Annotated[
        str | None,
        typer.Argument(help="Print this one. Default: a line for each.", autocompletion=example_names),
    ] = None,
    copy: Annotated[
        Path | None, typer.Option("--copy", metavar="FOLDER", help="Copy it with its files into this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios that come with cellbed, or print or copy one.

    \b
    Examples:
      cellbed examples
      cellbed examples offload-lte
      cellbed examples migration --copy .
      cellbed run --example offload-lte
    """
    from cellbed.scenario import read
    from cellbed.scenario.examples import examples as all_examples
    from cellbed.scenario.examples import find_example
    from cellbed.support.errors import CellbedError

    found = list(all_examples().values()) if name is None else [find_example(name)]
    if copy is not None:
        if name is None:
            raise CellbedError("--copy needs a name: cellbed examples NAME --copy FOLDER")
        print(*found[0].copy(copy), sep="\n")
    elif as_json:
        print(json.dumps([{"name": it.name, "sentence": it.sentence, "path": str(it.path)} for it in found]))
    elif name is not None:
        print(read(found[0].path), end="")
    else:
        width = max(len(it.name) for it in found)
        for it in found:
            print(f"{it.name:{width}}  {it.sentence}")

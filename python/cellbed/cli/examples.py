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

    if name is None:
        if copy is not None:
            raise CellbedError("--copy needs a name: cellbed examples NAME --copy FOLDER")
        found = all_examples().values()
        if as_json:
            print(json.dumps([{"name": it.name, "sentence": it.sentence, "path": str(it.path)} for it in found]))
            return
        width = max(len(it.name) for it in found)
        for it in found:
            print(f"{it.name:{width}}  {it.sentence}")
        return
    example = find_example(name)
    if copy is not None:
        for path in example.copy(copy):
            print(path)
    elif as_json:
        print(json.dumps({"name": example.name, "path": str(example.path), "text": read(example.path)}))
    else:
        print(read(example.path), end="")

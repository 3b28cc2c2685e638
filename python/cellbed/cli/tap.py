"""``cellbed tap``: capture the packets of a link, for Wireshark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def tap(
    link: Annotated[str, typer.Argument(help="A link or one of its directions: mobile-0, core-edge-0.downlink.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File; - is standard output. Default: LINK.pcapng.", show_default=False),
    ] = None,
    size: Annotated[int, typer.Option("--bytes", min=1, help="At most this much of each packet.")] = 65536,
    testbed: Annotated[
        str | None, typer.Option(help="Testbed or run; needed only if there are several.", show_default=False)
    ] = None,
) -> None:
    """Capture the packets of a link of a live testbed or run as pcapng, until Ctrl-C or its end.

    Packets are whole, as the node at the end of the link sends them (before the link) and receives them (behind it).

    \b
    Examples:
      cellbed tap mobile-0
      cellbed tap mobile-0 --out - | wireshark -k -i -
      cellbed tap core-edge-0.uplink --bytes 96 --out headers.pcapng
    """
    from cellbed.experiments.standing import find_testbed, tap_link

    target = out if out is not None else Path(f"{link}.pcapng")
    captured = tap_link(find_testbed(testbed), link, target, size)
    lost = f"; {captured.lost} more were too fast for the reader" if captured.lost else ""
    where = "" if str(target) == "-" else f" in {target}"
    print(f"{captured.packets} packet{'s' if captured.packets != 1 else ''}{where}{lost}", file=sys.stderr)

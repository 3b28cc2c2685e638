"""``cellbed simulate``: flows of a data centre and of radio cells in virtual time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellbed.extension.verbs import Open, StatusLine, processors

if TYPE_CHECKING:
    from cellbed_datacentre.file import Described


def simulate(
    file: Annotated[Path, typer.Argument(help="The simulation file (TOML).", metavar="FILE")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Parent of the results' folder.")] = Path("simulations"),
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, max=2**63 - 1, help="First seed. Default: the seed in FILE.", show_default=False),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=10_000, help="Number of consecutive seeds, from --seed on.")
    ] = 1,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            max=1024,
            help="Maximum parallel seeds. Default: one per processor.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and print what it describes, then exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    open_: Open = "auto",
) -> None:
    """Simulate flows in data centres and to users of radio cells, in virtual time.

    Results depend neither on the machine nor on --jobs. Exit status: 0 done, 2 bad input or a folder that cannot be
    written to, 130 interrupted, without results.

    \b
    Examples:
      cellbed simulate datacentre/examples/leaf-spine.toml
      cellbed simulate datacentre/examples/leaf-spine.toml --seeds 20 --jobs 2
      cellbed simulate datacentre/examples/radio-cell.toml --seed 7 --json | jq '.by_size[0]'
      cellbed simulate datacentre/examples/own.toml        # your own transport, scheduler and admission in C
      cellbed simulate datacentre/examples/leaf-spine.toml --dry-run
    """
    from cellbed_datacentre.file import read_simulation

    described = read_simulation(file)
    first = described.file.seed if seed is None else seed
    if first + seeds > 2**63:
        raise typer.BadParameter(f"the last of {seeds} seeds from {first} is above 2^63 - 1", param_hint="--seeds")
    chosen = range(first, first + seeds)
    if dry_run:
        _show(described, chosen, as_json)
        return
    from cellbed.extension.files import inputs
    from cellbed.extension.reports import html
    from cellbed_datacentre import folder as results
    from cellbed_datacentre.report import show

    with _Terminal(described.flows * seeds, seeds) as terminal:
        folder = results.simulate(described, chosen, out, jobs or processors(), terminal.progress)
    summary = inputs.json_value(folder / "summary.json")
    if as_json:
        print(json.dumps({"folder": str(folder), **summary}, indent=1, ensure_ascii=False))
    else:
        show(summary)
        print(folder / "report.html")
    if open_ != "no":
        html.open_page(folder / "report.html", open_, quiet=as_json)


def _show(described: Described, seeds: range, as_json: bool) -> None:
    """Print the description of a simulation."""
    file = described.file.model_dump(mode="json")
    hosts = described.file.topology.host_count
    if as_json:
        print(json.dumps({"file": file, "hosts": hosts, "flows": described.flows, "seeds": list(seeds)}, indent=1))
        return
    print(f"{file['name']}: {described.transport}, {file['topology']['kind']} of {hosts} hosts")
    print(f"{described.flows:,} flows, {described.bytes:,.0f} bytes, with each of {len(seeds)} seeds from {seeds[0]}")


class _Terminal(StatusLine):
    """Progress after two seconds: one line in place on a terminal, else a line every ten seconds."""

    def __init__(self, flows: int, seeds: int) -> None:
        super().__init__()
        self._flows, self._seeds = flows, seeds
        self._began = time.monotonic()
        self._next = self._began + 2

    def progress(self, flows: int, seeds: int) -> None:
        """Show the numbers of finished flows and seeds."""
        now = time.monotonic()
        if now < self._next:
            return
        of_seeds = f", {seeds} of {self._seeds} seeds" if self._seeds > 1 else ""
        show = self.state if self.redrawn else self.note
        show(f"{flows:,} of {self._flows:,} flows{of_seeds}, {now - self._began:.0f} s")
        self._next = now + (0.1 if self.redrawn else 10)

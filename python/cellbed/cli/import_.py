"""``cellbed import``: scenarios from Compose files and Kubernetes manifests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cellbed.importing import Choices, Imported

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Make a scenario from a Compose file or Kubernetes manifests.",
)

_Place = Annotated[
    list[str] | None,
    typer.Option(
        "--place", metavar="SERVICE=CLASS", help="Put a service on an endpoint, the edge or the cloud; repeatable."
    ),
]
_Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="IMAGE=LOCAL", help="Use an image of this machine for one of the file; repeatable."),
]
_Up = Annotated[str, typer.Option("--up", metavar="CAPACITY", help="Uplink: a trace, or a rate such as '12 Mbit/s'.")]
_Down = Annotated[str, typer.Option("--down", metavar="CAPACITY", help="Downlink.")]
_Duration = Annotated[str, typer.Option("--duration", help="Duration of the workload.")]
_Cpus = Annotated[float, typer.Option("--cpus", help="CPUs of services without a limit.")]
_Memory = Annotated[str, typer.Option("--memory", help="Memory of services without a limit.")]
_Load = Annotated[
    str | None, typer.Option("--load", metavar="SERVICE", help="Add a load over HTTP from an endpoint to this service.")
]
_Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the scenario here.")]
_Add = Annotated[
    bool, typer.Option("--add", help="Add the services to the scenario that is there, which keeps its links.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print scenario, services and notes as JSON.")]
_Strict = Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a setting is not mapped.")]


@app.command()
def compose(
    files: Annotated[
        list[Path], typer.Argument(help="The Compose file, and files that are merged into it.", metavar="FILE...")
    ],
    place: _Place = None,
    map_: _Map = None,
    up: _Up = "5g-midband.up",
    down: _Down = "5g-midband.down",
    duration: _Duration = "60 s",
    cpus: _Cpus = 1.0,
    memory: _Memory = "512 MiB",
    load: _Load = None,
    env_file: Annotated[
        list[Path] | None, typer.Option("--env-file", metavar="FILE", help="Variables of the Compose file; repeatable.")
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option("--profile", help="Import the services of this profile, too; repeatable.")
    ] = None,
    build_images: Annotated[
        bool, typer.Option("--build", help="Build the images of services with a context, by Podman or Docker.")
    ] = False,
    out: _Out = None,
    add: _Add = False,
    as_json: _Json = False,
    strict: _Strict = False,
) -> None:
    """Make a scenario from a Compose file.

    Each service becomes a node group with a container back end. Services that publish ports or that others depend on
    are on the edge, and so are workers, which depend on services behind these only. Clients of services that publish
    ports are on an endpoint. Services on the edge are at one site, those in
    the cloud at another. Settings that a scenario cannot have are listed on standard error and in comments of the
    scenario.

    Exit status: 0, 1 with --strict if settings are not mapped, 2 bad input.

    \b
    Examples:
      cellbed import compose compose.yaml > shop.toml
      cellbed import compose compose.yaml --place web=edge --place client=endpoint --out shop.toml
      cellbed import compose compose.yaml --load web --up lte-suburban.up --down lte-suburban.down --out shop.toml
      cellbed import compose compose.yaml --build --out shop.toml
      cellbed import compose other/compose.yaml --out shop.toml --add
    """
    import os

    from cellbed.importing import build, read_compose

    choices = _choices(place, map_, up, down, duration, cpus, memory, load, out, add=add, built=build_images)
    imported = read_compose(files, os.environ, profile or [], env_file or [])
    if build_images:
        build(imported, choices)
    _finish(imported, choices, as_json=as_json, strict=strict)


@app.command()
def kube(
    files: Annotated[
        list[Path], typer.Argument(help="Manifests, or folders of them; a file may contain several.", metavar="FILE...")
    ],
    place: _Place = None,
    map_: _Map = None,
    up: _Up = "5g-midband.up",
    down: _Down = "5g-midband.down",
    duration: _Duration = "60 s",
    cpus: _Cpus = 1.0,
    memory: _Memory = "512 MiB",
    load: _Load = None,
    out: _Out = None,
    add: _Add = False,
    as_json: _Json = False,
    strict: _Strict = False,
) -> None:
    """Make a scenario from Kubernetes manifests.

    Each container of a workload (Pod, Deployment, StatefulSet, …) becomes a node group with a container back end.
    Workloads that a Service selects are on the edge, others on an endpoint. Workloads on the edge are at one site,
    those in the cloud at another. Settings that a scenario cannot have are listed on standard error and in comments
    of the scenario.

    Exit status: 0, 1 with --strict if settings are not mapped, 2 bad input.

    \b
    Examples:
      cellbed import kube guestbook.yaml > guestbook.toml
      cellbed import kube manifests/*.yaml --place load=endpoint --out shop.toml
    """
    from cellbed.importing import read_manifests

    choices = _choices(place, map_, up, down, duration, cpus, memory, load, out, add=add, built=False)
    manifests = [[*sorted(each.glob("*.y*ml"))] or [each] if each.is_dir() else [each] for each in files]
    _finish(read_manifests([file for some in manifests for file in some]), choices, as_json=as_json, strict=strict)


def _choices(
    place: list[str] | None,
    map_: list[str] | None,
    up: str,
    down: str,
    duration: str,
    cpus: float,
    memory: str,
    load: str | None,
    out: Path | None,
    *,
    add: bool,
    built: bool,
) -> Choices:
    from cellbed.importing import Choices, parse_classes, parse_images
    from cellbed.scenario import read
    from cellbed.support.errors import CellbedError
    from cellbed.support.units import SIZE, UnitError

    try:
        size = int(SIZE.parse(memory))
    except UnitError as error:
        raise CellbedError(f"--memory: {error}") from None
    if add and out is None:
        raise CellbedError("--add needs the scenario to add services to: --out FILE")
    before = read(out) if add and out is not None else None
    return Choices(
        parse_classes(place or []), up, down, duration, cpus, size, load, out, parse_images(map_ or []), before, built
    )


def _finish(imported: Imported, choices: Choices, *, as_json: bool, strict: bool) -> None:
    import json
    import shlex
    import sys

    from cellbed.importing import save, write

    written = write(imported, choices, shlex.join(["cellbed", *sys.argv[1:]]))
    save(written, choices.out)
    if as_json:
        print(json.dumps(written.as_dict(), indent=2))
    elif choices.out is None:
        print(written.text, end="")
    losses = [note for note in written.notes if note.is_loss]
    if choices.out is not None and not as_json:
        print(f"{choices.out}: {len(written.nodes)} services; settings that are not mapped or differ: {len(losses)}")
    if not as_json:
        print(written.placement(), file=sys.stderr)
    for note in losses:
        print(note, file=sys.stderr)
    if strict and losses:
        raise typer.Exit(1)

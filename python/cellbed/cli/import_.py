"""``cellbed import``: scenarios from Compose files, Kubernetes manifests and configurations of Continuum."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def _capacity(way: str, more: str = "") -> Any:
    return typer.Option(metavar="CAPACITY", help=f"{way}{more}.")


def import_(
    kind: Annotated[Literal["compose", "kube", "continuum"], typer.Argument(help="Kind of the files.", metavar="KIND")],
    files: Annotated[
        list[Path],
        typer.Argument(help="A Compose file; manifests, or folders; or files of Continuum.", metavar="FILE"),
    ],
    place: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE=CLASS", help="Put a service on an endpoint, the edge or the cloud; repeatable."),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="IMAGE=LOCAL", help="Use an image of this machine instead; repeatable."),
    ] = None,
    up: Annotated[str | None, _capacity("Uplink", ": trace or rate. Default: Continuum's, else 5g-midband.up")] = None,
    down: Annotated[str | None, _capacity("Downlink", ". Default: Continuum's, else 5g-midband.down")] = None,
    duration: Annotated[str | None, typer.Option(help="Of the workload. Default: Continuum's, else 60 s.")] = None,
    cpus: Annotated[float, typer.Option(help="CPUs of services without a limit.")] = 1.0,
    memory: Annotated[str, typer.Option(help="Memory of services without a limit.")] = "512 MiB",
    load: Annotated[
        str | None, typer.Option(metavar="SERVICE", help="Add a load over HTTP from an endpoint to this service.")
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Also import services of this Compose profile; repeatable.")
    ] = None,
    build: Annotated[
        bool, typer.Option("--build", help="Build the images of services with a context, by Podman or Docker.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the scenario here.")] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add the services to the existing scenario in --out, which keeps its links.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print scenario, services and notes as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a setting is not mapped.")] = False,
) -> None:
    """Convert a Compose file, Kubernetes manifests or a configuration of Continuum to a scenario.

    Each service, and each container of a workload (Pod, Deployment, StatefulSet, …), becomes a node group with a
    container back end. The edge gets services that publish ports or that others depend on, workloads that a Service
    selects, and workers, which depend only on services behind these. Their clients are on an endpoint. Services on the
    edge are at one site, services in the cloud at another. Settings that a scenario cannot have are listed on standard
    error and in comments of the scenario.

    A tier of Continuum, INI or YAML, becomes a node group; its network becomes the links, and its benchmark an
    application of the nearest kind.

    Variables, include, extends and further files are not read: resolve them with `docker compose config`.

    Exit status: 0 done; 1 a setting is not mapped (with --strict); 2 bad input.

    \b
    Examples:
      cellbed import compose compose.yaml > shop.toml
      cellbed import compose compose.yaml --place web=edge --place client=endpoint --out shop.toml
      cellbed import compose compose.yaml --load web --up lte-suburban.up --down lte-suburban.down --out shop.toml
      cellbed import compose compose.yaml --build --out shop.toml
      cellbed import compose other/compose.yaml --out shop.toml --add
      cellbed import kube manifests/*.yaml --place load=endpoint --out shop.toml
      cellbed import continuum bench_edge.cfg --out edge.toml
    """
    import json
    import os
    import shlex
    import sys

    from cellbed import importing
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
    classes, images = importing.parse_classes(place or []), importing.parse_images(map_ or [])
    choices = importing.Choices(classes, up, down, duration, cpus, size, load, out, images, before, build)
    needs_services = {"--place": place, "--map": map_, "--load": load, "--add": add} if kind == "continuum" else {}
    for option, value in {"--profile": profile, "--build": build, **needs_services}.items():
        if kind != "compose" and value:
            raise CellbedError(
                f"{option}: {'manifests' if kind == 'kube' else 'configurations of Continuum'} have none: leave it out"
            )
    if kind == "compose" and len(files) > 1:
        merged = " ".join(f"-f {shlex.quote(str(each))}" for each in files)
        raise CellbedError(f"several Compose files: merge them with `docker compose {merged} config > resolved.yaml`")
    command = shlex.join(["cellbed", *sys.argv[1:]])
    if kind == "continuum":
        written = importing.read_continuum(files, choices, command)
    else:
        if kind == "compose":
            imported = importing.read_compose(files[0], os.environ, profile or [])
        else:
            manifests = [[*sorted(each.glob("*.y*ml"))] or [each] if each.is_dir() else [each] for each in files]
            imported = importing.read_manifests([file for some in manifests for file in some])
        if build:
            importing.build(imported, choices)
        written = importing.write(imported, choices, command)
    importing.save(written, out)
    losses = [note for note in written.notes if note.is_loss]
    if as_json:
        print(json.dumps(written.as_dict(), indent=2))
    else:
        if out is None:
            print(written.text, end="")
        else:
            what = "node groups" if kind == "continuum" else "services"
            print(f"{out}: {len(written.nodes)} {what}; settings that are not mapped or differ: {len(losses)}")
        if kind != "continuum":
            print(written.placement(), file=sys.stderr)
    for note in losses:
        print(note, file=sys.stderr)
    if strict and losses:
        raise typer.Exit(1)

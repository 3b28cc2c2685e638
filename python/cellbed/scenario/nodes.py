"""The node groups of a scenario: class, number, limits, link and back end of their nodes."""

import pathlib
from typing import Annotated, Any, ClassVar, Literal, TypeGuard

from pydantic import ConfigDict, Discriminator, Field, Tag

from cellbed.laws.law import Law
from cellbed.scenario.core import CORE_LINK, CoreLink
from cellbed.scenario.fields import CONGESTION_CONTROL, DISK_FILE, KEY_FILE, PLACE, Command, quantity
from cellbed.scenario.live import LiveLink
from cellbed.scenario.mobile import Change, MobileLink, Offset
from cellbed.scenario.radio import RadioLink
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.table import PLAIN, Table, table_kind, written
from cellbed.support.units import DURATION, SIZE

CLASSES = ("endpoint", "edge", "cloud")
"""Node classes in the order of the SPEC-RG reference architecture (Jansen et al., CCGRID 2023, §3)."""
TOWER_CLASS = "tower"
"""Class of a node through which the packets of a tower's radio links pass."""
NodeClass = Literal["endpoint", "edge", "cloud", "tower"]
Memory = Annotated[int, quantity(SIZE, "64 MiB", "16 TiB")]
Disk = Annotated[int, quantity(SIZE, "1 MiB", "1 TiB")]
Name = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")]
"""Name of a node group or an application: part of names of files, hosts and control groups."""
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$")]

ShapedLink = MobileLink | RadioLink | RecordedLink
"""A mobile link that the emulator shapes."""
AnyMobileLink = Annotated[
    Annotated[MobileLink, Tag(PLAIN)]
    | Annotated[RadioLink, Tag("radio")]
    | Annotated[RecordedLink, Tag("recording")]
    | Annotated[LiveLink, Tag("live")],
    Discriminator(table_kind),
]
"""A mobile link described per direction; or generated, recorded or live as a whole, with a ``kind``."""


class Handover(Change):
    """Endpoints move to another cell. Keys of a change come into force when they are there; omitted keys stay."""

    at: Offset = Field(description="Time of leaving their cell, from the start of the workload.", examples=["30 s"])
    cell: Name = Field(description="Cell of [cells] that they enter.", examples=["small"])
    interruption: Annotated[int, quantity(DURATION, "1 us", "1 h")] = Field(
        written("50 ms"), description="Time without a cell: nothing leaves the queues of their links."
    )
    queued: Literal["forward", "drop"] = Field(
        "forward", description="Packets in these queues: forward: they wait for the new cell. drop: they are lost."
    )

    @property
    def enters(self) -> int:
        """Time of arrival in the new cell, ns."""
        return self.at + self.interruption

    @property
    def change(self) -> Change | None:
        """The change of the link in the new cell, if any."""
        given = {key: value for key in Change.model_fields if key != "at" and (value := getattr(self, key)) is not None}
        return Change.model_construct(at=self.enters, **given) if given else None


class Backend(Table):
    """The properties of a kind of node for the rest of cellbed."""

    routed: ClassVar[bool] = False
    """True if the node is a machine behind its namespace; else its programs are processes of this machine."""
    shares_files: ClassVar[bool] = False
    """True if programs see the files of this machine."""
    has_program: ClassVar[bool] = False
    """True if the node has a default program, for an application that names none."""
    uses_this_machine: ClassVar[bool] = True
    """True if the node uses processors and memory of this machine."""
    keeps_files: ClassVar[bool] = False
    """True if the node's programs see files of earlier runs outside of their own folder."""

    @property
    def files(self) -> object:
        """A value that is equal for nodes of one kind whose programs see the same files."""
        return self


class NamespaceBackend(Backend):
    """A node in network namespaces and control groups of this machine, which shares its files."""

    shares_files: ClassVar[bool] = True
    keeps_files: ClassVar[bool] = True

    kind: Literal["namespace"] = Field(description="Kind of node.")


class VmBackend(Backend):
    """A virtual machine (QEMU), booted with the kernel of ``cellbed vm build``."""

    routed: ClassVar[bool] = True

    kind: Literal["vm"] = Field(description="Kind of node.")
    image: Annotated[pathlib.Path, DISK_FILE] | None = Field(
        None, description="Disk image (raw or qcow2). Default: the image of `cellbed vm build`."
    )


class HostBackend(Backend):
    """A machine that is reached over SSH."""

    routed: ClassVar[bool] = True
    uses_this_machine: ClassVar[bool] = False
    keeps_files: ClassVar[bool] = True

    kind: Literal["host"] = Field(description="Kind of node.")
    ssh: str = Field(pattern="^[^-\\s]\\S*$", description="The machine, as ssh takes it.", examples=["pi@192.0.2.7"])
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(None, description="Port of its SSH server.")
    identity: Annotated[pathlib.Path, KEY_FILE] | None = Field(None, description="File of the private key.")
    jump: str | None = Field(
        None,
        pattern="^[^-\\s,][^\\s,]*(,[^-\\s,][^\\s,]*)*$",
        description="Jump hosts on the way, as USER@HOST:PORT, separated by commas.",
        examples=["user@gateway.example.org"],
    )
    nat: bool = Field(False, description="Carry packets over SSH: the machine is behind address translation.")
    options: list[str] = Field([], description="Further options of ssh (ssh_config(5)).", examples=[["Compression=no"]])


class Mount(Table):
    """A file or folder of this machine that a container has, too."""

    source: Annotated[pathlib.Path, PLACE] = Field(description="File or folder, relative to the scenario file.")
    target: str = Field(pattern="^/[^\\x00]+$", description="Absolute path in the container.", examples=["/data"])
    read_only: bool = Field(False, description="The container may not write to it.")


class ContainerBackend(Backend):
    """A node that runs an image of Podman or Docker."""

    has_program: ClassVar[bool] = True

    kind: Literal["container"] = Field(description="Kind of node.")
    image: str = Field(
        pattern="^[^-\\s\\x00][^\\s\\x00]*$",
        description="Image, as the engine knows it.",
        examples=["docker.io/library/redis"],
    )
    engine: Literal["auto", "podman", "docker"] = Field(
        "auto", description="Engine that has the image; auto: Podman, else Docker."
    )
    entrypoint: Command | None = Field(None, description="Instead of the image's entry point.")
    command: Command | None = Field(
        None, description="Instead of the image's command: arguments of the entry point.", examples=["redis-server"]
    )
    environment: dict[str, str] = Field({}, description="Environment variables beyond the image's.")
    mounts: list[Mount] = Field([], description="Files and folders of this machine.")
    devices: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        [],
        max_length=64,
        description="Devices of this machine: files below /dev, or names of CDI.",
        examples=[["nvidia.com/gpu=all", "/dev/kvm"]],
    )

    @property
    def files(self) -> object:
        return self.kind, self.image


AnyBackend = Annotated[NamespaceBackend | ContainerBackend | VmBackend | HostBackend, Field(discriminator="kind")]


class NodeGroup(Table):
    """Nodes of one class. Each gets these CPUs, this memory and its own link."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema["required"].remove("class"))

    node_class: NodeClass = Field(
        alias="class", description="Place of the nodes; default: the group's name if it is a class."
    )
    count: int = Field(1, ge=1, le=1000, description="Number of nodes of this group.")
    cpus: float = Field(ge=0.1, le=1024, description="CPUs of one node; 0.5 is half a CPU.", examples=[1.0])
    memory: Memory = Field(description="Memory of one node.", examples=["512 MiB"])
    speed: float = Field(
        1.0,
        gt=0,
        le=1e6,
        description="Predictions (--virtual): how many times as fast as on this machine the programs of one node "
        "compute. Real runs have 1.",
        examples=[20.0],
    )
    disk: Disk | None = Field(
        None,
        description="Size of the file system that the programs of one node write to. It lies in memory. "
        "Default: the machine's.",
        examples=["64 MiB"],
    )
    link: AnyMobileLink | None = Field(
        None, description="Mobile link of each endpoint of this group: keys that differ from [links.mobile]."
    )
    core: Annotated[CoreLink, CORE_LINK] | None = Field(
        None,
        description="Core link of each edge or cloud node of this group. Default: the class's in [links.core].",
    )
    site: Name | None = Field(
        None,
        description="Site of [sites] at which these edge or cloud nodes are, with its switch and core link, or whose "
        "tower this node is. Default: each node has its own core link; a tower is the central one.",
        examples=["paris"],
    )
    stagger: Offset = Field(
        written("0 s"), description="Each further endpoint of the group starts this much later in its traces."
    )
    cell: Name | None = Field(
        None, description="Cell of [cells] whose time the links of these endpoints share.", examples=["macro"]
    )
    route: list[Handover] = Field([], description="Handovers of these endpoints to other cells, in order of time.")
    priority: int = Field(0, ge=0, le=255, description="Class in a cell with strict priority; 0 is served first.")
    dscp: int | None = Field(
        None,
        ge=0,
        le=63,
        description="DSCP of packets from, else to, these nodes in queues and cells. Default: as sent.",
        examples=[46],
    )
    aliases: list[HostName] = Field(
        [], description="Further host names of the first node of the group.", examples=[["db", "db.shop.svc"]]
    )
    congestion_control: Annotated[Law | str, CONGESTION_CONTROL] | None = Field(
        None, description="TCP congestion control of these nodes: what they send. Default: as in [transport]."
    )
    intercept: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None,
        description="Towers: port of a program on the node that gets the TCP connections that endpoints open.",
        examples=[5000],
    )
    backend: AnyBackend = Field(written({"kind": "namespace"}), description="Kind of the nodes.")


def with_defaults(data: Any) -> Any:
    """Return a scenario's tables with default classes of groups (a group named after a class), and with keys of
    ``[links.mobile]`` that links of groups leave out. Malformed values stay unchanged: the validation reports them."""
    groups = data.get("nodes") if isinstance(data, dict) else None
    if not isinstance(groups, dict):
        return data
    links = data.get("links")
    mobile = links.get("mobile") if isinstance(links, dict) else None
    found = {}
    for name, group in groups.items():
        if isinstance(group, dict):
            group = ({"class": name} if name in CLASSES else {}) | group
            link: Any = group.get("link")
            if isinstance(mobile, dict) and inherits(mobile, link):
                group = group | {"link": {**mobile, **link}}
        found[name] = group
    return data | {"nodes": found}


def inherits(mobile: Any, link: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a group's link inherits keys of ``[links.mobile]``. A link of another kind does not."""
    return (
        isinstance(mobile, dict)
        and isinstance(link, dict)
        and link.get("kind", mobile.get("kind")) == mobile.get("kind")
    )

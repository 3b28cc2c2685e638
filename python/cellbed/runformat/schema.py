"""The schema of the keys of ``run.json`` that measuring reads. Other keys are allowed."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cellbed.runformat.flows import SHOWN

_Time = Annotated[int, Field(ge=0, lt=2**62)]
_Span = Annotated[int, Field(ge=0, le=366 * 86_400_000_000_000)]
_Count = Annotated[int, Field(ge=0, lt=2**62)]
_Index = Annotated[int, Field(ge=0, lt=2**16)]


class _Object(BaseModel):
    # JSON has types, so no value is converted. JSON has no NaN.
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _Played(_Object):
    name: str
    sha256: str | None = None
    synthetic: bool | None = None
    offset_ns: _Span | None = None
    looped: bool | None = None


class _RoundTrips(_Object):
    name: str
    synthetic: bool | None = None


class _Change(_Object):
    at_ns: _Span
    description: str
    kinds: list[str] = []


class _Move(_Object):
    at_ns: _Span
    source: str = Field(alias="from")
    target: str = Field(alias="to")


class _Direction(_Object):
    index: _Index
    name: str
    link: str
    way: str
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    description: str | None = None
    changes: list[_Change] | None = None
    outages_ns: list[Annotated[list[_Span], Field(min_length=2, max_length=2)]] = []
    moves: list[_Move] = []
    trace: _Played | None = None
    played: _Played | None = None
    round_trips: _RoundTrips | None = None


class _Clock(_Object):
    offset_ns: Annotated[int, Field(gt=-(2**62), lt=2**62)]
    uncertainty_ns: _Span


class _Node(_Object):
    name: str
    node_class: str | None = Field(None, alias="class")
    cpus: float | None = None
    memory_bytes: _Count | None = None
    addresses: list[str] | None = None
    clock: _Clock | None = None


class _Proof(_Object):
    what: str
    asked: float | None = None
    measured: float | None = None
    unit: str
    ok: bool
    state: str | None = None
    note: str | None = None


class _Counted(_Object):
    dropped: dict[str, _Count] | None = None
    marked: _Count | None = None
    duplicated: _Count | None = None
    corrupted: _Count | None = None


class _Lateness(_Object):
    p50: _Span | None
    p99: _Span | None
    max: _Span | None


# JSON has no tuples, so a list is accepted.
_Visit = Annotated[tuple[_Span, _Span | None], Field(strict=False)]
_Stay = Annotated[tuple[_Span, str | None], Field(strict=False)]


class _Cell(_Object):
    name: str
    description: str | None = None
    users: list[str]
    visits_ns: dict[str, Annotated[list[_Visit], Field(min_length=1)]] = {}


class _Served(_Object):
    direction: str
    served_ns: _Span


class _ServedCell(_Object):
    name: str
    users: list[_Served]


class _Emulator(_Object):
    directions: dict[str, _Counted] | None = None
    cells: list[_ServedCell] | None = None
    lateness_ns: _Lateness | None = None


class _Phase(_Object):
    name: str
    begin_s: float
    end_s: float
    bytes: _Count | None = None
    on_link_s: float | None = None


class _Migration(_Object):
    app: str
    strategy: str
    moves_memory: bool = False
    source: str
    target: str
    compression: int | None = None
    begin_s: float
    end_s: float | None = None
    failed: str | None = None
    reason: str | None = None
    bytes: _Count | None = None
    ports: list[Annotated[int, Field(ge=1, le=65_535)]] = []
    phases: list[_Phase]
    facts: dict[str, float | str] = {}


class _TransportControl(_Object):
    name: str
    asked: bool | None = None


class _Law(_Object):
    name: str
    runs_as: str
    shown: Annotated[list[str], Field(max_length=SHOWN)]


class Account(_Object):
    """The content of ``run.json``, or of the file that a shell writes next to its packet log. Times in ns."""

    name: str | None = None
    clock: Literal["real", "virtual"] | None = None
    status: str | None = None
    started: str | None = None
    first_request_s: float | None = None
    t0_ns: _Time | None = None
    duration_ns: _Span | None = None
    skip_ns: _Span | None = None
    drain_ns: _Span | None = None
    no_limits: bool | None = None
    seed: int | None = None
    workload: dict[str, Any] | None = None
    applications: list[dict[str, Any]] = []
    notes: list[str] | None = None
    warnings: list[str] | None = None
    deaths: list[str] | None = None
    nodes: list[_Node] | None = None
    directions: list[_Direction] | None = None
    cells: list[_Cell] | None = None
    sites: dict[str, list[_Stay]] | None = None
    proof: list[_Proof] | None = None
    emulator: _Emulator | None = None
    congestion_control: _TransportControl | None = None
    laws: list[_Law] = []
    migrations: list[_Migration] = []

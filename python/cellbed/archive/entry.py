"""The archive's description of a recording (origin, contents, history), and the draft of one."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cellbed.archive.series import Content, Part, Series

FORMAT: Final = "cellbed-trace"
VERSION: Final = 1

Origin = Literal["recorded", "synthetic"]
Text = Annotated[str, Field(max_length=2000)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_+-]{0,99}$")]
"""Lower case, so that names differ on every file system; no dot, which separates a name from its direction."""
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,119}$")]
"""Name of a file directly in the entry's folder."""
_MOST: Final = 2**63 - 1


def _numbers(figures: dict[str, Any]) -> dict[str, Any]:
    for key, value in figures.items():
        for each in value if isinstance(value, list) else (value,):
            if not isinstance(each, int | float) or not abs(each) <= _MOST:
                raise ValueError(f"'{key:.40}' is neither a number nor a list of numbers")
    return figures


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Model(BaseModel):
    """A part of an entry; unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, populate_by_name=True)


class About(Model):
    """The origin of a recording; null is unknown."""

    origin: Origin
    technology: Text | None = Field(default=None, description="3g, 4g, 5g, 6g, wifi, fixed, satellite.")
    band: Text | None = Field(default=None, description="low, mid, mmwave, or the band's number.")
    operator: Text | None = None
    place: Text | None = None
    date: Text | None = Field(
        default=None, description="ISO 8601, as exactly as it is known: 2021, 2021-04, 2021-04-30."
    )
    mobility: Text | None = Field(
        default=None, description="stationary, walking, driving, bus, train, subway, ferry, …"
    )
    speed: Text | None = Field(default=None, description="Median speed, with its unit.")
    obstacle: Text | None = Field(default=None, description="window, wall, body, vehicle, …")
    method: Text | None = Field(default=None, description="Recording method, or the model with its parameters.")
    licence: Text | None = None
    source: Text | None = Field(default=None, description="Address of the original.")
    citation: Text | None = None
    note: Text | None = None


class StoredSeries(Model):
    """A series of an entry, and its file. file: name in the entry's folder; sha256: expected hash of the file."""

    file: FileName
    content: Content
    sha256: Sha256
    duration_ns: Annotated[int, Field(ge=1, le=_MOST)]
    rows: Annotated[int, Field(ge=0, le=_MOST)]
    statistics: Annotated[dict[str, Any], AfterValidator(_numbers)] | None = None


class SiteOrigin(Model):
    """An origin of a recorded site. addresses: known addresses of servers; bytes: total of the replies' bodies."""

    origin: Text
    addresses: tuple[Text, ...] = ()
    objects: Annotated[int, Field(ge=1, le=_MOST)]
    bytes: Annotated[int, Field(ge=0, le=_MOST)]


class SiteSummary(Model):
    """The contents of a recorded site. page: URL of the first page, if any."""

    page: str | None = None
    origins: tuple[SiteOrigin, ...]

    @property
    def total(self) -> SiteOrigin:
        """The objects and bytes of all origins."""
        objects, size = (sum(getattr(each, key) for each in self.origins) for key in ("objects", "bytes"))
        return SiteOrigin(origin=f"{len(self.origins)} origins", objects=objects, bytes=size)


class StoredSite(SiteSummary):
    """A recorded site of an entry, and its WARC file. file, sha256: as in :class:`StoredSeries`."""

    file: FileName
    sha256: Sha256


class Step(Model):
    """A step of the history: imported, generated, cut, scaled… what: the verb. how: arguments of the step.

    of: names and SHA-256 of the step's inputs.
    """

    what: Text
    how: dict[str, Any] = {}
    of: dict[str, str] = {}
    tool: Text = ""


class Entry(Model):
    """An entry of the archive, as in its `entry.toml`."""

    format: Literal["cellbed-trace"] = FORMAT
    version: Literal[1] = VERSION
    name: Name
    about: About
    parts: dict[Part, StoredSeries] = {}
    recording: FileName | None = Field(
        default=None, description="Folder of a recording of two workloads, in addition to the series."
    )
    recording_files: dict[str, Sha256] = Field(default={}, description="SHA-256 of each file of it, by its name.")
    site: StoredSite | None = Field(default=None, description="Recorded site (`cellbed web record`).")
    tables: dict[FileName, Sha256] = Field(default={}, description="SHA-256 of each further table, by its file name.")
    history: tuple[Step, ...] = ()


@dataclass(slots=True)
class Draft:
    """An entry that is not visible yet.

    folder: contains the draft's files only, on the archive's file system; each series of `parts` is a file there, as is
    `site`. recording: name of the folder of a recording of two workloads there. tables: names of further files there.
    notes: sentences for the user, on assumptions and omissions.
    """

    folder: Path
    about: About
    parts: dict[Part, Series] = field(default_factory=dict)
    recording: str | None = None
    site: StoredSite | None = None
    tables: list[str] = field(default_factory=list)
    history: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def second_of_day(about: About) -> float | None:
    """Return the start in seconds since midnight, in the time zone of `date` (ISO 8601); None: unknown."""
    if about.date is None or len(about.date) <= len("2021-04-30"):
        return None
    try:
        time = datetime.datetime.fromisoformat(about.date).time()
    except ValueError:
        return None
    return time.hour * 3600 + time.minute * 60 + time.second + time.microsecond / 1e6
